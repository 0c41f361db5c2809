"""The processes of a world: replicas and workers, which are killed, frozen, told to end, and started again."""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from time import monotonic
from typing import Final

from tests.chaos.databases import family
from tests.support.processes import END_S_MAX, START_S_MAX, Process

APP: Final = str(Path(__file__).parent / "app.py") + ":app"
READY: Final = {"serve": '"api_ready"', "worker": '"worker_ready"'}
# From being told to end until a worker has to be gone: its grace and what it may take to give runs back.
LEAVE_S_MAX: Final = 30.0
TRACEBACK: Final = "Traceback (most recent call last)"
TRACEBACK_LINES_MAX: Final = 200
REPORT_CHARS_MAX: Final = 20_000


class NotReady(Exception):
    """A process did not say in time that it is ready."""


class Member:
    """A replica or a worker that comes back whatever is done to it.

    Args:
        name: such as "worker1".
        args: its command.
        env: its environment.
        folder: where its logs go.
    """

    def __init__(self, name: str, args: list[str], *, env: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._args = args
        self._env = env
        self._folder = folder
        self._lives = 0
        self._process: Process | None = None
        self.lock = asyncio.Lock()

    @property
    def pid(self) -> int:
        """The process id of its present life."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin its next life."""
        self._lives += 1
        log = self._folder / f"{self.name}.{self._lives}.log"
        self._process = Process(self._args, env=self._env, log=log)

    async def ready(self) -> None:
        """Return when it says that it is ready; starts it again when it could not start, as a supervisor would.

        Raises:
            NotReady: if it does not say so within `START_S_MAX` seconds.
        """
        end = monotonic() + START_S_MAX
        while True:
            assert self._process is not None
            if READY[self._args[0]] in self._process.text():
                return
            if monotonic() > end:
                raise NotReady(f"not ready within {START_S_MAX:.0f} s: {self.last_words()}")
            if self._process.ended() is not None:
                self.start()
            await asyncio.sleep(0.1)

    def ended_by_itself(self) -> bool:
        """Whether its present life has ended although nobody ended it."""
        return self._process is not None and self._process.ended() is not None

    def last_words(self) -> str:
        """Return the end of what its present life has written."""
        assert self._process is not None
        lines = self._process.text().splitlines()[-5:]
        return f"{self.name} with {self._process.ended()}: {' | '.join(line[:300] for line in lines)}"

    def kill(self) -> None:
        """Kill it and its children, as the end of a machine would."""
        children = family(self.pid)[1:]
        assert self._process is not None
        self._process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> tuple[int, ...]:
        """Send a signal to it and its children; returns whom."""
        pids = tuple(family(self.pid))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def children(self) -> list[int]:
        """Return the process ids of its children."""
        return family(self.pid)[1:]

    async def leave(self) -> bool:
        """Tell it to end, as a deploy would; False if it had to be killed."""
        assert self._process is not None
        self._process.ask_to_end()
        end = monotonic() + LEAVE_S_MAX
        while self._process.ended() is None:
            if monotonic() > end:
                self._process.kill()
                return False
            await asyncio.sleep(0.02)
        return True

    def faults(self) -> list[str]:
        """Return what all its lives logged as errors, each with the name of the log."""
        logs = sorted(self._folder.glob(f"{self.name}.*.log"))
        return [
            f"{log.name}: {text}"
            for log in logs
            for text in reports(log.read_text(errors="replace").splitlines())
        ]

    async def end(self) -> None:
        """End its present life for good."""
        if self._process is None or self._process.ended() is not None:
            return
        self.signal(signal.SIGCONT)
        self._process.ask_to_end()
        end = monotonic() + END_S_MAX
        while self._process.ended() is None and monotonic() < end:
            await asyncio.sleep(0.02)
        self.kill()


def reports(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a log at the level of errors, and what is no log line but a bare traceback, whole."""
    for number, line in enumerate(lines):
        if line.startswith("{"):
            if '"level": "error"' in line:
                yield line[:REPORT_CHARS_MAX]
        elif TRACEBACK in line:
            rest = lines[number : number + TRACEBACK_LINES_MAX]
            yield "\n".join(takewhile(lambda text: not text.startswith("{"), rest))[:REPORT_CHARS_MAX]
