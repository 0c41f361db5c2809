"""Hints to other processes over Redis, in the background: a commit never waits for them, and a loss costs only time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import structlog

from threadhold.adapters.dispatch import JobQueue
from threadhold.fanout.ports import LiveLog
from threadhold.runner.records import Nudge

log = structlog.get_logger(__name__)

IN_FLIGHT_MAX: Final = 5_000
CLOSE_WAIT_S: Final = 1.0


class Publisher(Protocol):
    """Publishes to a named channel."""

    async def publish(self, name: str, payload: bytes) -> None:
        """Publish, or raise within a second."""
        ...


class RedisWires:
    """The `Wires` over Redis.

    Args:
        live: rings the doorbells of threads.
        publisher: pokes workers.
        queue: wakes a worker for a pending run.
    """

    def __init__(self, *, live: LiveLog, publisher: Publisher, queue: JobQueue) -> None:
        self._live = live
        self._publisher = publisher
        self._queue = queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._rings: dict[str, int] = {}
        self._failing = False

    def announce(self, nudge: Nudge) -> None:
        """Wake a worker for a new run, poke the holder, ring the thread's watchers."""
        if nudge.agent is not None and nudge.run is not None:
            self._spawn(self._queue.enqueue(thread=nudge.thread, agent=nudge.agent, run=nudge.run))
        if nudge.holder is not None:
            self._spawn(self._publisher.publish(worker_channel(nudge.holder), nudge.thread.encode()))
        self.ring(nudge.thread, nudge.seq)

    def ring(self, thread: str, seq: int) -> None:
        """Ring the thread's watchers soon; while one ring is under way only the newest seq is kept."""
        idle = thread not in self._rings
        self._rings[thread] = max(seq, self._rings.get(thread, 0))
        if idle and not self._spawn(self._ring(thread)):
            del self._rings[thread]

    async def _ring(self, thread: str) -> None:
        rung = 0
        try:
            while (seq := self._rings[thread]) > rung:
                await self._live.ring(thread, seq)
                rung = seq
        finally:
            del self._rings[thread]

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> bool:
        if len(self._tasks) >= IN_FLIGHT_MAX:
            sending.close()
            return False
        task = asyncio.create_task(self._sent(sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _sent(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except Exception as error:
            if not self._failing:
                log.warning("nudges_lost", error=type(error).__name__, detail=str(error)[:200])
            self._failing = True
        else:
            self._failing = False

    async def aclose(self) -> None:
        """Let what is under way finish, for at most a second."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_WAIT_S)
        for task in self._tasks:
            task.cancel()


def worker_channel(worker: str) -> str:
    """Return the channel on which a worker hears that one of its threads has news."""
    return f"w:{worker}"
