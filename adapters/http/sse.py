"""Server-sent events: a thread's frames as one endless, or ending, response."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadhold.adapters.http.doors import Asker, Doors, TheDoors
from threadhold.adapters.http.errors import refusal
from threadhold.adapters.http.outbox import Outbox
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import CURSOR_SCHEMA
from threadhold.adapters.http.watching import frames_while_allowed
from threadhold.fanout.cursor import InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery
from threadhold.runner.records import Principal, Until
from threadhold.runner.service import Runner

router = APIRouter(prefix="/v1")

_RETRY: Final = "retry: 2000\n\n"
_PING: Final = ": ping\n\n"
_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_DRAIN: Final = {
    "code": "draining",
    "message": "this process is shutting down; connect again with your last id",
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

    def __init__(self, frames: Callable[[], AsyncGenerator[Delivery, None]], doors: Doors) -> None:
        super().__init__(headers=_HEADERS)
        # The length is not known, and the body comes in pieces.
        del self.headers["content-length"]
        self._frames = frames
        self._drain = doors.drain
        self._limits = doors.limits
        self._outbox = Outbox(items_max=doors.limits.outbox_frames, chars_max=doors.limits.outbox_chars)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        writing = asyncio.create_task(self._write(send))
        others = {
            asyncio.create_task(self._fetch()),
            asyncio.create_task(self._say_goodbye()),
        }
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (tasks := {writing, gone, *others}):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            _say_unless_gone(error)

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
        taking = asyncio.create_task(self._outbox.take())
        try:
            while True:
                done, _ = await asyncio.wait({taking}, timeout=self._limits.ping_s)
                if not done:
                    await self._write_piece(send, _PING)
                    continue
                if not (events := taking.result()):
                    break
                await self._write_piece(send, "".join(events))
                taking = asyncio.create_task(self._outbox.take())
        finally:
            taking.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write_piece(self, send: Send, text: str) -> None:
        async with asyncio.timeout(self._limits.write_s):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _say_unless_gone(error: BaseException) -> None:
    """Raise what ended the writing, unless it was a peer that went away or takes nothing any more."""
    if not isinstance(error, OSError | TimeoutError):
        raise error


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@router.get(
    "/threads/{thread}/frames",
    status_code=200,
    response_class=EventStream,
    responses=_ANSWERS | problems(404),
)
async def watch(
    thread: str,
    doors: TheDoors,
    by: Asker,
    after: Annotated[
        str | None, Query(description="A cursor, `start` or `head`.", json_schema_extra=CURSOR_SCHEMA)
    ] = None,
    until: Annotated[
        Until | None, Query(description="`idle` ends the stream when the thread is idle.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Wins over `after`, if it is a cursor.")] = None,
) -> Response:
    """Stream a thread's frames across its runs: each once, in order, without an unmarked gap."""
    runner = doors.runner
    seen = _cursor(last_event_id)
    begin = await runner.position(thread, by=by, after=last_event_id if seen else after)
    # An EventSource connects again after a regular end; only this status makes it stop.
    if seen and until == "idle" and await _nothing_left(runner, thread, seen, by=by):
        return Response(status_code=204)
    recheck_s = doors.limits.recheck_s
    return EventStream(
        lambda: frames_while_allowed(runner, thread, begin, by=by, until=until, recheck_s=recheck_s), doors
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
