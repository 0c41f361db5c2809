"""Start a child process that dies with this one, even when this one is killed with SIGKILL.

On Linux the kernel does it (PR_SET_PDEATHSIG, set by `setpriv`, so that no Python code runs between fork and
exec). Elsewhere, and where `setpriv` is absent or too small, a shell waits at the end of a pipe that only we
hold open.
"""

import contextlib
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# End of file means that we are gone; a line means that we have ended the child ourselves.
_WATCH = 'read -r line || kill -s "$1" "$2"'
_Popen = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a child runs as; `override` lets it pass folders that the account itself may not enter."""

    uid: int
    gid: int
    override: bool = False


class Child:
    """A running child, for the process that started it; in a forked copy of that process it does nothing."""

    def __init__(self, process: _Popen, watcher: _Popen | None) -> None:
        self._process = process
        self._watcher = watcher
        self._owner_pid = os.getpid()
        _children.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self.returncode() is None

    def returncode(self) -> int | None:
        """Return how the child ended, None while it runs."""
        if self._owner_pid != os.getpid():
            return None
        code = self._process.poll()
        if code is not None:
            self._dismiss_watcher()  # The process id may belong to somebody else from now on.
        return code

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the child's end; None when it still runs after `timeout_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.returncode()

    def stop(self, signals: Sequence[signal.Signals], *, patience_s: float) -> None:
        """Send one signal after the other, each with `patience_s` to obey, and SIGKILL in the end."""
        for number in (*signals, signal.SIGKILL):
            if self._owner_pid != os.getpid() or not self.alive:
                return
            self._process.send_signal(number)
            self.wait(patience_s)

    def forget(self) -> None:
        """Let go of the watcher's pipe, in a forked copy: only the owner may keep the watcher waiting."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()

    def _dismiss_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                watcher.stdin.write(b"\n")
                watcher.stdin.close()
            watcher.wait()


_children: weakref.WeakSet[Child] = weakref.WeakSet()


def _forget_all() -> None:
    for child in list(_children):
        child.forget()


os.register_at_fork(after_in_child=_forget_all)


def spawn(
    argv: Sequence[str | Path],
    *,
    account: Account | None,
    death_signal: signal.Signals,
    log: IO[bytes],
    keep_fds: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Start a child that gets `death_signal` when this process is gone.

    It runs in a session of its own, so that Ctrl-C in the terminal reaches this process only, and in the root
    folder, which every account may enter. Raises OSError when the program cannot be started.
    """
    options: dict[str, Any] = {
        "cwd": "/",
        "env": environment,
        "pass_fds": tuple(keep_fds),
        "start_new_session": True,
        "stdin": subprocess.DEVNULL,
        "stdout": log,
        "stderr": subprocess.STDOUT,
    }
    if setpriv() is not None:
        command = [*_setpriv_words(account), "--pdeathsig", _short(death_signal), "--", *argv]
        return Child(_spawner().call(lambda: subprocess.Popen(command, **options)), None)
    process = subprocess.Popen(list(argv), **options, **_account_options(account))
    return Child(process, _watch(process.pid, death_signal))


def runs(argv: Sequence[str | Path], *, account: Account, timeout_s: float = 10.0) -> bool:
    """Tell whether a short command succeeds when it runs as the account."""
    command: list[str | Path] = [*_setpriv_words(account), "--", *argv] if setpriv() else list(argv)
    options = {} if setpriv() else _account_options(account)
    if account.override and not setpriv():
        return False
    try:
        done = subprocess.run(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            **options,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


@functools.cache
def setpriv() -> str | None:
    """Return the path of a `setpriv` that can do what we need (busybox has one that cannot), or None."""
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    if found is None:
        return None
    trial = [found, "--pdeathsig", "INT", "--", "true"]
    done = subprocess.run(trial, check=False, timeout=10.0, stdin=subprocess.DEVNULL, capture_output=True)
    return found if done.returncode == 0 else None


def _setpriv_words(account: Account | None) -> list[str | Path]:
    words: list[str | Path] = [setpriv() or "setpriv"]
    if account is not None:
        words += [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
        if account.override:
            # The bit is for access(2): it leaves out the capabilities of a process that is not root.
            words += ["--securebits=+no_setuid_fixup"]
            words += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return words


def _short(number: signal.Signals) -> str:
    return number.name.removeprefix("SIG")


def _account_options(account: Account | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": ()}


def _watch(pid: int, death_signal: signal.Signals) -> _Popen:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", _short(death_signal), str(pid)],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class _Spawner:
    """A thread that starts children and never ends.

    The kernel ties the death signal to the thread that forked, not to the process: a server that was started
    from a short-lived thread, of a pool for example, would be ended with that thread.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._calls: queue.SimpleQueue[tuple[Callable[[], _Popen], Future[_Popen]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="threadhold-spawner", daemon=True).start()

    def call(self, start: Callable[[], _Popen]) -> _Popen:
        answer: Future[_Popen] = Future()
        self._calls.put((start, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            start, answer = self._calls.get()
            try:
                answer.set_result(start())
            except Exception as error:  # Whatever it was, it belongs to the caller; the thread must go on.
                answer.set_exception(error)


_spawner_lock = threading.Lock()
_the_spawner: _Spawner | None = None


def _spawner() -> _Spawner:
    global _the_spawner
    with _spawner_lock:
        if _the_spawner is None or _the_spawner.pid != os.getpid():  # Threads do not survive a fork.
            _the_spawner = _Spawner()
        return _the_spawner
