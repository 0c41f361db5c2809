"""Short ways to write histories and facts about calls."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

Json = dict[str, Any]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def asks(text: str) -> ModelRequest:
    """What somebody says."""
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)])


def call(id: str, tool: str = "add", **args: Any) -> ToolCallPart:
    """A call of a tool."""
    return ToolCallPart(tool, args, id)


def says(*parts: str | ToolCallPart | ThinkingPart, cut_off: bool = False) -> ModelResponse:
    """What the model says and calls."""
    made = [TextPart(part) if isinstance(part, str) else part for part in parts]
    return ModelResponse(parts=made, timestamp=AT, state="interrupted" if cut_off else "complete")


def result(id: str, content: Any = None, tool: str = "add") -> ToolReturnPart:
    """What a call returned."""
    return ToolReturnPart(tool, f"result of {id}" if content is None else content, id, timestamp=AT)


def returns(*results: ToolReturnPart) -> ModelRequest:
    """What calls returned, as a request."""
    return ModelRequest(parts=list(results))


def texts(messages: Sequence[ModelMessage], kind: type) -> list[Any]:
    """Return the contents of all parts of one type."""
    parts: list[Any] = [part for message in messages for part in message.parts if isinstance(part, kind)]
    return [part.content for part in parts]


def model_called(*ids: str, state: str = "complete") -> Json:
    """The fact that the model answered with these calls."""
    return {"fact": "model_called", "state": state, "calls": [{"id": id, "tool": "add"} for id in ids]}


def tool_called(id: str) -> Json:
    """The fact that a call was started."""
    return {"fact": "tool_called", "call_id": id}


def tool_returned(id: str, outcome: str, **data: Any) -> Json:
    """The fact that a call ended."""
    return {"fact": "tool_returned", "call_id": id, "outcome": outcome, **data}


def request_opened(id: str) -> Json:
    """The fact that a call waits for people."""
    return {"fact": "request_opened", "call_id": id}


def request_answered(id: str, kind: str, decision: str, **data: Any) -> Json:
    """The fact that somebody decided about a call."""
    return {"fact": "request_answered", "call_id": id, "kind": kind, "decision": decision, **data}
