"""What a server answered, as values or as a typed error. No connection is made here."""

import re
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

# A replica that is going away or short of something; another one, or the same one later, goes on.
PASSING: Final = frozenset({"unavailable", "closed", "overloaded", "unreachable", "draining"})

T = TypeVar("T")


class ClientError(Exception):
    """A refusal by the server, or a server that cannot be reached.

    Args:
        code: stable; the server's own, or "unreachable", "bad_url", "bad_token", "bad_answer".
        message: what is wrong and what to do.
        data: what the server added.
        status: the HTTP status, if there was one.
    """

    def __init__(
        self, code: str, message: str, *, data: dict[str, Any] | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data or {}
        self.status = status

    @property
    def passing(self) -> bool:
        """Tell whether the same call may succeed a little later."""
        return self.code in PASSING


def parts_of(url: str) -> SplitResult:
    """Return the parts of a URL. Raises ClientError."""
    try:
        parts = urlsplit(url)
        # Reading the port and the host refuses what is no number, too large, or not a name.
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and httpx.URL(url).host:
            return parts
    except (ValueError, httpx.InvalidURL):
        pass
    raise ClientError("bad_url", f"{shown(url)!r} is not a URL such as http://127.0.0.1:8000")


def shown(url: str) -> str:
    """Return a URL for people to read: without the name and password that it may carry."""
    return re.sub(r"^(\w+://)?.*@", r"\1", url, flags=re.DOTALL)


def segment(id: str | None) -> str:
    """Return an id as one segment of a path, whatever is in it."""
    return quote(id or "", safe="")


def decoded(type_: type[T], value: Any) -> T:
    """Return a JSON value as a record. Raises ClientError."""
    try:
        return TypeAdapter(type_).validate_python(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        text = f"the server's answer is not a {type_.__name__} (at {where!r}); is it of another version?"
        raise ClientError("bad_answer", text) from None


def items_of(type_: type[T], answer: Any) -> list[T]:
    """Return the items of a list or a page. Raises ClientError."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise ClientError("bad_answer", "the server's answer is not a list; is it of another version?")
    return [decoded(type_, item) for item in items]


def answered(answer: httpx.Response) -> Any:
    """Return the body of a success; raise the typed error of anything else."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and (body is not None or answer.status_code == httpx.codes.NO_CONTENT):
        return body
    fields = body if isinstance(body, dict) else {}
    code = str(fields.get("code") or f"http_{answer.status_code}")
    message = str(
        fields.get("detail")
        or fields.get("title")
        or f"{shown(str(answer.url))} answered {answer.status_code}"
    )
    raise ClientError(code, message, data=_data(fields), status=answer.status_code)


def _data(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what an error says beyond its text; it may stand in `data` or beside it."""
    nested = fields.get("data")
    known = {"type", "title", "status", "detail", "code", "message", "instance", "data"}
    beside = {name: value for name, value in fields.items() if name not in known}
    return beside | (nested if isinstance(nested, dict) else {})


def refused(error: dict[str, Any]) -> ClientError:
    """Return the error that a message over the WebSocket tells."""
    return ClientError(
        str(error.get("code") or "unknown"), str(error.get("message") or error), data=_data(error)
    )
