"""Server-sent events: a thread's frames as one endless, or ending, response."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadhold.adapters.http.auth import Caller
from threadhold.adapters.http.doors import Asker, Doors, TheDoors
from threadhold.adapters.http.ends import cancelled, departed
from threadhold.adapters.http.errors import refusal
from threadhold.adapters.http.outbox import Outbox
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import CURSOR_SCHEMA, KINDS_SCHEMA
from threadhold.adapters.http.watching import frames_while_allowed
from threadhold.fanout.cursor import InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery
from threadhold.runner.content import checked_kinds
from threadhold.runner.records import Principal, Until
from threadhold.runner.service import Runner

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1")

_RETRY: Final = "retry: 2000\n\n"
_PING: Final = ": ping\n\n"
_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_DRAIN: Final = {
    "code": "draining",
    "message": "this process is shutting down; connect again with your last id",
}
_SLOW: Final = {
    "code": "slow_consumer",
    "message": "you took nothing for too long; connect again with your last id",
    "retryable": True,
    "data": {},
}
_EVENT_SCHEMA: Final = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The frames.", "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}}},
    204: {"description": "Nothing is left to come: stop connecting again."},
}


def frame_event(delivery: Delivery) -> str:
    """Return a frame as an event: its cursor as id, its kind as event, itself as data."""
    return f"id: {delivery.position.cursor()}\nevent: {delivery.frame.kind}\ndata: {delivery.json()}\n\n"


def other_event(name: str, data: dict[str, Any]) -> str:
    """Return an event that is not a frame; without an id, as it does not move the client's cursor."""
    return f"event: {name}\ndata: {json.dumps(data, default=str)}\n\n"


class EventStream(Response):
    """A response that writes frames as they come, until they end, the peer goes or the process drains.

    All frames that wait are written in one piece. Frames are fetched no faster than the peer takes them.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: Callable[[], AsyncGenerator[Delivery, None]], doors: Doors, *, by: Principal
    ) -> None:
        super().__init__(headers=_HEADERS)
        # The length is not known, and the body comes in pieces.
        del self.headers["content-length"]
        self._frames = frames
        self._by = by
        self._drain = doors.drain
        self._limits = doors.limits
        self._quotas = doors.quotas
        self._cut_off = doors.cut
        self._outbox = Outbox(items_max=doors.limits.outbox_frames, chars_max=doors.limits.outbox_chars)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._quotas.watch(self._by):
            await self._respond(send, receive)

    async def _respond(self, send: Send, receive: Receive) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.create_task(departed(receive))
        try:
            error = await self._stream(send, gone)
            if isinstance(error, TimeoutError):
                await self._cut(send, gone)
            elif error is not None and not isinstance(error, OSError):
                raise error
        finally:
            await cancelled(gone)

    async def _stream(self, send: Send, gone: asyncio.Task[None]) -> BaseException | None:
        """Write until there is no more or the peer goes; return what ended the writing before."""
        writing = asyncio.create_task(self._write(send))
        others = asyncio.create_task(self._fetch()), asyncio.create_task(self._say_goodbye())
        try:
            await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(writing, *others)
        return None if writing.cancelled() else writing.exception()

    async def _cut(self, send: Send, gone: asyncio.Task[None]) -> None:
        """Part from a peer that takes nothing: it learns why if it reads on, and else the kernel drops it."""
        self._cut_off["sse"] += 1
        log.warning("stream_stalled", seconds=self._limits.write_s)
        body = other_event("error", _SLOW).encode()
        saying = asyncio.ensure_future(send({"type": "http.response.body", "body": body, "more_body": False}))
        try:
            await asyncio.wait({saying, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(saying)

    async def _fetch(self) -> None:
        """Move frames into the outbox; what goes wrong is told as the last event."""
        try:
            async with aclosing(self._frames()) as frames:
                async for delivery in frames:
                    await self._outbox.put(frame_event(delivery))
        except Exception as error:
            self._outbox.put_last(other_event("error", refusal(error).error()))
        self._outbox.close()

    async def _say_goodbye(self) -> None:
        await self._drain.wait()
        self._outbox.put_last(other_event("drain", _DRAIN))
        self._outbox.close()

    async def _write(self, send: Send) -> None:
        """Write what is in the outbox, and a sign of life when there is nothing for long."""
        await self._write_piece(send, _RETRY)
        while True:
            try:
                async with asyncio.timeout(self._limits.ping_s):
                    events = await self._outbox.take()
            except TimeoutError:
                await self._write_piece(send, _PING)
                continue
            if not events:
                break
            await self._write_piece(send, "".join(events))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write_piece(self, send: Send, text: str) -> None:
        async with asyncio.timeout(self._limits.write_s):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


@router.get(
    "/threads/{thread}/frames",
    status_code=200,
    response_class=EventStream,
    responses=_ANSWERS | problems(404, 429),
)
async def watch(
    thread: str,
    request: Request,
    doors: TheDoors,
    by: Asker,
    after: Annotated[
        str | None, Query(description="A cursor, `start` or `head`.", json_schema_extra=CURSOR_SCHEMA)
    ] = None,
    until: Annotated[
        Until | None, Query(description="`idle` ends the stream when the thread is idle or paused.")
    ] = None,
    kinds: Annotated[
        list[str] | None,
        Query(
            description="Which frames to send, such as `fact,draft`; all if it is left out. "
            "`head`, `end` and the gaps that concern these kinds always come, and `attempt` with the live ones.",
            json_schema_extra=KINDS_SCHEMA,
        ),
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Wins over `after`, if it is a cursor.")] = None,
) -> Response:
    """Stream a thread's frames across its runs: each once, in order, without an unmarked gap."""
    runner = doors.runner
    chosen = None if kinds is None else checked_kinds(",".join(kinds).split(","))
    seen = _cursor(last_event_id)
    begin = await runner.position(thread, by=by, after=last_event_id if seen else after)
    # An EventSource connects again after a regular end; only this status makes it stop.
    if seen and until == "idle" and await _nothing_left(runner, thread, seen, by=by):
        return Response(status_code=204)
    caller = Caller(doors.authenticate, request.headers, by)
    return EventStream(
        lambda: frames_while_allowed(
            runner,
            thread,
            begin,
            by=by,
            until=until,
            kinds=chosen,
            recheck_s=doors.limits.recheck_s,
            look_again=caller.look_again,
        ),
        doors,
        by=by,
    )


def _cursor(text: str | None) -> Position | None:
    """Return the position that a client says it has seen; browsers and proxies send other things as well."""
    try:
        return parse_cursor(text) if text else None
    except InvalidCursor:
        return None


async def _nothing_left(runner: Runner, thread: str, seen: Position, *, by: Principal) -> bool:
    now = await runner.thread(thread, by=by)
    return now.state != "busy" and now.seq <= seen.seq
