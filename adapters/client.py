"""A small client of the HTTP and WebSocket doors. It calls, decodes, and comes back when it is cut off."""

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit
from uuid import uuid4

import httpx
from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from threadhold.fanout.frame import Frame
from threadhold.runner.records import Message, OnBusy, Receipt, Run, StopReceipt, Thread, Until

SUBPROTOCOL: Final = Subprotocol("threadhold.v1")
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
TRIES_MAX: Final = 3
DELAY_FIRST_S: Final = 0.1
DELAY_MAX_S: Final = 3.0
# A replica that is going away or short of something; another one, or the same one later, goes on.
PASSING: Final = frozenset({"unavailable", "closed", "overloaded", "unreachable", "draining"})
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

T = TypeVar("T")
Method = Literal["GET", "POST"]


class ClientError(Exception):
    """A refusal by the server, or a server that cannot be reached.

    Args:
        code: stable; the server's own, or "unreachable", "bad_url", "bad_answer".
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A frame as it came, with the cursor to go on from."""

    frame: Frame
    cursor: str
    fields: dict[str, Any]


@dataclass(slots=True)
class _Place:
    """How far a watch has come, and how long it has been cut off."""

    after: str | None
    failures: int = 0
    since: float | None = None
    last: ClientError | None = field(default=None)


class Client:
    """Talks to one API replica.

    Args:
        url: where it listens, such as `http://127.0.0.1:8000`.
        give_up_after: seconds a watch tries to come back before it raises.

    Raises:
        ClientError: if the URL is not one of http or https.
    """

    def __init__(self, url: str, *, give_up_after: float = 30.0) -> None:
        parts = _parts(url.rstrip("/"))
        self.url = url.rstrip("/")
        self._shown = _shown(self.url)
        self._ws_url = urlunsplit(
            parts._replace(scheme=parts.scheme.replace("http", "ws"), path=parts.path + "/v1/ws")
        )
        # What listens on this machine is never behind a proxy, whatever the environment says.
        self._local = parts.hostname in LOOPBACK
        self._http = httpx.AsyncClient(base_url=self.url, trust_env=not self._local)
        self._give_up_after = give_up_after

    async def __aenter__(self) -> Self:
        """Return the client; leaving closes its connections."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Runs go on."""
        await self._http.aclose()

    async def agents(self) -> tuple[str, ...]:
        """Return the names of the agents that may be sent to. Raises ClientError."""
        answer = await self._call("GET", "/v1/agents")
        return _decoded(tuple[str, ...], answer.get("items") if isinstance(answer, dict) else None)

    async def thread(self, thread: str) -> Thread:
        """Return a thread. Raises ClientError."""
        return _decoded(Thread, await self._call("GET", f"/v1/threads/{_segment(thread)}"))

    async def message(self, message: str) -> Message:
        """Return a message and what has become of it. Raises ClientError."""
        return _decoded(Message, await self._call("GET", f"/v1/messages/{_segment(message)}"))

    async def run(self, run: str) -> Run:
        """Return a run. Raises ClientError."""
        return _decoded(Run, await self._call("GET", f"/v1/runs/{_segment(run)}"))

    async def send(
        self,
        thread: str | None,
        content: str,
        *,
        agent: str | None = None,
        key: str | None = None,
        on_busy: OnBusy | None = None,
    ) -> Receipt:
        """Send a message, at most once whatever happens to the connection.

        Args:
            thread: where to; None starts a thread with `agent`.
            content: the text.
            agent: makes the thread if there is none of that id.
            key: repeats a send of before; without it every call is a new message.
            on_busy: what it means to a busy thread.

        Raises:
            ClientError.
        """
        path = "/v1/messages" if thread is None else f"/v1/threads/{_segment(thread)}/messages"
        given = {"content": content, "agent": agent, "on_busy": on_busy}
        body = {name: value for name, value in given.items() if value is not None}
        return _decoded(Receipt, await self._call("POST", path, body=body, key=key or uuid4().hex))

    async def stop(
        self, *, run: str | None = None, thread: str | None = None, key: str | None = None, wait: float = 5.0
    ) -> StopReceipt:
        """Stop a run, or whatever runs on a thread; waits up to `wait` seconds for its end.

        Raises:
            ClientError.
        """
        path = f"/v1/threads/{_segment(thread)}/stop" if run is None else f"/v1/runs/{_segment(run)}/stop"
        body = {"wait": wait}
        return _decoded(
            StopReceipt, await self._call("POST", path, body=body, key=key or uuid4().hex, wait=wait)
        )

    async def watch(
        self, thread: str, *, after: str | None = None, until: Until | None = None
    ) -> AsyncGenerator[Watched, None]:
        """Yield a thread's frames, each once, over any number of connections.

        Args:
            thread: which.
            after: a cursor, "start", "head", or None for the start of the current or last run.
            until: "idle" ends it when the thread is idle or paused.

        Raises:
            ClientError: the server refused, or could not be reached for `give_up_after` seconds.
        """
        place = _Place(after)
        while True:
            try:
                async with aclosing(self._watched(thread, place, until=until)) as frames:
                    async for watched in frames:
                        yield watched
                        if until is not None and watched.frame.kind == "end":
                            return
            except ClientError as error:
                if not error.passing:
                    raise
                place.last = error
            await self._pause(place)

    async def _watched(
        self, thread: str, place: _Place, *, until: Until | None
    ) -> AsyncGenerator[Watched, None]:
        """Watch over one connection."""
        try:
            async with self._connected() as socket:
                ask = {"id": 1, "op": "watch", "thread": thread, "after": place.after, "until": until}
                await socket.send(
                    json.dumps({name: value for name, value in ask.items() if name != "until" or value})
                )
                async for text in socket:
                    watched = _heard(text, place)
                    if watched is not None:
                        place.after, place.failures, place.since = watched.cursor, 0, None
                        yield watched
        except InvalidHandshake as error:
            raise ClientError("unreachable", f"{self._shown} does not speak our WebSocket: {error}") from None
        except InvalidURI as error:
            raise ClientError("bad_url", f"{self._shown} is not a URL that we can use: {error.msg}") from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._unreachable(error) from None

    def _connected(self) -> connect:
        return connect(
            self._ws_url,
            subprotocols=[SUBPROTOCOL],
            proxy=None if self._local else True,
            max_size=FRAME_BYTES_MAX,
            open_timeout=5,
            ping_interval=10,
            ping_timeout=10,
            close_timeout=1,
        )

    async def _pause(self, place: _Place) -> None:
        """Wait before the next connection, or give up."""
        now = asyncio.get_running_loop().time()
        place.since = now if place.since is None else place.since
        if now - place.since > self._give_up_after:
            raise place.last or self._unreachable(None)
        delay = min(DELAY_MAX_S, DELAY_FIRST_S * 2.0 ** min(place.failures, 10))
        place.failures += 1
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _call(
        self, method: Method, path: str, *, body: Any = None, key: str | None = None, wait: float = 0.0
    ) -> Any:
        """Call, and repeat what may be repeated if the connection broke before there was an answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                answer = await self._http.request(
                    method, path, json=body, headers=headers, timeout=httpx.Timeout(wait + 15.0, connect=5.0)
                )
                return _answer(answer)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise self._unreachable(error) from None
            except httpx.TransportError as error:
                if not tries_left or (method != "GET" and key is None):
                    raise self._unreachable(error) from None
                await asyncio.sleep(DELAY_FIRST_S)
        raise self._unreachable(None)

    def _unreachable(self, error: Exception | None) -> ClientError:
        why = f" ({str(error) or type(error).__name__})" if error is not None else ""
        what = "start it with `threadhold dev` or `threadhold serve`, or name another with --url"
        return ClientError("unreachable", f"no answer from {self._shown}{why}; {what}")


def _parts(url: str) -> SplitResult:
    """Return the parts of a URL. Raises ClientError."""
    try:
        parts = urlsplit(url)
        # Reading the port and the host refuses what is no number, too large, or not a name.
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and httpx.URL(url).host:
            return parts
    except (ValueError, httpx.InvalidURL):
        pass
    raise ClientError("bad_url", f"{_shown(url)!r} is not a URL such as http://127.0.0.1:8000")


def _shown(url: str) -> str:
    """Return a URL for people to read: without the name and password that it may carry."""
    return re.sub(r"^(\w+://)?.*@", r"\1", url, flags=re.DOTALL)


def _segment(id: str | None) -> str:
    return quote(id or "", safe="")


def _decoded(type_: type[T], value: Any) -> T:
    try:
        return TypeAdapter(type_).validate_python(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        text = f"the server's answer is not a {type_.__name__} (at {where!r}); is it of another version?"
        raise ClientError("bad_answer", text) from None


def _answer(answer: httpx.Response) -> Any:
    """Return the body of a success; raise the typed error of anything else."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and body is not None:
        return body
    fields = body if isinstance(body, dict) else {}
    code = str(fields.get("code") or f"http_{answer.status_code}")
    message = str(
        fields.get("detail")
        or fields.get("title")
        or f"{_shown(str(answer.url))} answered {answer.status_code}"
    )
    raise ClientError(code, message, data=_data(fields), status=answer.status_code)


