"""Starts the process that renews, talks to it, and starts it anew when it dies."""

import asyncio
import os
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from threadhold.claims.clock import now
from threadhold.claims.lines import Lines, encoded
from threadhold.claims.ports import Line

log = structlog.get_logger(__name__)

READ_BYTES: Final = 64 * 1024
RESTART_AFTER_S: Final = 0.1
DOUBLED_MAX: Final = 6
RESTART_AFTER_S_MAX: Final = 5.0
# Who has lived this long did not die of its start.
SETTLED_AFTER_S: Final = 10.0
END_WITHIN_S: Final = 2.0


class ChildProcess:
    """A `Link` to a process that reads lines from its standard input and ends with it.

    Args:
        command: starts it.
        first: the first line that it is given; here and not among the arguments, where everybody could read it.
        fds: files that it shares.
    """

    def __init__(self, command: Sequence[str], *, first: Line, fds: Sequence[int]) -> None:
        self._command = list(command)
        self._first = first
        self._fds = tuple(fds)
        self._hear: Callable[[Line], None] = lambda line: None
        self._greet: Callable[[], Sequence[Line]] = lambda: ()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = Lines()
        self._backlog: deque[bytes] = deque()
        self._started = 0.0
        self._deaths = 0
        self._restarting: asyncio.Task[None] | None = None
        self._dead: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self, *, hear: Callable[[Line], None], greet: Callable[[], Sequence[Line]]) -> None:
        """Start it; it takes lines from then on, and acts on them when it is ready."""
        self._hear, self._greet = hear, greet
        self._spawn()

    def send(self, line: Line) -> None:
        """Write a line at once: the loop may be blocked right after this. One that is not there yet is told later."""
        if self._process is None:
            return
        self._backlog.append(encoded(line))
        if len(self._backlog) == 1:
            self._flush()

    async def aclose(self) -> None:
        """Close its input, on which it ends, and see to it that it has ended."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait({self._restarting})
        # The task may have been cancelled before it began.
        self._bury()
        if self._process is not None:
            await self._end(self._process, within=END_WITHIN_S)

    def _spawn(self) -> None:
        self._started = now()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=self._fds,
                bufsize=0,
            )
        except OSError as error:
            log.error("keeper_not_started", error=type(error).__name__, detail=str(error)[:200])
            self._restart()
            return
        reader, writer = self._pipes(self._process)
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._lines = Lines()
        self._backlog = deque(encoded(line) for line in (self._first, *self._greet()))
        asyncio.get_running_loop().add_reader(reader, self._read)
        self._flush()

    def _read(self) -> None:
        assert self._process is not None
        reader, _ = self._pipes(self._process)
        try:
            data = os.read(reader, READ_BYTES)
        except BlockingIOError:
            return
        for line in self._lines.split(data):
            self._hear(line)
        if not data:
            self._restart()

    def _flush(self) -> None:
        """Write what the pipe takes, and the rest as soon as it takes more."""
        assert self._process is not None
        _, writer = self._pipes(self._process)
        loop = asyncio.get_running_loop()
        try:
            while self._backlog:
                piece = self._backlog[0]
                written = os.write(writer, piece)
                if written < len(piece):
                    self._backlog[0] = piece[written:]
                else:
                    self._backlog.popleft()
        except BlockingIOError:
            loop.add_writer(writer, self._flush)
            return
        except OSError:
            # It has died; its other pipe says so too, and whoever comes after it is told everything.
            self._backlog.clear()
        loop.remove_writer(writer)

    def _restart(self) -> None:
        self._dead, self._process = self._process, None
        if self._dead is not None:
            self._deafen(self._dead)
        self._backlog.clear()
        self._restarting = asyncio.get_running_loop().create_task(self._replace(), name="keeper-restart")

    async def _replace(self) -> None:
        """Start another at once, and ever more slowly when they die of their start."""
        self._deaths = 0 if now() - self._started > SETTLED_AFTER_S else self._deaths + 1
        code = self._bury()
        log.warning("keeper_restarted", exit_code=code, deaths=self._deaths)
        if self._deaths > 1:
            await asyncio.sleep(
                min(RESTART_AFTER_S_MAX, RESTART_AFTER_S * 2 ** min(self._deaths, DOUBLED_MAX))
            )
        self._spawn()

    def _bury(self) -> int | None:
        """Return the exit code of the process that has died, if one has that was not waited for."""
        dead, self._dead = self._dead, None
        return None if dead is None else _buried(dead)

    async def _end(self, process: subprocess.Popen[bytes], *, within: float) -> int:
        """Close the pipes of a process, wait for its end, and kill it if it does not come."""
        if self._process is process:
            self._process = None
            self._deafen(process)
        _close_pipes(process)
        try:
            return await asyncio.to_thread(process.wait, within)
        except subprocess.TimeoutExpired:
            process.kill()
            return await asyncio.to_thread(process.wait)

    def _deafen(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = self._pipes(process)
        loop.remove_reader(reader)
        loop.remove_writer(writer)

    @staticmethod
    def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdout.fileno(), process.stdin.fileno()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def _buried(dead: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process whose output has ended.

    It waits here, not in a thread of the pool, which tools may have taken in full.
    """
    _close_pipes(dead)
    dead.kill()
    return dead.wait()
