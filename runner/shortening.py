"""How long the texts of messages are, and the same messages with their longest texts cut. Values in, values out.

What is counted is what people, the model and tools have said: prompts, answers, thoughts, the arguments of calls and
their results. Instructions are not; pictures and files count as a fixed number of characters.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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
OLD_RETRY: Final = "retry-prompt"
"""The kind of a part that the library has given up; one may still be in the hands of an application."""
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


def chars_of(message: ModelMessage, size: Callable[[str], int] = len) -> int:
    """Return how many characters a message counts, or whatever `size` counts of a text."""
    return sum(_chars(part, size) for part in message.parts)


def shortened(messages: Sequence[ModelMessage], *, chars: int) -> tuple[list[ModelMessage], int]:
    """Return messages with their longest texts cut, so that together they count no more, and how many were cut.

    All texts that are too long are cut to the same length. A thought cannot be cut: one that is too long is left out.
    """
    sizes = [[_text_chars(part) for part in message.parts] for message in messages]
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


def _chars(part: Any, size: Callable[[str], int] = len) -> int:
    match part:
        case SystemPromptPart():
            return 0
        case UserPromptPart():
            if isinstance(part.content, str):
                return size(part.content)
            return sum(_item_chars(item, size) for item in part.content)
        case TextPart() | ThinkingPart():
            return size(part.content)
        case BaseToolCallPart():
            return size(part.args if isinstance(part.args, str) else part.args_as_json_str())
        case BaseToolReturnPart():
            return size(_returned(part)) + FILE_CHARS * len(part.files)
        case RetryFeedbackPart():
            return size(str(part.content))
        case _ if part.part_kind == OLD_RETRY:
            return size(str(part.content))
        case _:
            return 0 if part.part_kind in STANDING else FILE_CHARS


def _item_chars(item: Any, size: Callable[[str], int]) -> int:
    match item:
        case str():
            return size(item)
        case TextContent():
            return size(item.content)
        case CachePoint():
            return 0
        case _:
            return FILE_CHARS


def _returned(part: BaseToolReturnPart[Any]) -> str:
    return part.model_response_str(wrap_if_error=False)


def _text_chars(part: Any) -> int:
    """Return how many characters of a part can be cut, or left out."""
    match part:
        case TextPart() | ThinkingPart():
            return _chars(part)
        case UserPromptPart():
            return sum(map(len, _said(part)))
        case RetryFeedbackPart():
            return _chars(part) if isinstance(part.content, str) else 0
        case ToolReturnPart():
            # Those of the library's own kinds have contents of their own kinds.
            return len(_returned(part)) if type(part) is ToolReturnPart else 0
        case _ if part.part_kind == OLD_RETRY:
            return _chars(part)
        case _:
            return _chars(part) if type(part) is ToolCallPart else 0


def _said(part: UserPromptPart) -> list[str]:
    """Return the texts of what somebody said."""
    items = [part.content] if isinstance(part.content, str) else part.content
    texts = [item.content if isinstance(item, TextContent) else item for item in items]
    return [text for text in texts if isinstance(text, str)]


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
        case UserPromptPart() if not isinstance(part.content, str):
            return replace(part, content=_cut_items(part, level))
        case ToolCallPart():
            return replace(part, args=_cut_args(part.args_as_dict(), level))
        case ToolReturnPart():
            text = cut_text(_returned(part), level)
            return replace(part, content=[text, *part.files] if part.files else text)
        case _ if part.part_kind == OLD_RETRY:
            # To make one in any other way warns.
            old: Any = object.__new__(type(part))
            vars(old).update(vars(part), content=cut_text(str(part.content), level))
            return old
        case _:
            return replace(part, content=cut_text(part.content, level))


def _cut_items(part: UserPromptPart, limit: int) -> list[Any]:
    """Return what somebody said with its texts cut; if that is not enough, the beginning of all of them as one."""
    texts = _said(part)
    each = _level(list(map(len, texts)), limit)
    if sum(min(each, len(text)) for text in texts) > limit:
        files = [item for item in part.content if not isinstance(item, str | TextContent)]
        return [cut_text("\n".join(texts), limit), *files]
    return [_cut_item(item, each) for item in part.content]


def _cut_item(item: Any, limit: int) -> Any:
    match item:
        case str():
            return cut_text(item, limit)
        case TextContent():
            return replace(item, content=cut_text(item.content, limit))
        case _:
            return item


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
