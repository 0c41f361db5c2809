"""The messages that a client sends over a WebSocket, as values: what it may ask for."""

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from threadhold.adapters.http.errors import DoorError, InvalidRequest, MalformedJson, UnknownOp
from threadhold.adapters.http.schemas import CURSOR_SCHEMA, KEY_SCHEMA, AgentName, Content, WaitS
from threadhold.adapters.http.schemas import Answer as AnswerBody
from threadhold.fanout.cursor import parse_cursor
from threadhold.runner.errors import InvalidInput
from threadhold.runner.records import OnBusy, Until, WatchKind

OpId = int | str | None
_ThreadId = Annotated[str, Field(min_length=1, max_length=200)]
# As in `schemas`: what stands in a schema alone is for its readers, and the Runner refuses what breaks it.
_Key = Annotated[str, WithJsonSchema({"type": "string", **KEY_SCHEMA})]


def _place(text: str) -> str:
    if text not in ("start", "head"):
        parse_cursor(text)
    return text


_Cursor = Annotated[str, AfterValidator(_place), WithJsonSchema({"type": "string", **CURSOR_SCHEMA})]
_GIVEN: Final[dict[str, Any]] = {"type": "string"}
_ABSENT: Final[dict[str, Any]] = {"type": "null"}
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

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"properties": {name: _GIVEN}, "required": [name]} for name in ("thread", "agent")]
        }
    )

    op: Literal["send"]
    content: Content
    thread: _ThreadId | None = None
    agent: AgentName | None = None
    key: _Key | None = None
    on_busy: OnBusy | None = None


class Decision(AnswerBody):
    """What is decided about a request."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse fields that do not fit the kind, also where there is no such request."""
        try:
            self.decision().data()
        except InvalidInput as error:
            raise ValueError(error.message) from None
        return self


class Answer(Op):
    """Answer a question or an approval."""

    op: Literal["answer"]
    request: str
    decision: Decision


class Stop(Op):
    """Stop a run, or whatever runs on a thread now."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"properties": {name: _GIVEN, other: _ABSENT}, "required": [name]}
                for name, other in (("run", "thread"), ("thread", "run"))
            ]
        }
    )

    op: Literal["stop"]
    run: str | None = None
    thread: _ThreadId | None = None
    key: _Key | None = None
    wait: WaitS = 5.0


class Watch(Op):
    """Receive a thread's frames from now on; a second watch of the same thread replaces the first."""

    op: Literal["watch"]
    thread: _ThreadId
    after: _Cursor | None = None
    until: Until | None = None
    kinds: Annotated[list[WatchKind], Field(min_length=1)] | None = None


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
