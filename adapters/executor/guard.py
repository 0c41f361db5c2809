"""What stands between an executor and one of its children, and kills all that was started below it.

The child's own threads cannot be relied on for that: a tool may hold the interpreter in a call of C. The guard is a
process of its own that loads next to nothing and only waits, so that nothing can hold it up.

Started as `python -m threadhold.adapters.executor.guard`, with a socket and nothing else.
"""

import contextlib
import ctypes
import importlib
import os
import select
import signal
import socket
import sys
import time
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
KILL_AGAIN_S: Final = 0.01
KILL_TRIES: Final = 500


def main() -> None:
    """Start a child that serves on the socket that was passed, and guard it; signals are for the executor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    under_guard(connection)
    # Not before: what the child loads is not the guard's to hold.
    importlib.import_module("threadhold.adapters.executor.child").carry_out(connection)


def under_guard(connection: socket.socket) -> None:
    """Go on in a child process; this one stays behind as its guard and never returns.

    When the other end of the connection closes, or the child ends, the guard kills the child and all that it has
    started. On Linux that includes what has left its group and its session; elsewhere it does not. Call this in the
    only thread there is.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    alive, held = os.pipe()
    if os.fork() == 0:
        os.close(alive)
        # The end `held` closes when this process ends, however it does.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        return
    try:
        os.close(held)
        # What has lost its parent comes here: nobody waits for it.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _wait(alive, connection.fileno())
        _kill_all(guard)
    finally:
        if os.getpgrp() == guard:
            os.killpg(guard, signal.SIGKILL)
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wait(*ends: int) -> None:
    """Return when the other end of one of these is closed; what is sent is for somebody else."""
    poll = select.poll()
    for end in ends:
        poll.register(end, 0)
    poll.poll()


def _kill_all(guard: int) -> None:
    """Kill all that was started below this process, again until nothing is left, or nothing more can be done."""
    for _ in range(KILL_TRIES):
        for pid in _below(guard):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(KILL_AGAIN_S)


def _below(top: int) -> set[int]:
    """Return the processes that this one has started, and those that they have; nothing where the system tells none."""
    parents: dict[int, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                # The name of a program may hold anything; what follows its last bracket is ours to read.
                parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found = {top}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {top}


if __name__ == "__main__":
    main()
