"""What the embedded Postgres and the embedded Valkey have in common: one server on one folder, owned by us.

Two locks guard the folder. `owner.lock` is held by the process that starts the server, as long as it owns it.
`server.lock` is inherited by the server and its children: it is free only when none of them is left, so that
nobody starts on files that a dying server still writes to.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from threadhold.adapters.embedded.errors import PortInUse, ServerDidNotStart, StateInUse, StateUnusable
from threadhold.adapters.embedded.locks import FileLock
from threadhold.adapters.embedded.loopback import free_port, is_free
from threadhold.adapters.embedded.process import Account, Child, spawn

Progress = Callable[[str], None]

_START_S_MAX = 60.0  # A Postgres that recovers from a crash may need a good part of this.
_RECLAIM_S_MAX = 30.0
_ORPHAN_GRACE_S = 1.0
_STOP_S_MAX = 10.0
_POLL_S = 0.005
_PORTS_TRIED_MAX = 5
_PORTS = range(1, 65_536)
_LOG_LINES_SHOWN = 20
_LOG_BYTES_SHOWN = 8_000
_LOG_BYTES_KEPT = 4_000_000


def quiet(_line: str) -> None:
    """Say nothing: the progress callback of those who gave none."""


class EmbeddedServer(ABC):
    """One server that this process starts, owns and stops.

    `state` is the folder for all embedded servers; each keeps to its own folder in it. With `port` None it
    is the port of the last start, so that those who were connected find the server again, or a free one when
    somebody else has that by now. `settings` are settings of the server, and win over ours.
    """

    _title: str
    _stop_signals: Sequence[signal.Signals]

    def __init__(
        self, state: Path, *, folder: str, port: int | None, settings: Mapping[str, str], progress: Progress
    ) -> None:
        self.state = state.absolute()
        self.folder = self.state / folder
        self.log = self.folder / "server.log"
        self._port_file = self.folder / "port"
        self._wanted_port = port
        self._settings = dict(settings)
        self._progress = progress
        self._locks: list[FileLock] = []
        self._child: Child | None = None
        self._port = 0

    @property
    def title(self) -> str:
        """What people call it."""
        return self._title

    @property
    def port(self) -> int:
        """The port of the running server; 0 before the first start."""
        return self._port

    @property
    def running(self) -> bool:
        """Whether the server that was started here still lives."""
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start the server and wait until it answers; does nothing when it runs already.

        Raises StateUnusable, StateInUse, PortInUse, ServerDidNotStart, DataOfAnotherVersion.
        """
        self._start(self._wanted_port)

    def restart(self) -> None:
        """Start a server that died on its own, on the port it had: its URL is in use. Raises as `start`."""
        self._start(self._wanted_port or self._port or None)

    def _start(self, port: int | None) -> None:
        if self.running:
            return
        self.stop()  # What an earlier server that died on its own has left: its locks.
        try:
            self._take_folder()
            if port and not is_free(port):
                raise PortInUse(server=self._title, port=port)
            self._prepare()
            self._launch(port)
            self._remember_port()
        except OSError as error:
            self.stop()
            raise StateUnusable(folder=self.folder, reason=why(error)) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server in an orderly way and release the folder; the data stay. May be called twice."""
        if self._child is not None:
            self._child.stop(self._stop_signals, patience_s=_STOP_S_MAX)
            self._child = None
        while self._locks:
            self._locks.pop().close()

    @abstractmethod
    def _prepare(self) -> None:
        """Create what the first start needs; both locks are held."""

    @abstractmethod
    def _command(self, port: int) -> list[str | Path]:
        """Return the server's command line."""

    @abstractmethod
    def _answers(self, child: Child, port: int) -> bool:
        """Tell whether exactly this child is ready to serve on the port."""

    @abstractmethod
    def _recorded_pid(self) -> int | None:
        """Return the process id that the server has written into its folder."""

    def _account(self) -> Account | None:
        return None

    def _take_folder(self) -> None:
        prepare_folder(self.state)
        self.folder.mkdir(exist_ok=True)
        owner, server = self._open_lock("owner.lock"), self._open_lock("server.lock")
        if not owner.try_acquire():
            raise StateInUse(folder=self.folder, reason="the process that started the server there lives")
        if not server.acquire(timeout_s=_RECLAIM_S_MAX, waiting=self._hurry_the_orphan()):
            reason = f"a server that has lost its owner (process {self._recorded_pid()}) does not end"
            raise StateInUse(folder=self.folder, reason=reason)
        self._rotate_log()

    def _open_lock(self, name: str) -> FileLock:
        lock = FileLock(self.folder / name)
        self._locks.append(lock)
        return lock

    def _hurry_the_orphan(self) -> Callable[[float], None]:
        """Return what to do while waiting for a server without an owner.

        It has got its signal when its owner died. Should that have been lost (the owner was killed in the
        millisecond before the signal was set up), it is sent again: we hold the owner's lock, so nobody else
        wants that server, and it holds its own, so the process id is its own too.
        """
        told = asked = False

        def waiting(waited_s: float) -> None:
            nonlocal told, asked
            if not told:
                told = True
                self._progress(f"waiting for the previous {self._title} to end")
            pid = self._recorded_pid()
            if not asked and waited_s > _ORPHAN_GRACE_S and pid is not None and self._is_ours(pid):
                asked = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, self._stop_signals[0])

        return waiting

    def _is_ours(self, pid: int) -> bool:
        """Tell whether the process was started on our folder: a second proof before anything is signalled."""
        with contextlib.suppress(OSError):
            return os.fsencode(self.folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            shown = subprocess.run(
                ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, timeout=5.0
            )
            return os.fsencode(self.folder) in shown.stdout
        return False

    def _rotate_log(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_KEPT:
            self.log.replace(self.log.with_suffix(".log.1"))

    def _launch(self, port: int | None) -> None:
        remembered = self._remembered_port()
        for attempt in range(1, _PORTS_TRIED_MAX + 1):
            again = remembered if attempt == 1 and remembered and is_free(remembered) else None
            self._port = port or again or free_port()
            failure = self._launch_on(self._port)
            if failure is None:
                return
            # A free port was only free when we looked: losing it to somebody else is no failure yet.
            if port or is_free(self._port) or attempt == _PORTS_TRIED_MAX:
                raise failure

    def _remember_port(self) -> None:
        self._port_file.write_text(f"{self._port}\n", encoding="utf-8")

    def _remembered_port(self) -> int | None:
        """Return the port of the last start; None when there was none, or the file is damaged."""
        try:
            port = int(self._port_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return port if port in _PORTS else None

    def _launch_on(self, port: int) -> ServerDidNotStart | None:
        with self.log.open("ab") as log:
            began_at = log.tell()
            self._child = self._spawn(self._command(port), log)
        return self._wait_until(lambda child: self._answers(child, port), began_at=began_at)

    def _spawn(self, command: Sequence[str | Path], log: IO[bytes]) -> Child:
        try:
            return spawn(
                command,
                account=self._account(),
                death_signal=self._stop_signals[0],
                log=log,
                keep_fds=[self._locks[-1].fd],
                environment=self._environment(),
            )
        except OSError as error:
            reason = f"{command[0]} cannot be run: {why(error)}"
            raise ServerDidNotStart(server=self._title, reason=reason, log=self.log, last_lines=()) from error

    def _environment(self) -> dict[str, str]:
        # PGPORT, PGDATA and their like mean other servers. UTC: the data do not depend on the machine.
        return {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"TZ": "UTC"}

    def _wait_until(self, done: Callable[[Child], bool], *, began_at: int) -> ServerDidNotStart | None:
        assert self._child is not None
        deadline = time.monotonic() + _START_S_MAX
        while time.monotonic() < deadline:
            # Looked at first: what ends by itself may do so between the two looks.
            alive = self._child.alive
            if done(self._child):
                return None
            if not alive:
                return self._did_not_start(f"it ended with status {self._child.returncode()}", began_at)
            time.sleep(_POLL_S)
        return self._did_not_start(f"it did not answer within {_START_S_MAX:.0f} s", began_at)

    def _did_not_start(self, reason: str, began_at: int) -> ServerDidNotStart:
        lines = _last_lines(self.log, began_at)
        return ServerDidNotStart(server=self._title, reason=reason, log=self.log, last_lines=lines)


def prepare_folder(state: Path) -> None:
    """Create the state folder, and keep it out of version control; raises StateUnusable."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        ignore = state / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise StateUnusable(folder=state, reason=why(error)) from error


def why(error: OSError) -> str:
    """Say what the system refused, and where."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _last_lines(log: Path, began_at: int) -> list[str]:
    """Return the end of what was written to the log since `began_at` (an offset in bytes)."""
    with log.open("rb") as text:
        size = text.seek(0, os.SEEK_END)
        text.seek(max(began_at, size - _LOG_BYTES_SHOWN))
        lines = text.read().decode(errors="replace").splitlines()
    # Control characters of whatever the server wrote are not for the terminal of whoever reads the message.
    return [re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "?", line) for line in lines[-_LOG_LINES_SHOWN:]]
