"""The messages that a server sends over a WebSocket, as values and as text.

Frames are only described here: each was encoded once for all who watch its thread, and is spliced into its message.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema
from pydantic_core import to_jsonable_python

from threadhold.adapters.http.errors import Refusal
from threadhold.adapters.http.ops import OpId
from threadhold.fanout.frame import Delivery, Frame
from threadhold.runner.records import Outcome, Receipt, Role, StopReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """Who the peer is; answers `auth`."""

    principal: str
    workspace: str
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """From where on a thread is watched; answers `watch`, before the first frame."""

    thread: str
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched:
    """Whether the thread was watched until now; answers `unwatch`."""

    thread: str
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """Nothing but that the other side is there; answers `ping`."""


Result = Introduction | Receipt | Outcome | StopReceipt | Watching | Unwatched | Pong


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What each op is answered with, by its name."""

    auth: Introduction
    send: Receipt
    answer: Outcome
    stop: StopReceipt
    watch: Watching
    unwatch: Unwatched
    ping: Pong


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Why something was not done: `code` is for programs, `message` for people; docs/problems.md has all codes."""

    code: str
    message: str
    retryable: bool
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to an op that was done."""

    op: Literal["result"] = "result"
    id: OpId
    ok: Literal[True] = True
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDone:
    """The answer to an op that was not done; or, with the id null, what is said before the socket is closed."""

    op: Literal["result"] = "result"
    id: OpId
    ok: Literal[False] = False
    error: Error


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEnded:
    """A watch ended before its last frame."""

    op: Literal["watch_ended"] = "watch_ended"
    thread: str
    error: Error


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """This process shuts down; the socket is closed next."""

    op: Literal["drain"] = "drain"
    message: str = "this process is shutting down; connect again"


def _fields(**known: dict[str, Any]) -> WithJsonSchema:
    """Return the schema of an object that has these fields, and may have others."""
    described = {"type": "object", "properties": known, "required": list(known), "additionalProperties": True}
    return WithJsonSchema(described)


_TEXT: Final = {"type": "string"}
_STATE: Final = _fields(state={"enum": ["idle", "busy", "paused"]})
_Live = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMessage(Frame):
    """A frame of a thread that is watched, and the cursor to go on from."""

    op: Literal["frame"] = "frame"
    at: Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFrame(FrameMessage):
    """An entry of the thread's log; `data["fact"]` names it."""

    n: Literal[0]
    kind: Literal["fact"]
    data: Annotated[dict[str, Any], _fields(fact=_TEXT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFrame(FrameMessage):
    """Somebody begins to run, or goes on with a run."""

    run: str
    n: _Live
    kind: Literal["attempt"]
    data: Annotated[dict[str, Any], _fields(attempt={"type": "integer"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFrame(FrameMessage):
    """What the agent does, as pydantic-ai's own stream event."""

    run: str
    n: _Live
    kind: Literal["event"]
    data: Annotated[dict[str, Any], _fields(event_kind=_TEXT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFrame(FrameMessage):
    """What the agent or a tool tells by itself."""

    run: str
    n: _Live
    kind: Literal["draft"]
    data: Annotated[dict[str, Any], _fields(event_kind=_TEXT, name=_TEXT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFrame(FrameMessage):
    """Frames are missing here for good."""

    n: Literal[0]
    kind: Literal["gap"]
    data: Annotated[dict[str, Any], _fields(reason={"enum": ["lost", "trimmed", "pruned", "reset"]})]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFrame(FrameMessage):
    """There is nothing newer, and the thread is in this state."""

    run: None
    n: Literal[0]
    kind: Literal["head"]
    data: Annotated[dict[str, Any], _STATE]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFrame(FrameMessage):
    """The last frame of a watch until idle."""

    run: None
    n: Literal[0]
    kind: Literal["end"]
    data: Annotated[dict[str, Any], _STATE]


AnyFrame = FactFrame | AttemptFrame | EventFrame | DraftFrame | GapFrame | HeadFrame | EndFrame
AnyMessage = Done | NotDone | WatchEnded | Drain | AnyFrame


def result_text(id: OpId, result: Result) -> str:
    """Return the answer to an op that was done."""
    return _text(Done(id=id, result=result))


def refusal_text(id: OpId, told: Refusal) -> str:
    """Return the answer to an op that was not done."""
    return _text(NotDone(id=id, error=Error(**told.error())))


def watch_ended_text(thread: str, told: Refusal) -> str:
    """Return the message that a watch ended before its last frame."""
    return _text(WatchEnded(thread=thread, error=Error(**told.error())))


def frame_text(delivery: Delivery) -> str:
    """Return the message with a frame."""
    return f'{{"op":"frame",{delivery.json()[1:]}'


# The data of an error that an application derived may be anything, and has to be told all the same.
_AS_JSON: Final[Any] = {"bytes_mode": "base64", "inf_nan_mode": "null", "fallback": str}


def _text(message: Done | NotDone | WatchEnded | Drain) -> str:
    # Escaped to ASCII, because what a client sent, and is told back, may not be valid Unicode.
    return json.dumps(to_jsonable_python(message, **_AS_JSON), separators=(",", ":"))


DRAIN_TEXT: Final = _text(Drain())
