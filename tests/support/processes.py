"""Processes of ours that a test starts, kills, freezes and thaws."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.support.forked import Forked, can_be_forked, nursery
from tests.support.waiting import until

AGENTS = str(Path(__file__).parent / "agents.py") + ":app"

# Importing everything takes three seconds of one core; other things may run on this machine as well.
START_S_MAX = 60.0
END_S_MAX = 3.0


Started = subprocess.Popen[bytes] | Forked
Files = tuple[int, int, int]


def _start(args: list[str], env: Mapping[str, str], cwd: Path, files: Files) -> Started:
    """Start as people do."""
    command = [sys.executable, "-m", "threadhold", *args]
    stdin, stdout, stderr = files
    return subprocess.Popen(command, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd)


def _fork(args: list[str], env: Mapping[str, str], cwd: Path, files: Files) -> Started:
    """Start from what has imported everything already."""
    return nursery().fork(args, env, cwd, files)


class Process:
    """A `threadhold` process with its log in a file.

    Args:
        args: after `threadhold`.
        env: its environment.
        log: where it writes; it runs in the folder of that file.
        stdin: what it reads, by default nothing.
        forked: whether it may come from a process that has imported everything, which costs a tenth of a start.
    """

    def __init__(
        self,
        args: list[str],
        *,
        env: Mapping[str, str],
        log: Path,
        stdin: IO[bytes] | None = None,
        forked: bool = True,
    ) -> None:
        self.log = log
        self._args = args
        with log.open("ab") as out, Path(os.devnull).open("rb") as nothing:
            files = ((stdin or nothing).fileno(), out.fileno(), out.fileno())
            start = _fork if forked and can_be_forked(env) else _start
            self._process: Started = start(args, env, log.parent, files)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it as a crash would."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it from running until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self, *, within: float = 30.0) -> int:
        """Ask it to end, as a deploy would, and return its exit code."""
        self.ask_to_end()
        return self.wait(within=within)

    def ask_to_end(self) -> None:
        """Ask it to end, as a deploy would."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, *, within: float = 30.0) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(within)

    def ended(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """Return what it has written so far."""
        return self.log.read_text(errors="replace")

    async def says(self, *texts: str, within: float = 30.0, after: str = "") -> str:
        """Return the first line of its log that contains these texts; the test's tasks go on meanwhile.

        Args:
            texts: what stands in the line.
            within: seconds.
            after: a line that stands before it.
        """

        async def look() -> str:
            lines = self.text().partition(after)[2].splitlines() if after else self.text().splitlines()
            return next((line for line in lines if all(text in line for text in texts)), "")

        return await until(
            look,
            within=within,
            what=lambda: f"{texts} from {self._args}, which wrote {self.text()[-3000:]}",
        )

    def url(self) -> str:
        """Return where its API listens, as soon as it does."""
        return str(json.loads(self.wait_for('"api_ready"'))["url"])

    def wait_for(self, text: str, *, within: float = START_S_MAX) -> str:
        """Return the first line of its log that contains a text.

        Raises:
            AssertionError: if it ends before, or does not write it in time; says what it wrote.
        """
        end = time.monotonic() + within
        while True:
            for line in self.text().splitlines():
                if text in line:
                    return line
            if self.ended() is not None or time.monotonic() > end:
                raise AssertionError(f"{self._args} did not write {text!r}: {self.text()[-3000:]}")
            time.sleep(0.02)


class Processes:
    """Starts processes for one test and leaves none behind.

    Args:
        env: their environment.
        folder: where they run and write.
        forked: whether they may come from a process that has imported everything.
    """

    def __init__(self, env: Mapping[str, str], folder: Path, *, forked: bool = True) -> None:
        self._env = env
        self.folder = folder
        self._forked = forked
        self._started: list[Process] = []

    def start(
        self, *args: str, env: Mapping[str, str] | None = None, stdin: IO[bytes] | None = None
    ) -> Process:
        """Start `threadhold` with these arguments."""
        log = self.folder / f"{len(self._started)}-{args[0]}.log"
        process = Process(
            list(args), env={**self._env, **(env or {})}, log=log, stdin=stdin, forked=self._forked
        )
        self._started.append(process)
        return process

    def worker(self, *args: str, app: str = AGENTS, env: Mapping[str, str] | None = None) -> Process:
        """Start a worker and return when it takes threads."""
        process = self.start("worker", app, *args, env=env)
        process.wait_for('"worker_ready"')
        return process

    def api(self, *args: str, app: str = AGENTS, env: Mapping[str, str] | None = None) -> tuple[Process, str]:
        """Start an API replica on a free port and return it with its URL."""
        process = self.start("serve", app, "--port", "0", *args, env=env)
        return process, process.url()

    def errors(self) -> list[str]:
        """Return the log lines that report a fault of ours."""
        lines = [line for process in self._started for line in process.text().splitlines()]
        return [line for line in lines if '"level": "error"' in line or line.startswith("Traceback")]

    def end(self) -> None:
        """End what still runs, in an orderly way as far as it takes part."""
        left = [process for process in self._started if process.ended() is None]
        for process in left:
            process.thaw()
            process.ask_to_end()
        end = time.monotonic() + END_S_MAX
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(within=max(0.0, end - time.monotonic()))
            process.kill()


@contextmanager
def processes(env: Mapping[str, str], folder: Path, *, forked: bool = True) -> Iterator[Processes]:
    """Yield a starter of processes and end them all."""
    starter = Processes(env, folder, forked=forked)
    try:
        yield starter
    finally:
        starter.end()
