"""Every error as it goes over the wire, whichever door it leaves by.

`WIRE` has one row per error of the Runner. The doors' own refusals, which no Runner ever sees, are:

    DoorError
    ├── MalformedJson      the text is not JSON
    ├── InvalidRequest     JSON of the wrong shape
    ├── NotJson            the body is said to be something else than JSON
    ├── BodyTooLarge       more bytes than any request needs
    ├── UnknownPath        there is nothing at this path
    ├── MethodNotAllowed   there is, but not with this method
    ├── UpgradeRequired    this path speaks WebSocket
    ├── Unauthenticated    nobody is known to ask: no token, or none that is good
    ├── RateLimited        this principal asks for more than it may
    ├── OriginRefused      a web page of another site asks
    ├── HostRefused        the request names a host that this server does not answer for
    └── UnknownOp          a WebSocket message with an unknown `op`
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import uuid4

import structlog

from threadhold.fanout.errors import FanoutError
from threadhold.runner import errors as runner

log = structlog.get_logger(__name__)

BODY_BYTES_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How an error is told over HTTP; `retry_after` is in seconds."""

    status: int
    title: str
    retry_after: int | None = None


WIRE: Final[dict[type[runner.RunnerError], Wire]] = {
    runner.InvalidInput: Wire(status=422, title="The request is not valid"),
    runner.MessageTooLarge: Wire(status=413, title="The message is too large"),
    runner.NotFound: Wire(status=404, title="Not found"),
    runner.Forbidden: Wire(status=403, title="Not allowed"),
    runner.OperatorsOnly: Wire(status=403, title="For operators only"),
    runner.OwnersOnly: Wire(status=403, title="For the owner only"),
    runner.ActsForAnother: Wire(status=403, title="The run acts for somebody else"),
    runner.KeyConflict: Wire(status=409, title="The key was used with other content"),
    runner.ThreadExists: Wire(status=409, title="The thread id is taken"),
    runner.ThreadMismatch: Wire(status=409, title="The thread is another one"),
    runner.ThreadBusy: Wire(status=409, title="A run is in progress"),
    runner.ThreadArchived: Wire(status=409, title="The thread is archived"),
    runner.ThreadChanged: Wire(status=412, title="The thread has changed"),
    runner.AlreadyAnswered: Wire(status=409, title="The request has another answer"),
    runner.RequestClosed: Wire(status=409, title="The request takes no answer any more"),
    runner.WrongDecision: Wire(status=409, title="The request takes another kind of decision"),
    runner.OwnRequest: Wire(status=403, title="Somebody else has to approve"),
    runner.ArgsChanged: Wire(status=409, title="The arguments are other ones"),
    runner.DecideFirst: Wire(status=409, title="The run waits for a decision"),
    runner.NotReplayable: Wire(status=409, title="The run cannot be replayed"),
    runner.InboxFull: Wire(status=429, title="Too many messages wait", retry_after=2),
    runner.MembersFull: Wire(status=409, title="Too many members"),
    runner.GrantsFull: Wire(status=409, title="Too many grants"),
    runner.UnknownAgent: Wire(status=404, title="Unknown agent"),
    runner.Overloaded: Wire(status=503, title="Overloaded", retry_after=1),
    runner.Unavailable: Wire(status=503, title="Unavailable", retry_after=1),
    runner.Closed: Wire(status=503, title="Shutting down", retry_after=1),
}
_FANOUT: Final = Wire(status=503, title="Unavailable", retry_after=1)


class DoorError(Exception):
    """A request that is refused before any Runner sees it."""

    code: ClassVar[str]
    status: ClassVar[int]
    title: ClassVar[str]
    retry_after: int | None = None
    """Seconds until the same request may succeed, where that is known."""

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class MalformedJson(DoorError):
    """The text is not JSON."""

    code, status, title = "malformed_json", 400, "Malformed JSON"


class InvalidRequest(DoorError):
    """JSON of the wrong shape; `data["errors"]` says what is wrong where."""

    code, status, title = "invalid_input", 422, "The request is not valid"

    def __init__(self, errors: Sequence[Any]) -> None:
        told = [_place(error) for error in errors]
        first = told[0]
        field_name = ".".join(first["loc"]) or "body"
        super().__init__(f"{field_name}: {first['msg']}", field=field_name, errors=told)


def _place(error: Any) -> dict[str, Any]:
    """Return where an error is and what it is, without the value, which may be anything."""
    message = error["msg"].removeprefix("Value error, ")
    return {"loc": [str(part) for part in error["loc"]], "msg": message, "type": error["type"]}