def _data(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what an error says beyond its text; it may stand in `data` or beside it."""
    nested = fields.get("data")
    known = {"type", "title", "status", "detail", "code", "message", "instance", "data"}
    beside = {name: value for name, value in fields.items() if name not in known}
    return beside | (nested if isinstance(nested, dict) else {})


def _heard(text: str | bytes, place: _Place) -> Watched | None:
    """Read one message of the socket: a frame, or something that moves or ends the watch."""
    try:
        heard: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ClientError(
            "bad_answer", "the server sent something over the WebSocket that is not JSON"
        ) from None
    match heard.get("op"):
        case "frame":
            fields = {name: value for name, value in heard.items() if name != "op"}
            return Watched(frame=_decoded(Frame, fields), cursor=fields["cursor"], fields=fields)
        case "result" if not heard.get("ok"):
            raise _refusal(heard.get("error") or {})
        case "result":
            # Cut off before its first frame, a watch goes on from where it began, not from a later head.
            place.after = (heard.get("result") or {}).get("cursor") or place.after
        case "watch_ended":
            raise _refusal(heard.get("error") or {})
        case "gap":
            place.after = heard.get("after") or place.after
            raise ClientError("overloaded", "the server could not keep up with this watch")
    return None


def _refusal(error: dict[str, Any]) -> ClientError:
    return ClientError(
        str(error.get("code") or "unknown"), str(error.get("message") or error), data=_data(error)
    )
