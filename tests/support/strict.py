"""A model that accepts only what real providers accept.

Each request is put into the two shapes that providers take, and checked by their rules:

- messages with roles, as OpenAI has them: each call is answered by a message of the role "tool" before anybody speaks;
- turns of blocks, as Anthropic has them: each turn of the assistant is followed by one of the user, which begins with
  the results of all its calls; an id occurs once in the whole request.

Both want a request that ends with the user, and no empty content.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCalls, FunctionModel

Json = dict[str, Any]
Play = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[str | DeltaToolCalls]]
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

STRICT = str(Path(__file__).parent / "strict_app.py") + ":app"
# The environment says where requests are kept; each line is one.
SHOWN_ENV = "SHOWN"


def strict_model(play: Play, *, show: Callable[[list[ModelMessage]], object]) -> FunctionModel:
    """Return a model that plays what `play` streams, after it has checked what it is shown.

    Args:
        play: streams the answer to messages.
        show: takes each request that comes, before it is checked.
    """

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        show(messages)
        check(messages)
        async for delta in play(messages, info):
            yield delta

    async def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        texts: list[str] = []
        calls: list[ToolCallPart] = []
        async for delta in stream(messages, info):
            if isinstance(delta, str):
                texts.append(delta)
            else:
                made = delta.values()
                calls += [ToolCallPart(c.name or "", c.json_args, c.tool_call_id or "") for c in made]
        text = [TextPart("".join(texts))] if texts else []
        return ModelResponse(parts=[*text, *calls])

    return FunctionModel(whole, stream_function=stream, model_name="strict")


def check(messages: Sequence[ModelMessage]) -> None:
    """Refuse a request that a provider would.

    Raises:
        ModelHTTPError: 400, with the complaints as its body.
    """
    if complaints := refusals(messages):
        raise ModelHTTPError(400, "strict", {"complaints": complaints})


def refusals(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what providers would complain about; nothing if all accept it."""
    roles, turns = list(as_roles(messages)), as_turns(messages)
    return [
        *(f"roles: {complaint}" for complaint in _wrong_roles(roles)),
        *(f"turns: {complaint}" for complaint in _wrong_turns(turns)),
    ]


def as_roles(messages: Sequence[ModelMessage]) -> Iterator[Json]:
    """Put messages into the first shape, part by part, in their order."""
    for message in messages:
        if isinstance(message, ModelResponse):
            texts = [part.content for part in message.parts if isinstance(part, TextPart)]
            calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
            yield {
                "role": "assistant",
                "content": "".join(texts) or None,
                "tool_calls": [
                    {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_json_str()}
                    for call in calls
                ],
            }
            continue
        for part in message.parts:
            match part:
                case SystemPromptPart():
                    yield {"role": "system", "content": part.content}
                case ToolReturnPart():
                    answer = {"tool_call_id": part.tool_call_id, "content": part.model_response_str()}
                    yield {"role": "tool", **answer}
                case UserPromptPart() | RetryFeedbackPart():
                    yield {"role": "user", "content": part.content}
                case _:
                    raise TypeError(f"the tests make no such part: {part!r}")


def _wrong_roles(roles: Sequence[Json]) -> Iterator[str]:
    open_calls: Counter[str] = Counter()
    for number, message in enumerate(roles):
        if message["role"] == "tool":
            if not open_calls[message["tool_call_id"]]:
                yield f"{number}: a result of {message['tool_call_id']}, which no call before it has"
            open_calls -= Counter([message["tool_call_id"]])
            continue
        if open_calls:
            yield f"{number}: calls {sorted(open_calls)} have no result before this {message['role']} message"
        open_calls = Counter(call["id"] for call in message.get("tool_calls", ()))
        yield from (f"{number}: {complaint}" for complaint in _wrong_message(message, open_calls))
    if open_calls:
        yield f"the end: calls {sorted(open_calls)} have no result"
    if not roles or roles[-1]["role"] == "assistant":
        yield "the end: nobody asks anything"


def _wrong_message(message: Json, calls: Counter[str]) -> Iterator[str]:
    if max(calls.values(), default=0) > 1:
        yield "two calls with one id"
    if not (message["content"] or calls):
        yield f"the {message['role']} message is empty"
    for call in message.get("tool_calls", ()):
        if not (NAME.fullmatch(call["name"]) and NAME.fullmatch(call["id"])):
            yield f"not a call: {call}"


def as_turns(messages: Sequence[ModelMessage]) -> list[Json]:
    """Put messages into the second shape; requests that follow one another are one turn of the user."""
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if isinstance(message, ModelResponse) else "user"
        blocks = [block for part in message.parts if (block := _block(part))]
        if isinstance(message, ModelRequest) and not blocks and message.parts:
            continue  # only system prompts, which stand elsewhere
        if role == "user" and turns and turns[-1]["role"] == "user":
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _block(part: Any) -> Json | None:
    match part:
        case TextPart() | UserPromptPart() | RetryFeedbackPart():
            return {"type": "text", "text": str(part.content)}
        case ThinkingPart():
            # Without a signature it is sent as text, with a tag around it.
            tagged = {"type": "text", "text": f"<thinking>{part.content}</thinking>"}
            return {"type": "thinking"} if part.signature else tagged if part.content else None
        case ToolCallPart():
            call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            return {"type": "tool_use", **call}
        case ToolReturnPart():
            return {
                "type": "tool_result",
                "tool_use_id": part.tool_call_id,
                "content": part.model_response_str(),
            }
        case _:
            return None


def _wrong_turns(turns: Sequence[Json]) -> Iterator[str]:
    ids = Counter(block["id"] for turn in turns for block in turn["content"] if block["type"] == "tool_use")
    if twice := [id for id, count in ids.items() if count > 1]:
        yield f"ids occur twice: {twice}"
    asked: list[str] = []
    for number, turn in enumerate(turns):
        expected = "user" if number % 2 == 0 else "assistant"
        if turn["role"] != expected:
            yield f"{number}: a turn of the {turn['role']} where it is the {expected}'s"
        yield from (f"{number}: {complaint}" for complaint in _wrong_blocks(turn["content"], asked))
        asked = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
    if not turns or turns[-1]["role"] != "user":
        yield "the end: it is not the user's turn"


def _wrong_blocks(blocks: Sequence[Json], asked: Sequence[str]) -> Iterator[str]:
    if not blocks:
        yield "an empty turn"
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        yield "a blank text"
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if sorted(results) != sorted(asked):
        yield f"results of {sorted(results)} where {sorted(asked)} were asked for"
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield "results that do not stand at the beginning"
    if blocks and blocks[-1]["type"] == "thinking":
        yield "a turn that ends in a thought"
