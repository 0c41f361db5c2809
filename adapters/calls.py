"""The calls of the HTTP doors, as methods: each calls, decodes, and repeats what may be repeated."""

import asyncio
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import urlunsplit
from uuid import uuid4

import httpx

from threadhold.adapters.replies import ClientError, answered, decoded, items_of, parts_of, segment, shown
from threadhold.runner.decisions import Decision
from threadhold.runner.records import (
    Message,
    OnBusy,
    Outcome,
    Receipt,
    Request,
    Run,
    StopReceipt,
    Thread,
    Why,
    WorkerRecord,
)

TRIES_MAX: Final = 3
DELAY_FIRST_S: Final = 0.1
STOP_ALL_S: Final = 60.0
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKEN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "DELETE"]


class Calls:
    """Calls one API replica.

    Args:
        url: where it listens, such as `http://127.0.0.1:8000`.
        token: says who calls, where the server asks for that.
        give_up_after: seconds a watch tries to come back before it raises.

    Raises:
        ClientError: if the URL is not one of http or https, or the token cannot be sent.
    """

    def __init__(self, url: str, *, token: str | None = None, give_up_after: float = 30.0) -> None:
        parts = parts_of(url.rstrip("/"))
        if token is not None and _TOKEN.fullmatch(token) is None:
            # The libraries would refuse it as well, but say what it is.
            raise ClientError("bad_token", "the token cannot be sent in a header; is there a line end in it?")
        self.url = url.rstrip("/")
        self._shown = shown(self.url)
        self._ws_url = urlunsplit(
            parts._replace(scheme=parts.scheme.replace("http", "ws"), path=parts.path + "/v1/ws")
        )
        # What listens on this machine is never behind a proxy, whatever the environment says.
        self._local = parts.hostname in LOOPBACK
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=self.url, headers=self._headers, trust_env=not self._local)
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
        return tuple(await self._items(str, "/v1/agents"))

    async def threads(self, *, before: str | None = None, limit: int = 50) -> list[Thread]:
        """Return threads by id, the highest first, below `before`, at most `limit` (1 to 100). Raises ClientError."""
        return await self._items(Thread, "/v1/threads", query_of(cursor=before, limit=limit))

    async def thread(self, thread: str) -> Thread:
        """Return a thread. Raises ClientError."""
        return decoded(Thread, await self._call("GET", f"/v1/threads/{segment(thread)}"))

    async def message(self, message: str) -> Message:
        """Return a message and what has become of it. Raises ClientError."""
        return decoded(Message, await self._call("GET", f"/v1/messages/{segment(message)}"))

    async def run(self, run: str) -> Run:
        """Return a run. Raises ClientError."""
        return decoded(Run, await self._call("GET", f"/v1/runs/{segment(run)}"))

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
        path = "/v1/messages" if thread is None else f"/v1/threads/{segment(thread)}/messages"
        given = {"content": content, "agent": agent, "on_busy": on_busy}
        body = {name: value for name, value in given.items() if value is not None}
        return decoded(Receipt, await self._call("POST", path, body=body, key=key or uuid4().hex))

    async def stop(
        self, *, run: str | None = None, thread: str | None = None, key: str | None = None, wait: float = 5.0
    ) -> StopReceipt:
        """Stop a run, or whatever runs on a thread; waits up to `wait` seconds for its end.

        Raises:
            ClientError.
        """
        path = f"/v1/threads/{segment(thread)}/stop" if run is None else f"/v1/runs/{segment(run)}/stop"
        body = {"wait": wait}
        return decoded(
            StopReceipt, await self._call("POST", path, body=body, key=key or uuid4().hex, wait=wait)
        )

    async def runs(
        self,
        *,
        status: Sequence[str] = (),
        agent: str | None = None,
        principal: str | None = None,
        thread: str | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Return the newest runs that may be seen, at most `limit` (1 to 100). Raises ClientError."""
        query = query_of(status=list(status), agent=agent, principal=principal, thread=thread, limit=limit)
        return await self._items(Run, "/v1/runs", query)

    async def why(self, run: str) -> Why:
        """Return why a run stands where it stands. Raises ClientError."""
        return decoded(Why, await self._call("GET", f"/v1/runs/{segment(run)}/why"))

    async def requests(
        self, *, status: str = "open", thread: str | None = None, limit: int = 50
    ) -> list[Request]:
        """Return the newest requests that may be seen, at most `limit` (1 to 100). Raises ClientError."""
        return await self._items(Request, "/v1/requests", query_of(status=status, thread=thread, limit=limit))

    async def request(self, request: str) -> Request:
        """Return a request. Raises ClientError."""
        return decoded(Request, await self._call("GET", f"/v1/requests/{segment(request)}"))

    async def answer(self, request: str, decision: Decision, *, args_hash: str | None = None) -> Outcome:
        """Answer a request, once, whatever happens to the connection.

        Args:
            request: its id.
            decision: what is decided.
            args_hash: of the arguments that were looked at.

        Raises:
            ClientError.
            InvalidInput: the decision's fields do not fit its kind.
        """
        body = decision.data() | ({} if args_hash is None else {"args_hash": args_hash})
        path = f"/v1/requests/{segment(request)}/answer"
        return decoded(Outcome, await self._call("POST", path, body=body, repeatable=True))

    async def stop_all(self, *, agent: str | None = None, principal: str | None = None) -> list[StopReceipt]:
        """Ask runs in progress to stop, newest first, at most 10,000; does not wait for their ends.

        Args:
            agent: only those of this agent.
            principal: only those that act for this principal.

        Raises:
            ClientError.
        """
        # Each run takes the server several round trips to its database.
        answer = await self._call(
            "POST", "/v1/stop", body=query_of(agent=agent, principal=principal), wait=STOP_ALL_S
        )
        return items_of(StopReceipt, answer)

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers that were seen lately. Raises ClientError."""
        return await self._items(WorkerRecord, "/v1/workers")

    async def drain(self, worker: str) -> list[str]:
        """Ask workers of this id or name to hand their runs over and leave. Raises ClientError."""
        path = f"/v1/workers/{segment(worker)}/drain"
        return items_of(str, await self._call("POST", path, repeatable=True))

    async def _items(self, type_: type[T], path: str, query: dict[str, Any] | None = None) -> list[T]:
        return items_of(type_, await self._call("GET", path, query=query))

    async def _call(
        self,
        method: Method,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        repeatable: bool = False,
        wait: float = 0.0,
    ) -> Any:
        """Call, and repeat what may be repeated if the connection broke before there was an answer."""
        repeatable = repeatable or method == "GET" or key is not None
        headers = {} if key is None else {"Idempotency-Key": key}
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                answer = await self._http.request(
                    method,
                    path,
                    params=query,
                    json=body,
                    headers=headers,
                    timeout=httpx.Timeout(wait + 15.0, connect=5.0),
                )
                return answered(answer)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise self._unreachable(error) from None
            except httpx.TransportError as error:
                if not tries_left or not repeatable:
                    raise self._unreachable(error) from None
                await asyncio.sleep(DELAY_FIRST_S)
        raise self._unreachable(None)

    def _unreachable(self, error: Exception | None) -> ClientError:
        why = f" ({str(error) or type(error).__name__})" if error is not None else ""
        what = "start it with `threadhold dev` or `threadhold serve`, or name another with --url"
        return ClientError("unreachable", f"no answer from {self._shown}{why}; {what}")


def query_of(**given: Any) -> dict[str, Any]:
    """Return what was given; what was not is left out, as a server of an earlier version may not know it."""
    return {name: value for name, value in given.items() if value not in (None, [])}
