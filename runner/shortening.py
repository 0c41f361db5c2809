"""How long the texts of messages are, and the same messages with their longest texts cut. Values in, values out.

What is counted is what people, the model and tools have said: prompts, answers, thoughts, the arguments of calls and
their results. Instructions are not; pictures and files count as a fixed number of characters.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    CachePoint,
    ModelMessage,
    ModelRequest,
    RetryFeedbackPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

FILE_CHARS: Final = 4_000
"""What a picture, a file or anything else that is not text counts."""
CUT_KEY: Final = "cut"
"""Under this name stands the beginning of arguments that are too long and have no long text to be cut."""
STANDING: Final = frozenset(
    {
        "instruction-baseline",
        "instruction-delta",
        "tool-availability-delta",
        "capability-load-delta",
        "model-settings-delta",
    }
)
"""The kinds of parts that say how the agent stands, not what was said."""


def chars_of(message: ModelMessage) -> int:
    """Return how many characters a message counts."""
    return sum(_chars(part) for part in message.parts)


def shortened(messages: Sequence[ModelMessage], *, chars: int) -> tuple[list[ModelMessage], int]:
    """Return messages with their longest texts cut, so that together they count no more, and how many were cut.

    All texts that are too long are cut to the same length. A thought cannot be cut: one that is too long is left out.
    """
    sizes = [[_chars(part) if _is_text(part) else 0 for part in message.parts] for message in messages]
    fixed = sum(map(chars_of, messages)) - sum(map(sum, sizes))
    # However many pictures there are, something is said beside them.
    level = _level([size for each in sizes for size in each], max(chars - fixed, chars // 4))
    cut = sum(size > level for each in sizes for size in each)
    made = [
        _with_level(message, own, level) if any(size > level for size in own) else message
        for message, own in zip(messages, sizes, strict=True)
    ]
    return made, cut


def cut_text(text: str, limit: int) -> str:
    """Return a text, or its beginning and how much is missing, in at most `limit` characters."""
    if len(text) <= limit:
        return text
    note = f"… [{len(text)} characters, the rest is not shown]"
    # Providers refuse a text of spaces.
    head = text.lstrip()[: max(1, limit - len(note) if limit > 2 * len(note) else limit)]
    return head + note if limit > 2 * len(note) else head


def _chars(part: Any) -> int:
    match part:
        case SystemPromptPart():
            return 0
        case UserPromptPart():
            return len(part.content) if isinstance(part.content, str) else sum(map(_item_chars, part.content))
        case TextPart() | ThinkingPart():
            return len(part.content)
        case BaseToolCallPart():
            return len(part.args if isinstance(part.args, str) else part.args_as_json_str())
        case BaseToolReturnPart():
            return len(_returned(part)) + FILE_CHARS * len(part.files)
        case RetryFeedbackPart():
            return len(str(part.content))
        case _:
            return 0 if part.part_kind in STANDING else FILE_CHARS


def _item_chars(item: Any) -> int:
    match item:
        case str():
            return len(item)
        case TextContent():
            return len(item.content)
        case CachePoint():
            return 0
        case _:
            return FILE_CHARS


def _returned(part: BaseToolReturnPart[Any]) -> str:
    return part.model_response_str(wrap_if_error=False)


def _is_text(part: Any) -> bool:
    """Tell whether a part can be cut, or left out."""
    match part:
        case TextPart() | ThinkingPart():
            return True
        case UserPromptPart():
            return isinstance(part.content, str)
        case RetryFeedbackPart():
            return isinstance(part.content, str)
        case ToolReturnPart():
            # Those of the library's own kinds have contents of their own kinds.
            return type(part) is ToolReturnPart and not part.files
        case _:
            return type(part) is ToolCallPart


def _level(sizes: Sequence[int], budget: int) -> int:
    """Return the length to which all longer texts are cut so that all fit."""
    left = max(0, budget)
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return max(1, share)
        left -= size
    return max(sizes, default=0)


def _with_level(message: ModelMessage, sizes: Sequence[int], level: int) -> ModelMessage:
    parts: list[Any] = [
        new
        for part, size in zip(message.parts, sizes, strict=True)
        if (new := _cut(part, level) if size > level else part) is not None
    ]
    if isinstance(message, ModelRequest):
        return replace(message, parts=parts)
    return replace(message, parts=parts or [TextPart("…")])


def _cut(part: Any, level: int) -> Any:
    match part:
        case ThinkingPart():
            return None
        case ToolCallPart():
            return replace(part, args=_cut_args(part.args_as_dict(), level))
        case ToolReturnPart():
            return replace(part, content=cut_text(_returned(part), level))
        case _:
            return replace(part, content=cut_text(part.content, level))


def _cut_args(args: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return arguments with their long texts cut; if that is not enough, the beginning of all of them as one text."""
    long = [len(text) for text in _texts(args)]
    room = limit - (len(_json(args)) - sum(long))
    # Some characters take two in JSON.
    for budget in (room, room // 2):
        found: dict[str, Any] = _leaves_cut(args, _level(long, budget))
        if len(_json(found)) <= limit:
            return found
    # And some as many as six.
    room = (limit - len(_json({CUT_KEY: ""}))) // 6
    return {CUT_KEY: cut_text(_json(args), room)} if room > 0 else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _leaves_cut(value: Any, level: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, level)
    if isinstance(value, dict):
        return {key: _leaves_cut(item, level) for key, item in value.items()}
    return [_leaves_cut(item, level) for item in value] if isinstance(value, list) else value
