"""The messages of the WebSocket, as values: what a client may ask for, and how it is answered."""

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_jsonable_python

from threadhold.adapters.http.errors import DoorError, InvalidRequest, MalformedJson, Refusal, UnknownOp
from threadhold.adapters.http.schemas import AgentName, Content, WaitS
from threadhold.fanout.frame import Delivery
from threadhold.runner.records import OnBusy, Until

OpId = int | str | None
_ThreadId = Annotated[str, Field(min_length=1, max_length=200)]
ID_CHARS_MAX: Final = 200


class Op(BaseModel):
    """One message of a client; its `id` comes back with the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: int | Annotated[str, Field(max_length=ID_CHARS_MAX)] | None = None


class Auth(Op):
    """Say who asks, where no header could."""

    op: Literal["auth"]
    token: str | None = None


class Send(Op):
    """Send to a thread, or with `thread` null start one."""

    op: Literal["send"]
    content: Content
    thread: _ThreadId | None = None
    agent: AgentName | None = None
    key: str | None = None
    on_busy: OnBusy | None = None


class Answer(Op):
    """Answer a question or an approval."""

    op: Literal["answer"]
    request: str
    decision: dict[str, Any]


class Stop(Op):
    """Stop a run, or whatever runs on a thread now."""

    op: Literal["stop"]
    run: str | None = None
    thread: _ThreadId | None = None
    key: str | None = None
    wait: WaitS = 5.0


class Watch(Op):
    """Receive a thread's frames from now on; a second watch of the same thread replaces the first."""

    op: Literal["watch"]
    thread: _ThreadId
    after: str | None = None
    until: Until | None = None


class Unwatch(Op):
    """Receive no more of them."""

    op: Literal["unwatch"]
    thread: _ThreadId


class Ping(Op):
    """Ask whether the other side is there: browsers cannot send WebSocket pings."""

    op: Literal["ping"]


AnyOp = Auth | Send | Answer | Stop | Watch | Unwatch | Ping
_OPS: Final[dict[str, type[AnyOp]]] = {
    "auth": Auth,
    "send": Send,
    "answer": Answer,
    "stop": Stop,
    "watch": Watch,
    "unwatch": Unwatch,
    "ping": Ping,
}


class RefusedOp(Exception):
    """A message that is not an op; `id` is the one it had, as far as it could be read."""

    def __init__(self, id: OpId, error: DoorError) -> None:
        super().__init__(error.message)
        self.id = id
        self.error = error


def parse_op(text: str) -> AnyOp:
    """Read a message.

    Raises:
        RefusedOp: if it is no JSON, no object, or not an op with the right fields.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedOp(None, MalformedJson("a message is one JSON object; this one is not JSON")) from None
    if not isinstance(message, dict):
        raise RefusedOp(None, MalformedJson("a message is one JSON object with an 'op'"))
    id = _id_of(message)
    name = message.get("op")
    model = _OPS.get(name) if isinstance(name, str) else None
    if model is None:
        raise RefusedOp(id, UnknownOp(name, list(_OPS)))
    try:
        return model.model_validate(message)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False, include_input=False)
        raise RefusedOp(id, InvalidRequest(told)) from None


def _id_of(message: dict[str, Any]) -> OpId:
    id = message.get("id")
    if isinstance(id, str):
        return id[:ID_CHARS_MAX]
    return id if isinstance(id, int) and not isinstance(id, bool) else None


def result_text(id: OpId, result: Any) -> str:
    """Return the answer to an op that was done; records become objects."""
    return _text({"op": "result", "id": id, "ok": True, "result": to_jsonable_python(result)})


def refusal_text(id: OpId, told: Refusal) -> str:
    """Return the answer to an op that was not done."""
    return _text({"op": "result", "id": id, "ok": False, "error": told.error()})


def watch_ended_text(thread: str, told: Refusal) -> str:
    """Return the message that a watch ended before its terminal frame."""
    return _text({"op": "watch_ended", "thread": thread, "error": told.error()})


def frame_text(delivery: Delivery) -> str:
    """Return the message with a frame. It is spliced: the frame was encoded once for all its watchers."""
    return f'{{"op":"frame",{delivery.json()[1:]}'


DRAIN_TEXT: Final = '{"op":"drain","message":"this process is shutting down; connect again"}'


def _text(message: dict[str, Any]) -> str:
    # Escaped to ASCII, because what a client sent, and is told back, may not be valid Unicode.
    return json.dumps(message, separators=(",", ":"), default=str)
