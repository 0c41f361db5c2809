"""One WebSocket: many threads watched, several operations at once, everything bounded.

The peer's pace rules: what it does not take fills the outbox, a full outbox holds back its watches and its
operations, and a peer that takes nothing for long is cut off. No disconnect ever stops a run.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, aclosing
from typing import Final
from weakref import WeakValueDictionary

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from threadhold.adapters.http import ops, outgoing
from threadhold.adapters.http.auth import Caller
from threadhold.adapters.http.doors import Doors
from threadhold.adapters.http.ends import cancelled
from threadhold.adapters.http.errors import Unauthenticated, refusal
from threadhold.adapters.http.greeting import ABORT, BINARY, UNAUTHENTICATED, introduction
from threadhold.adapters.http.outbox import Outbox
from threadhold.adapters.http.watching import frames_while_allowed
from threadhold.fanout.cursor import Position
from threadhold.runner.errors import Overloaded, Unavailable
from threadhold.runner.records import Principal, Receipt, StopReceipt

log = structlog.get_logger(__name__)

# Why a socket is closed: a code of the WebSocket protocol, and a reason that programs may rely on.
FAILED: Final = (1011, "internal")
RESTART: Final = (1012, "draining")
TOO_SLOW: Final = (1013, "slow_consumer")


class Session:
    """Serves one accepted socket.

    Args:
        socket: the socket.
        doors: the Runner and the bounds.
        caller: who is at the other end, looked at again while the socket is open.
    """

    def __init__(self, socket: WebSocket, doors: Doors, caller: Caller) -> None:
        self._socket = socket
        self._runner = doors.runner
        self._drain = doors.drain
        self._limits = doors.limits
        self._quotas = doors.quotas
        self._cut = doors.cut
        self._caller = caller
        self._outbox = Outbox(items_max=doors.limits.outbox_frames, chars_max=doors.limits.outbox_chars)
        self._ops: set[asyncio.Task[None]] = set()
        self._watches: dict[str, asyncio.Task[None]] = {}
        # One lane per thread keeps its sends and watches in the order in which they came.
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def _by(self) -> Principal:
        return self._caller.principal

    async def serve(self) -> None:
        """Serve until the peer goes, is cut off or not known any more, or this process drains."""
        reading, writing = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        draining = asyncio.create_task(self._drain.wait())
        doubting = asyncio.create_task(self._doubt())
        try:
            await asyncio.wait({reading, writing, draining, doubting}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                await self._hang_up(writing.exception())
            elif reading.done():
                await self._part(reading, writing)
            elif draining.done():
                await self._say_goodbye(writing)
            else:
                await self._turn_away(doubting, reading, writing)
        finally:
            self._outbox.close()
            await cancelled(reading, writing, draining, doubting, *self._watches.values())
            await self._finish_ops()

    async def _read(self) -> bool:
        """Take messages until the peer is gone, or sends what is no text; tell whether it did."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return False
            text = message.get("text")
            if text is None:
                return True
            await self._take(text)

    async def _doubt(self) -> Unauthenticated:
        """Look at what the peer showed from time to time; return why it is not good any more."""
        pause_s = self._limits.recheck_s
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._limits.recheck_s
            try:
                await self._caller.look_again()
            except Unavailable:
                pause_s = self._limits.recheck_s / 10
            except Unauthenticated as error:
                return error

    async def _take(self, text: str) -> None:
        try:
            op = ops.parse_op(text)
        except ops.RefusedOp as refused:
            await self._outbox.put(outgoing.refusal_text(refused.id, refusal(refused.error)))
            return
        if len(self._ops) >= self._limits.ops:
            limit = self._limits.ops
            error = Overloaded(
                f"{limit} operations are in flight on this socket; wait for answers", limit=limit
            )
            await self._outbox.put(outgoing.refusal_text(op.id, refusal(error)))
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
            answer = outgoing.result_text(op.id, await self._result(op))
        except Exception as error:
            answer = outgoing.refusal_text(op.id, refusal(error))
        await self._outbox.put(answer)

    async def _result(self, op: ops.AnyOp) -> outgoing.Result:
        match op:
            case ops.Send():
                return await self._send(op)
            case ops.Stop():
                return await self._stop(op)
            case ops.Unwatch():
                return await self._unwatch(op.thread)
            case ops.Auth():
                # The socket already belongs to a principal, who may have got a newer token.
                return introduction(self._by if op.token is None else await self._caller.show(op.token))
            case ops.Answer():
                return await self._runner.answer(
                    op.request, op.decision.decision(), by=self._by, args_hash=op.decision.args_hash
                )
            case _:
                return outgoing.Pong()

    async def _send(self, op: ops.Send) -> Receipt:
        self._quotas.message(self._by)
        sending = self._runner.send(
            op.thread, op.content, by=self._by, key=op.key, agent=op.agent, on_busy=op.on_busy
        )
        if op.thread is None:
            return await sending
        async with self._lane(op.thread):
            return await sending

    async def _stop(self, op: ops.Stop) -> StopReceipt:
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
            with ExitStack() as held:
                held.enter_context(self._quotas.watch(self._by))
                answer = outgoing.result_text(
                    op.id, outgoing.Watching(thread=op.thread, cursor=begin.cursor())
                )
                await self._outbox.put(answer)
                watch = self._watches[op.thread] = asyncio.create_task(self._show(op, begin))
                release = held.pop_all().close
                # However it ends, and if it is cancelled before it begins.
                watch.add_done_callback(lambda _: release())

    async def _show(self, op: ops.Watch, begin: Position) -> None:
        """Pass a thread's frames on, no faster than the peer takes them, and say why when they end early."""
        frames = frames_while_allowed(
            self._runner,
            op.thread,
            begin,
            by=self._by,
            until=op.until,
            kinds=op.kinds,
            recheck_s=self._limits.recheck_s,
            look_again=self._known,
        )
        try:
            async with aclosing(frames):
                async for delivery in frames:
                    await self._outbox.put(outgoing.frame_text(delivery))
        except Exception as error:
            await self._outbox.put(outgoing.watch_ended_text(op.thread, refusal(error)))
        if self._watches.get(op.thread) is asyncio.current_task():
            del self._watches[op.thread]

    async def _known(self) -> Principal:
        """Return who is at the other end: what they showed is looked at for the whole socket at once."""
        return self._by

    async def _unwatch(self, thread: str) -> outgoing.Unwatched:
        async with self._lane(thread):
            return outgoing.Unwatched(thread=thread, watched=await self._end_watch(thread))

    async def _end_watch(self, thread: str) -> bool:
        watch = self._watches.pop(thread, None)
        if watch is None:
            return False
        await cancelled(watch)
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
            self._cut["websocket"] += 1
            log.warning("socket_stalled", principal=self._by.id, seconds=self._limits.write_s)
            await self._close(*TOO_SLOW)
        else:
            log.error("socket_failed", principal=self._by.id, exc_info=error)
            await self._close(*FAILED)
        abort: Callable[[], None] | None = self._socket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()

    async def _part(self, reading: asyncio.Task[bool], writing: asyncio.Task[None]) -> None:
        if (error := reading.exception()) is not None:
            await self._hang_up(error)
        elif reading.result():
            await self._flush(writing)
            await self._close(*BINARY)

    async def _turn_away(
        self,
        doubting: asyncio.Task[Unauthenticated],
        reading: asyncio.Task[bool],
        writing: asyncio.Task[None],
    ) -> None:
        """Part from a peer whose token is not good any more; what it asked for before is done, and nothing after."""
        await cancelled(reading, *self._watches.values())
        if (error := doubting.exception()) is not None:
            await self._hang_up(error)
            return
        self._outbox.put_last(outgoing.refusal_text(None, refusal(doubting.result())))
        await self._flush(writing)
        await self._close(*UNAUTHENTICATED)

    async def _say_goodbye(self, writing: asyncio.Task[None]) -> None:
        """Tell the peer to connect elsewhere, after the answers that it still waits for."""
        await cancelled(*self._watches.values())
        if self._ops:
            await asyncio.wait(self._ops, timeout=self._limits.goodbye_s / 4)
        self._outbox.put_last(outgoing.DRAIN_TEXT)
        await self._flush(writing)
        await self._close(*RESTART)

    async def _flush(self, writing: asyncio.Task[None]) -> None:
        self._outbox.close()
        await asyncio.wait({writing}, timeout=self._limits.goodbye_s / 4)
        await cancelled(writing)

    async def _close(self, code: int, reason: str) -> None:
        """Close the socket; with a peer that takes nothing that would wait for ever."""
        try:
            async with asyncio.timeout(self._limits.goodbye_s / 2):
                await self._socket.close(code, reason)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            return

    async def _finish_ops(self) -> None:
        """Let what was accepted be done although nobody waits for its answer; then give up on the rest."""
        if self._ops:
            await asyncio.wait(self._ops, timeout=self._limits.goodbye_s)
        # One of them may have begun a watch, which nobody would end.
        await cancelled(*self._ops, *self._watches.values())
