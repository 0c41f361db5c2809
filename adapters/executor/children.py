"""The child processes of an executor: each carries out one call at a time, and can be killed with all it has started.

Libraries for pools of processes kill one process, and not what a tool has started in turn; and they leave a child that
is busy behind when its owner is killed. These die with it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, Self

import structlog

from threadhold.adapters.executor.pipe import packed, received
from threadhold.runner.remote_records import LOST, TIMEOUT, RemoteCall, RemoteEnd

log = structlog.get_logger(__name__)

# A call whose time is over is first asked to end, and gets so many seconds to clean up after itself.
LETTING_GO_S: Final = 1.5
# A guard that takes longer than this to kill its child is killed, with the group that it leads.
GUARD_S: Final = 10.0
START_AGAIN_S: Final = 1.0
START_AGAIN_S_MAX: Final = 30.0


class ChildFailed(Exception):
    """A child could not be started, or could not load the app."""

    code = "child_failed"

    def __init__(self, why: str) -> None:
        super().__init__(f"no child process can carry out calls: {why}")


class Child:
    """One process.

    Args:
        process: its guard, which leads a group of its own.
        reader, writer: the line to it.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, target: str) -> Self:
        """Start one that has loaded the app.

        Raises:
            ChildFailed: it cannot.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "threadhold.adapters.executor.guard", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            # One that is there already ends with this.
            ours.close()
            raise
        child = cls(process, reader, writer)
        try:
            answer = await child.ask(target)
        except BaseException:
            await child.kill()
            raise
        if answer is None or "failed" in answer:
            await child.kill()
            raise ChildFailed("it died at once" if answer is None else answer["failed"])
        return child

    @property
    def alive(self) -> bool:
        """Whether it has not died, as far as is known."""
        return self._process.returncode is None

    async def ask(self, value: Any) -> Any:
        """Return its answer to a value; None if it has died."""
        try:
            self._writer.write(packed(value))
            await self._writer.drain()
            return await received(self._reader)
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def kill(self) -> None:
        """Have its guard kill it and what it has started, and return when it is gone."""
        self._writer.transport.abort()
        try:
            async with asyncio.timeout(GUARD_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


class Children:
    """The processes of one executor, made before they are needed and replaced when they die.

    Args:
        target: the app, as on the command line.
        count: how many.
        on_ready: called when one more can take a call.
    """

    def __init__(self, target: str, *, count: int, on_ready: Callable[[], None]) -> None:
        self._target = target
        self._count = count
        self._on_ready = on_ready
        self._idle: list[Child] = []
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> int:
        """How many calls can be carried out now."""
        for child in [child for child in self._idle if not child.alive]:
            log.warning("child_died")
            self._idle.remove(child)
            self._start_another()
        return len(self._idle)

    async def start(self) -> None:
        """Start them; return when the first one is ready, which shows that the app can be loaded.

        Raises:
            ChildFailed: it cannot.
        """
        self._idle.append(await Child.start(self._target))
        for _ in range(self._count - 1):
            self._start_another()

    def carry_out(self, call: RemoteCall) -> asyncio.Task[RemoteEnd]:
        """Carry out a call in a child that is ready, which is killed if it takes too long or the task is cancelled."""
        return asyncio.create_task(self._carry_out(self._idle.pop(), call))

    async def _carry_out(self, child: Child, call: RemoteCall) -> RemoteEnd:
        answer, in_time = None, True
        try:
            async with asyncio.timeout(call.left_s + LETTING_GO_S):
                answer = await child.ask(asdict(call) | {"roles": sorted(call.roles)})
        except TimeoutError:
            in_time = False
        finally:
            if answer is None or answer["outcome"] == "timeout":
                # Even if it has answered: a plain function that was given up goes on in its thread.
                await asyncio.shield(asyncio.ensure_future(child.kill()))
                self._start_another()
            else:
                self._idle.append(child)
        if answer is not None:
            return RemoteEnd(**answer)
        return LOST if in_time else TIMEOUT

    def _start_another(self) -> None:
        task = asyncio.create_task(self._start_one(), name="child")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_one(self) -> None:
        """Have one more ready, ever more slowly if they cannot start."""
        delay = START_AGAIN_S
        while True:
            try:
                self._idle.append(await Child.start(self._target))
            except (ChildFailed, OSError) as error:
                log.error("child_failed", detail=str(error)[:200])
                await asyncio.sleep(delay)
                delay = min(delay * 2, START_AGAIN_S_MAX)
            else:
                self._on_ready()
                return

    async def aclose(self) -> None:
        """Kill them; no call is under way any more."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.kill() for child in idle))
