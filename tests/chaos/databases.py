"""The Postgres of a world: killed, frozen, restarted, failed over to a synchronous standby, its clock set."""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic, sleep, time
from typing import Final

from threadhold.adapters.embedded import EmbeddedPostgres
from threadhold.adapters.embedded.binaries import find_postgres

SETTINGS: Final = {
    # A killed process loses nothing that the system has, so the disk need not be waited for.
    "fsync": "off",
    "full_page_writes": "off",
    # Nothing is left behind in shared memory when it is killed.
    "dynamic_shared_memory_type": "mmap",
    # These would see a jump of the clock as a long silence.
    "wal_sender_timeout": "0",
    "wal_receiver_timeout": "0",
    "wal_retrieve_retry_interval": "100ms",
    "shared_buffers": "64MB",
}
PROMOTE_S_MAX: Final = 30.0
SYSTEM_FAKETIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@cache
def faketime() -> Path | None:
    """Return a library that can shift a process's clock here: out of its wheel, or of the system."""
    spec = importlib.util.find_spec("libfaketime")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    places = [root / "vendor/libfaketime/src/libfaketime.so.1" for root in roots] + [SYSTEM_FAKETIME]
    return next((place for place in places if place.exists() and _shifts(place)), None)


def _shifts(library: Path) -> bool:
    """Tell whether the library does it: what it was not built for only leaves the clock as it is."""
    command = ["/usr/bin/env", f"LD_PRELOAD={library}", "FAKETIME=-1000d", "date", "+%s"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return said.isdecimal() and time() - int(said) > 999 * 86_400


class ShiftedPostgres(EmbeddedPostgres):
    """A Postgres whose clock is shifted by what stands in a file, read anew at every look at the clock."""

    def __init__(self, state: Path, shift: Path | None) -> None:
        super().__init__(state, settings=SETTINGS)
        self._shift = shift

    def _command(self, port: int) -> list[str | Path]:
        command = super()._command(port)
        if self._shift is None:
            return command
        # Only for the server itself: what starts it runs as another account, which the library cannot stand.
        settings = [
            f"LD_PRELOAD={faketime()}",
            f"FAKETIME_TIMESTAMP_FILE={self._shift}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]
        return ["/usr/bin/env", *settings, *command]

    def pid(self) -> int:
        """Return the process id of the server."""
        return int((self.data / "postmaster.pid").read_text().split()[0])


class Databases:
    """The primary and its standby.

    Args:
        folder: where their data are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._shift = folder / "clock" if faketime() else None
        self._pids: set[int] = set()
        self.frozen = False
        self._standby_frozen = False
        folder.mkdir()
        folder.chmod(0o755)
        if self._shift is not None:
            self.set_clock(0.0)
        self._primary = self._new()
        self._primary.start()
        self._standby = self._copied()

    @property
    def port(self) -> int:
        """The port of the primary."""
        return self._primary.port

    @property
    def url(self) -> str:
        """The URL of the primary, past every proxy."""
        return self._primary.url

    @property
    def shiftable(self) -> bool:
        """Whether its clock can be set."""
        return self._shift is not None

    def set_clock(self, shift: float) -> None:
        """Let the clock of both servers differ from the real one by so many seconds from now on."""
        assert self._shift is not None
        new = self._shift.with_suffix(".new")
        new.write_text(f"{shift:+.3f}\n")
        new.chmod(0o644)
        new.rename(self._shift)

    def kill(self) -> None:
        """Kill every process of the primary, as the end of a machine would."""
        self._signal(self._primary, signal.SIGKILL)
        self.frozen = False

    def restart(self) -> None:
        """Start the primary again on its port; stops it in an orderly way if it runs."""
        self._primary.stop()
        self._primary.restart()
        self._note()

    def freeze(self) -> None:
        """Stop every process of the primary from running."""
        self.frozen = True
        self._signal(self._primary, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let both run again."""
        if self.frozen:
            self._signal(self._primary, signal.SIGCONT)
        if self._standby_frozen:
            self._signal(self._standby, signal.SIGCONT)
        self.frozen = self._standby_frozen = False

    def freeze_standby(self) -> None:
        """Let every commit of the primary wait."""
        self._standby_frozen = True
        self._signal(self._standby, signal.SIGSTOP)

    def fail_over(self) -> None:
        """Kill the primary and promote the standby, which has every commit that was acknowledged; make a new one."""
        self.kill()
        self._primary.stop()
        standby = self._standby
        (standby.data / "promote").touch()
        os.kill(standby.pid(), signal.SIGUSR1)
        end = monotonic() + PROMOTE_S_MAX
        while (standby.data / "standby.signal").exists():
            if monotonic() > end:
                raise TimeoutError("the standby was not promoted")
            sleep(0.01)
        shutil.rmtree(self._primary.state, ignore_errors=True)
        self._primary = standby

    def renew_standby(self) -> None:
        """Make a standby for what was the standby before."""
        self._standby = self._copied()

    def running(self) -> bool:
        """Whether the primary lives."""
        return self._primary.running

    def close(self) -> None:
        """End both, and remove what they left in shared memory."""
        self.thaw()
        self._standby.stop()
        self._primary.stop()
        for pid in self._pids:
            for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
                with suppress(OSError):
                    (Path("/dev/shm") / name).unlink()

    def _new(self) -> ShiftedPostgres:
        self._made += 1
        return ShiftedPostgres(self._folder / f"server{self._made}", self._shift)

    def _copied(self) -> ShiftedPostgres:
        """Return a running standby of the primary; from then on each commit waits for it."""
        standby = self._new()
        standby.folder.mkdir(parents=True)
        copy = find_postgres().postgres.with_name("pg_basebackup")
        where = ["-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres", "-D", str(standby.data)]
        subprocess.run([copy, *where, "-R", "-X", "stream", "-c", "fast", "--no-sync"], check=True)
        owner = self._primary.data.stat()
        for path in [standby.data, *standby.data.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        standby.start()
        with (self._primary.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = '*'\n")
        os.kill(self._primary.pid(), signal.SIGHUP)
        self._note()
        return standby

    def _note(self) -> None:
        servers = (self._primary, getattr(self, "_standby", self._primary))
        self._pids.update(pid for server in servers if server.running for pid in family(server.pid()))

    def _signal(self, server: ShiftedPostgres, number: signal.Signals) -> None:
        """Signal the server and all its children, the parent first, so that it makes no new ones."""
        pid = server.pid()
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        for child in family(pid):
            self._pids.add(child)
            with suppress(ProcessLookupError):
                os.kill(child, number)


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [pid]
    for parent in found:
        found += children[parent]
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = Path(entry.path, "stat").read_text()
                yield int(entry.name), int(stat.rpartition(")")[2].split()[1])
