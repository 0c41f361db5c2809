"""A process that has imported everything, and forks into the `threadhold` processes that tests ask for.

To import everything takes seconds of one core, to fork milliseconds. Started as `python -m tests.support.zygote FD` by
`tests.support.forked`, over whose socket come the orders. A fork gets the environment, the folder, the arguments and
the files of its order, and then runs the package as `python -m threadhold` does.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Final

# All of these start no thread, open nothing and keep nothing of the environment that one of ours asks for later.
IMPORTED: Final = (
    "coverage",
    "genai_prices.data",
    "mcp.server",
    "tests.support.scripted",
    "threadhold.adapters.cli.entry",
    "threadhold.adapters.http.app",
    "threadhold.adapters.processes",
    "uvloop",
)
ORDER_BYTES_MAX: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to be started with, beside its files."""

    args: list[str]
    env: dict[str, str]
    cwd: str


class Zygote:
    """Takes orders until the tests end.

    Args:
        door: a socket on which each packet is an order with four files: the standard ones, and one for the exit code.
    """

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._ends: dict[int, int] = {}
        self._wakes, self._wake = os.pipe()
        for fd in (self._wakes, self._wake):
            os.set_blocking(fd, False)

    def serve(self) -> Order | None:
        """Return in each fork with its order, and in this process with None when the tests have ended."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._door.fileno(), self._wakes], [], [])
            if self._wakes in ready:
                os.read(self._wakes, ORDER_BYTES_MAX)
                self._bury()
            if self._door.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self._door, ORDER_BYTES_MAX, 4)
                if not data:
                    self._leave()
                    return None
                if (pid := os.fork()) == 0:
                    return self._born(Order(**json.loads(data)), fds)
                self._ends[pid] = fds.pop()
                for fd in fds:
                    os.close(fd)
                self._door.send(str(pid).encode())

    def _born(self, order: Order, fds: list[int]) -> Order:
        """Close what is not the fork's, and give it its files, as the first thing that it does."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._door.close()
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
        for fd in (*fds, *self._ends.values(), self._wakes, self._wake):
            os.close(fd)
        return order

    def _bury(self) -> None:
        """Tell how each fork ended that has."""
        while self._ends:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end = self._ends.pop(pid)
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(end)

    def _leave(self) -> None:
        """Take along the forks that are left."""
        for pid in self._ends:
            os.kill(pid, signal.SIGKILL)


def become(order: Order, path: list[str]) -> None:
    """Take on what a process is born with: its environment, its folder, its arguments and where it finds modules."""
    os.environ.clear()
    os.environ.update(order.env)
    time.tzset()
    os.chdir(order.cwd)
    sys.argv[1:] = order.args
    sys.path[:] = [order.cwd, *filter(None, order.env.get("PYTHONPATH", "").split(os.pathsep)), *path]
    # Does nothing unless the environment asks for it.
    import_module("coverage").process_startup()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def main() -> None:
    """Import everything, and serve."""
    # A Ctrl-C is for the tests, whose end is the end of this process too; a fork gets its own when it has its files.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    added = {os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    path = [each for each in sys.path if each not in added]
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    order = Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
    if order is not None:
        become(order, path)
        runpy.run_module("threadhold", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
