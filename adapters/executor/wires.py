"""Hints between workers and executors over Redis, in the background: ids and nothing else. They may be lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from threadhold.adapters.dispatch import JobQueue
from threadhold.adapters.wires import IN_FLIGHT_MAX, Publisher
from threadhold.runner.remote_records import RemoteCall

log = structlog.get_logger(__name__)

CLOSE_WAIT_S: Final = 1.0


class ExecutorWires:
    """The `RemoteWires` over Redis, and their other end.

    Args:
        publisher: reaches one process.
        queue: wakes an executor.
    """

    def __init__(self, *, publisher: Publisher, queue: JobQueue) -> None:
        self._publisher = publisher
        self.queue = queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._failing = False

    def asked(self, queue: str, id: str) -> None:
        """Wake an executor of a queue for a call."""
        self._spawn(self.queue.enqueue(thread=id, agent=queue, run=id))

    def dropped(self, executor: str, id: str) -> None:
        """Tell an executor that nobody waits for a call any more."""
        self._spawn(self._publisher.publish(executor_channel(executor), id.encode()))

    def ended(self, call: RemoteCall) -> None:
        """Tell the worker that asked for a call that it has ended."""
        self._spawn(self._publisher.publish(asker_channel(call.asked_by), call.id.encode()))

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= IN_FLIGHT_MAX:
            sending.close()
            return
        task = asyncio.create_task(self._sent(sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sent(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
            self._failing = False
        except Exception as error:
            if not self._failing:
                log.warning("nudges_lost", error=type(error).__name__, detail=str(error)[:200])
            self._failing = True

    async def aclose(self) -> None:
        """Let what is under way finish, for at most a second."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_WAIT_S)
        for task in self._tasks:
            task.cancel()


def executor_channel(executor: str) -> str:
    """Return the channel on which an executor hears that nobody waits for one of its calls."""
    return f"x:{executor}"


def asker_channel(worker: str) -> str:
    """Return the channel on which a worker hears that a call it asked for has ended."""
    return f"c:{worker}"
