"""One WebSocket: many threads watched, several operations at once, everything bounded.

The peer's pace rules: what it does not take fills the outbox, a full outbox holds back its watches and its
operations, and a peer that takes nothing for long is cut off. No disconnect ever stops a run.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from threadhold.adapters.http import ops
from threadhold.adapters.http.doors import Doors
from threadhold.adapters.http.errors import NotSupported, refusal
from threadhold.adapters.http.outbox import Outbox
from threadhold.adapters.http.watching import frames_while_allowed
from threadhold.fanout.cursor import Position
from threadhold.runner.errors import Overloaded
from threadhold.runner.records import Principal, Until

log = structlog.get_logger(__name__)

BINARY: Final = 1003
FAILED: Final = 1011
RESTART: Final = 1012
TOO_SLOW: Final = 1013
ABORT: Final = "threadhold.abort"
"""The ASGI extension with which our server lets a socket be dropped without waiting for its peer."""


class Session:
    """Serves one accepted socket.

    Args:
        socket: the socket.
        doors: the Runner and the bounds.
        by: who is at the other end.
    """

    def __init__(self, socket: WebSocket, doors: Doors, by: Principal) -> None:
        self._socket = socket
        self._runner = doors.runner
        self._drain = doors.drain
        self._limits = doors.limits
        self._by = by
        self._outbox = Outbox(items_max=doors.limits.outbox_frames, chars_max=doors.limits.outbox_chars)
        self._ops: set[asyncio.Task[None]] = set()
        self._watches: dict[str, asyncio.Task[None]] = {}
        # One lane per thread keeps its sends and watches in the order in which they came.
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def serve(self) -> None:
        """Serve until the peer goes, is cut off, or this process drains."""
        reading, writing = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        draining = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait({reading, writing, draining}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                await self._hang_up(writing.exception())
            elif reading.done():
                await self._part(reading, writing)
            else:
                await self._say_goodbye(writing)
        finally:
            self._outbox.close()
            await _cancelled(reading, writing, draining, *self._watches.values())
            await self._finish_ops()

    async def _read(self) -> int | None:
        """Take messages until the peer is gone (None) or sends what it must not (the close code)."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return None
            text = message.get("text")
            if text is None:
                return BINARY
            await self._take(text)

    async def _take(self, text: str) -> None:
        try:
            op = ops.parse_op(text)
        except ops.RefusedOp as refused:
            await self._outbox.put(ops.refusal_text(refused.id, refusal(refused.error)))
            return
        if len(self._ops) >= self._limits.ops:
            limit = self._limits.ops
            error = Overloaded(
                f"{limit} operations are in flight on this socket; wait for answers", limit=limit
            )
            await self._outbox.put(ops.refusal_text(op.id, refusal(error)))
            return
        task = asyncio.create_task(self._do(op))
        self._ops.add(task)
        task.add_done_callback(self._ops.discard)

    async def _do(self, op: ops.AnyOp) -> None:
        """Do one operation and answer it, whatever becomes of it."""
        try:
            if isinstance(op, ops.Watch):
                # It answers for itself: its answer must come before its first frame.
                await self._watch(op)
                return
            answer = ops.result_text(op.id, await self._result(op))
        except Exception as error:
            answer = ops.refusal_text(op.id, refusal(error))
        await self._outbox.put(answer)

    async def _result(self, op: ops.AnyOp) -> Any:
        match op:
            case ops.Send():
                return await self._send(op)
            case ops.Stop():
                return await self._stop(op)
            case ops.Unwatch():
                return await self._unwatch(op.thread)
            case ops.Auth():
                # The socket already belongs to a principal, so there is nothing left to prove.
                return {"principal": self._by.id, "workspace": self._by.workspace}
            case ops.Answer():
                raise NotSupported(
                    "this server opens no requests yet, so there is none to answer", op="answer"
                )
            case _:
                return {}

    async def _send(self, op: ops.Send) -> Any:
        sending = self._runner.send(
            op.thread, op.content, by=self._by, key=op.key, agent=op.agent, on_busy=op.on_busy
        )
        if op.thread is None:
            return await sending
        async with self._lane(op.thread):
            return await sending

    async def _stop(self, op: ops.Stop) -> Any:
        if op.thread is not None:
            # A stop comes after what was sent before it, and holds back nothing that is sent after it.
            async with self._lane(op.thread):
                pass
        return await self._runner.stop(run=op.run, thread=op.thread, key=op.key, by=self._by, wait=op.wait)

    async def _watch(self, op: ops.Watch) -> None:
        async with self._lane(op.thread):
            begin = await self._runner.position(op.thread, by=self._by, after=op.after)
            await self._end_watch(op.thread)
            if len(self._watches) >= self._limits.watches:
                limit = self._limits.watches
                raise Overloaded(f"this socket watches {limit} threads; unwatch one first", limit=limit)
            await self._outbox.put(ops.result_text(op.id, {"thread": op.thread, "cursor": begin.cursor()}))
            self._watches[op.thread] = asyncio.create_task(self._show(op.thread, begin, op.until))

    async def _show(self, thread: str, begin: Position, until: Until | None) -> None:
        """Pass a thread's frames on, no faster than the peer takes them, and say why when they end early."""
        frames = frames_while_allowed(
            self._runner, thread, begin, by=self._by, until=until, recheck_s=self._limits.recheck_s
        )
        try:
            async with aclosing(frames):
                async for delivery in frames:
                    await self._outbox.put(ops.frame_text(delivery))
        except Exception as error:
            await self._outbox.put(ops.watch_ended_text(thread, refusal(error)))
        if self._watches.get(thread) is asyncio.current_task():
            del self._watches[thread]

    async def _unwatch(self, thread: str) -> dict[str, Any]:
        async with self._lane(thread):
            return {"thread": thread, "watched": await self._end_watch(thread)}

    async def _end_watch(self, thread: str) -> bool:
        watch = self._watches.pop(thread, None)
        if watch is None:
            return False
        await _cancelled(watch)
        return True

    def _lane(self, thread: str) -> asyncio.Lock:
        lane = self._lanes.get(thread)
        if lane is None:
            lane = self._lanes[thread] = asyncio.Lock()
        return lane

    async def _write(self) -> None:
        """Write what is in the outbox until it is closed and empty.

        Raises:
            TimeoutError: the peer takes nothing any more.
            WebSocketDisconnect: it is gone.
        """
        while texts := await self._outbox.take():
            for text in texts:
                async with asyncio.timeout(self._limits.write_s):
                    await self._socket.send_text(text)

    async def _hang_up(self, error: BaseException | None) -> None:
        """Part from a peer that cannot be written to."""
        if isinstance(error, WebSocketDisconnect):
            return
        if isinstance(error, TimeoutError):
            log.warning("socket_stalled", principal=self._by.id, seconds=self._limits.write_s)
            await self._close(TOO_SLOW, "too slow")
        else:
            log.error("socket_failed", principal=self._by.id, exc_info=error)
            await self._close(FAILED, "internal error")
        abort: Callable[[], None] | None = self._socket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()

    async def _part(self, reading: asyncio.Task[int | None], writing: asyncio.Task[None]) -> None:
        if (error := reading.exception()) is not None:
            await self._hang_up(error)
        elif (code := reading.result()) is not None:
            await self._flush(writing)
            await self._close(code, "only text frames")

    async def _say_goodbye(self, writing: asyncio.Task[None]) -> None:
        """Tell the peer to connect elsewhere, after the answers that it still waits for."""
        await _cancelled(*self._watches.values())
        if self._ops:
            await asyncio.wait(self._ops, timeout=self._limits.goodbye_s / 4)
        self._outbox.put_last(ops.DRAIN_TEXT)
        await self._flush(writing)
        await self._close(RESTART, "restart")

    async def _flush(self, writing: asyncio.Task[None]) -> None:
        self._outbox.close()
        await asyncio.wait({writing}, timeout=self._limits.goodbye_s / 4)
        await _cancelled(writing)

    async def _close(self, code: int, reason: str) -> None:
        """Close the socket; with a peer that takes nothing that would wait for ever."""
        try:
            async with asyncio.timeout(1.0):
                await self._socket.close(code, reason)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            return

    async def _finish_ops(self) -> None:
        """Let what was accepted be done although nobody waits for its answer; then give up on the rest."""
        if self._ops:
            await asyncio.wait(self._ops, timeout=self._limits.goodbye_s)
        await _cancelled(*self._ops)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
