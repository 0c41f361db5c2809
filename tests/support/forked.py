"""Processes that come from a fork of one that has imported everything (`tests.support.zygote`)."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# What an interpreter and its loader take from the environment when they start, and never again.
AT_START: Final = ("PYTHON", "LD_", "DYLD_", "MALLOC_")
COUNTING: Final = "COVERAGE_PROCESS_CONFIG"


class Forked:
    """A fork; what tests use of `subprocess.Popen`.

    Args:
        pid: its process id.
        end: where its exit code comes, which then holds nothing more.
    """

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self._end = end
        self._code: int | None = None
        self._lock = Lock()

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended.

        Args:
            timeout: seconds.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, within: float | None) -> int | None:
        if self._code is None:
            look = select.poll()
            look.register(self._end, select.POLLIN)
            look.poll(None if within is None else within * 1000)
        with self._lock:
            if self._code is None and _readable(self._end):
                told = os.read(self._end, 16)
                os.close(self._end)
                assert told, f"nobody knows how {self.pid} ended: its zygote has died"
                self._code = int(told)
        return self._code


def _readable(fd: int) -> bool:
    look = select.poll()
    look.register(fd, select.POLLIN)
    return bool(look.poll(0))


class Nursery:
    """The zygote of this process, as who orders from it sees it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.env = {name: value for name, value in os.environ.items() if name != COUNTING}
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.support.zygote", str(theirs.fileno())],
                env={**self.env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def fork(self, args: list[str], env: Mapping[str, str], cwd: Path, files: tuple[int, int, int]) -> Forked:
        """Return a new process.

        Args:
            args: after `threadhold`.
            env: its environment.
            cwd: its folder.
            files: its standard input, output and error.
        """
        order = json.dumps({"args": args, "env": dict(env), "cwd": str(cwd)}).encode()
        mine, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._door, [order], [*files, theirs])
                told = self._door.recv(16)
        finally:
            os.close(theirs)
        assert told, "the zygote has died"
        return Forked(int(told), mine)

    def close(self) -> None:
        """End the zygote, which takes its forks along."""
        self._door.close()
        self._zygote.wait()


@cache
def nursery() -> Nursery:
    """Return the zygote of this process, which starts with the first who asks."""
    return Nursery()


def can_be_forked(env: Mapping[str, str]) -> bool:
    """Tell whether a fork can take on an environment: what an interpreter is started with has to be the same."""

    def at_start(env: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in env.items() if k.startswith(AT_START) and k != "PYTHONPATH"}

    return sys.platform == "linux" and at_start(env) == at_start(nursery().env)