class NotJson(DoorError):
    """The body is said to be something else than JSON."""

    code, status, title = "unsupported_media_type", 415, "Unsupported media type"

    def __init__(self) -> None:
        super().__init__("send the body as JSON, with the header 'Content-Type: application/json'")


class BodyTooLarge(DoorError):
    """More bytes than any request needs."""

    code, status, title = "body_too_large", 413, "The body is too large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body may have {limit} bytes; send a reference to larger things", limit=limit)


class UnknownPath(DoorError):
    """There is nothing at this path."""

    code, status, title = "unknown_path", 404, "Unknown path"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path[:200]!r}; /openapi.json lists the paths")


class MethodNotAllowed(DoorError):
    """The path exists, but not with this method."""

    code, status, title = "method_not_allowed", 405, "Method not allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{method} is not possible here; use {' or '.join(allowed)}", allowed=list(allowed))


class UpgradeRequired(DoorError):
    """This path speaks WebSocket."""

    code, status, title = "upgrade_required", 426, "This is a WebSocket"

    def __init__(self) -> None:
        super().__init__("connect here with a WebSocket client, subprotocol 'threadhold.v1'")


class Unauthenticated(DoorError):
    """Nobody is known to ask: no token was shown, or it is not good, or not any more.

    Args:
        message: what is wrong and what to do.
        reason: a word for programs; "missing" where nothing was shown at all.
    """

    code, status, title = "unauthenticated", 401, "Not authenticated"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message, reason=reason)
        self.reason = reason


class RateLimited(DoorError):
    """This principal asks for more than it may.

    Args:
        message: what is allowed.
        limit: how much of it.
        retry_after: seconds until there will be some.
    """

    code, status, title = "rate_limited", 429, "Too many requests"

    def __init__(self, message: str, *, limit: int, retry_after: int) -> None:
        super().__init__(message, limit=limit, retry_after=retry_after)
        self.retry_after = retry_after


class OriginRefused(DoorError):
    """A web page of another site asks on behalf of whoever looks at it."""

    code, status, title = "origin_refused", 403, "Origin refused"

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"pages from {origin[:200]!r} may not call this server; name that origin in THREADHOLD_ORIGINS to let them"
        )


class HostRefused(DoorError):
    """The request names a host that this server does not answer for."""

    code, status, title = "host_refused", 403, "Host refused"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"this server does not answer for the host {host[:200]!r}; use a name it listens under"
        )


class UnknownOp(DoorError):
    """A WebSocket message with an unknown `op`."""

    code, status, title = "unknown_op", 422, "Unknown op"

    def __init__(self, op: object, known: Sequence[str]) -> None:
        super().__init__(f"there is no op {str(op)[:80]!r}; there are {', '.join(known)}", known=list(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error as every door tells it; only the envelope differs."""

    status: int
    title: str
    code: str
    message: str
    retryable: bool = False
    retry_after: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def error(self) -> dict[str, Any]:
        """Return it as the `error` of a WebSocket message or of a stream."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, "data": self.data}


def refusal(error: Exception) -> Refusal:
    """Return what to tell about an error; one that nobody foresaw is logged and told as an id only."""
    match error:
        case runner.RunnerError():
            return _of_runner(error)
        case DoorError():
            return Refusal(
                status=error.status,
                title=error.title,
                code=error.code,
                message=error.message,
                retryable=error.retry_after is not None,
                retry_after=error.retry_after,
                data=error.data,
            )
        case FanoutError():
            return _refusal(_FANOUT, code=error.code, message=str(error), retryable=error.retryable, data={})
        case _:
            return _internal(error)


def _of_runner(error: runner.RunnerError) -> Refusal:
    # An error that an application derived is told as its nearest ancestor with a row.
    row = next((WIRE[kind] for kind in type(error).__mro__ if kind in WIRE), None)
    if row is None:
        return _internal(error)
    return _refusal(row, code=error.code, message=error.message, retryable=error.retryable, data=error.data)


def _refusal(row: Wire, *, code: str, message: str, retryable: bool, data: dict[str, Any]) -> Refusal:
    return Refusal(
        status=row.status,
        title=row.title,
        code=code,
        message=message,
        retryable=retryable,
        retry_after=row.retry_after,
        data=data,
    )


def _internal(error: Exception) -> Refusal:
    id = str(uuid4())
    log.error("internal_error", error_id=id, exc_info=error)
    return Refusal(
        status=500,
        title="Internal error",
        code="internal",
        message=f"something went wrong on our side; the server's log tells more under {id}",
        data={"error_id": id},
    )
