"""A file lock that lives exactly as long as its holders.

The kernel drops a flock when the last process that has the descriptor open is gone, however it went. That
makes a lock the only honest answer to "does the owner live?" and "is the old server gone, children and all?".
"""

import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.02


class FileLock:
    """An exclusive lock on a file, which is created when absent; raises OSError when that is impossible.

    A server that is started with `fd` holds the lock too, and keeps it after its starter is gone.
    """

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _open_locks.add(self)

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def acquire(self, *, timeout_s: float, waiting: Callable[[float], None]) -> bool:
        """Take the lock within `timeout_s`; `waiting` is called with the seconds waited so far, often."""
        began = time.monotonic()
        while not self.try_acquire():
            waited_s = time.monotonic() - began
            if waited_s > timeout_s:
                return False
            waiting(waited_s)
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """Let go. Deliberately no LOCK_UN: that would also take the lock from a server that shares it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_all() -> None:
    for lock in list(_open_locks):
        lock.close()


# A forked copy of the owner (multiprocessing does that) is not the owner: it must not keep the locks alive.
os.register_at_fork(after_in_child=_close_all)
