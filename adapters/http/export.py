"""REST: the record as lines of JSON, as one long response that says at its end whether it is all of it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final
from uuid import UUID

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadhold.adapters.http.auth import Caller
from threadhold.adapters.http.doors import Asker, Doors, TheDoors
from threadhold.adapters.http.ends import cancelled, departed
from threadhold.adapters.http.errors import refusal
from threadhold.adapters.http.problem import problems
from threadhold.runner.errors import Closed, Unavailable
from threadhold.runner.exports import CURSOR_PATTERN, ExportedFact, cut_line, end_line

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1")

MEDIA_TYPE: Final = "application/jsonl"
PIECE_CHARS: Final = 64 * 1024
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_SLOW: Final = {
    "code": "slow_consumer",
    "message": "you took nothing for too long; go on behind the last line that you have",
    "retryable": True,
    "data": {},
}
_LINE_SCHEMA: Final = {
    "description": "Each line is one of these.",
    "oneOf": [
        {
            "title": "A fact",
            "type": "object",
            "properties": {
                "thread": {"type": "string", "format": "uuid"},
                "seq": {"type": "integer"},
                "run": {"type": ["string", "null"], "format": "uuid"},
                "fence": {"type": "integer"},
                "kind": {"type": "string"},
                "at": {"type": "string", "format": "date-time"},
                "data": {"type": "object"},
                "admission": {"type": ["object", "null"]},
            },
        },
        {
            "title": "The last line, behind everything that was asked for",
            "type": "object",
            "properties": {"end": {"const": True}, "facts": {"type": "integer"}},
        },
        {
            "title": "The last line, where more would follow",
            "type": "object",
            "properties": {"end": {"const": False}, "error": {"type": "object"}},
        },
    ],
}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The lines.", "content": {MEDIA_TYPE: {"schema": _LINE_SCHEMA}}},
}


class Reading:
    """Reads the record, for as long as whoever asked may.

    Args:
        doors: of this app.
        caller: who asks.
        thread, run: what of the record; None for all of it.
        after: where to go on.
    """

    def __init__(
        self, doors: Doors, caller: Caller, *, thread: str | None, run: str | None, after: str | None
    ) -> None:
        self._doors = doors
        self._caller = caller
        self._of = {"thread": thread, "run": run}
        self._after = after

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yield lines, some KiB at once; the last one tells whether that was all.

        Raises:
            RunnerError, DoorError: nothing was yielded, and this is why.
        """
        lines: list[str] = []
        chars, count, begun = 0, 0, False
        try:
            async with aclosing(self._facts()) as facts:
                async for fact in facts:
                    if self._doors.drain.is_set():
                        raise Closed
                    lines.append(fact.line())
                    chars, count = chars + len(lines[-1]), count + 1
                    if chars >= PIECE_CHARS:
                        begun = True
                        yield "".join(lines)
                        lines, chars = [], 0
            lines.append(end_line(count))
        except Exception as error:
            if not begun:
                raise
            lines.append(cut_line(refusal(error).error()))
        yield "".join(lines)

    async def _facts(self) -> AsyncGenerator[ExportedFact, None]:
        """Yield facts, and look from time to time who asks by now."""
        due = time.monotonic() + self._doors.limits.recheck_s
        while True:
            by = self._caller.principal
            facts = self._doors.runner.export(by=by, after=self._after, **self._of)
            async with aclosing(facts):
                async for fact in facts:
                    self._after = fact.place.cursor()
                    yield fact
                    if time.monotonic() >= due:
                        break
                else:
                    return
            due = time.monotonic() + await self._look_again()

    async def _look_again(self) -> float:
        """Look who asks; return in how many seconds to look again."""
        try:
            await self._caller.look_again()
        except Unavailable:
            return self._doors.limits.recheck_s / 10
        return self._doors.limits.recheck_s


class Lines(Response):
    """A response that writes lines no faster than the peer takes them, until all is said or the peer goes."""

    media_type = MEDIA_TYPE

    def __init__(self, reading: Reading, doors: Doors, caller: Caller) -> None:
        super().__init__(headers=_HEADERS)
        # The length is not known.
        del self.headers["content-length"]
        self._reading = reading
        self._doors = doors
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._doors.quotas.watch(self._caller.principal):
            async with aclosing(self._reading.pieces()) as pieces:
                # What is refused is refused here, before anything is said.
                first = await anext(pieces)
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._respond(first, pieces, receive, send)

    async def _respond(
        self, first: str, pieces: AsyncGenerator[str, None], receive: Receive, send: Send
    ) -> None:
        writing = asyncio.create_task(self._write(first, pieces, send))
        gone = asyncio.create_task(departed(receive))
        try:
            await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(writing, gone)
        error = None if writing.cancelled() else writing.exception()
        if error is not None and not isinstance(error, OSError):
            raise error

    async def _write(self, first: str, pieces: AsyncGenerator[str, None], send: Send) -> None:
        try:
            await self._write_piece(first, send)
            async for piece in pieces:
                await self._write_piece(piece, send)
        except TimeoutError:
            self._doors.cut["export"] += 1
            log.warning("export_stalled", seconds=self._doors.limits.write_s)
            # It learns why if it reads on, and else the kernel drops it.
            body = cut_line(_SLOW).encode()
            await send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write_piece(self, text: str, send: Send) -> None:
        async with asyncio.timeout(self._doors.limits.write_s):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


@router.get("/export", status_code=200, response_class=Lines, responses=_ANSWERS | problems(404, 429))
async def export(
    request: Request,
    doors: TheDoors,
    by: Asker,
    thread: Annotated[UUID | None, Query(description="Only the log of this thread.")] = None,
    run: Annotated[UUID | None, Query(description="Only what this run left.")] = None,
    after: Annotated[
        str | None,
        Query(
            description="Go on behind this line, named as THREAD.SEQ.",
            json_schema_extra={"pattern": CURSOR_PATTERN},
        ),
    ] = None,
) -> Response:
    """Export facts as lines, by thread and seq: of a thread, of a run, or, for operators, of the whole workspace.

    The last line is `{"end": true, "facts": N}`. Without it something is missing: go on behind the last line that came.
    """
    caller = Caller(doors.authenticate, request.headers, by)
    reading = Reading(
        doors,
        caller,
        thread=None if thread is None else str(thread),
        run=None if run is None else str(run),
        after=after,
    )
    return Lines(reading, doors, caller)
