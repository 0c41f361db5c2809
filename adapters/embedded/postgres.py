"""An embedded Postgres: real, durable, on loopback only."""

import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from threadhold.adapters.embedded.binaries import find_postgres
from threadhold.adapters.embedded.errors import DataOfAnotherVersion, StateUnusable
from threadhold.adapters.embedded.loopback import HOST, accepts
from threadhold.adapters.embedded.process import Account, Child, runs
from threadhold.adapters.embedded.server import EmbeddedServer, Progress, quiet

_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": HOST,
        "max_connections": "200",
        "shared_buffers": "128MB",
        # No socket file: its path could have about 100 characters, that of a state folder may be longer.
        "unix_socket_directories": "",
    }
)
# "trust" lets every account of this machine in, as superuser. That is for a developer's own machine or
# container, and the reason why the server listens on loopback only.
# "no-sync": should the power fail in the minute after the first start, an empty database is
# lost. What the running server writes is always synced.
_INITDB_WORDS = (
    "--auth=trust",
    "--encoding=UTF8",
    "--no-instructions",
    "--no-locale",
    "--no-sync",
    "--username=postgres",
)
_VISIT = ("/bin/sh", "-c", 'cd "$1" && exec "$2" --version', "sh")
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class EmbeddedPostgres(EmbeddedServer):
    """A Postgres server with its data in `state/postgres-<major>`; raises BinariesMissing.

    As root it runs as `nobody` (Postgres refuses root), or as whoever owns the data already.
    """

    _title = "Postgres"
    # Fast shutdown first: it ends all connections and writes a checkpoint. Then immediate: the next start
    # recovers.
    _stop_signals = (signal.SIGINT, signal.SIGQUIT)

    def __init__(
        self,
        state: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] = _NO_SETTINGS,
        progress: Progress = quiet,
    ) -> None:
        self._binaries = find_postgres()
        folder = f"postgres-{self._binaries.major}"
        super().__init__(state, folder=folder, port=port, settings=settings, progress=progress)
        self.data = self.folder / "data"
        self._runs_as: Account | None = None

    @property
    def url(self) -> str:
        """The URL of the running server, for asyncpg; there is no password."""
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        self._check_version()
        if not self.data.exists():
            self._create()
        self._runs_as = self._account_for(self.data)
        # We hold the server's lock, so no process of an earlier server is left. Its pid file may still name a
        # process that by now is somebody else's, and Postgres would take that for a living server.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _check_version(self) -> None:
        """Refuse to hide existing data behind a new, empty database."""
        found = [self.data] if self.data.exists() else sorted(self.state.glob("postgres-*/data"))
        for data in found:
            major = _data_major(data)
            if major is not None and major != str(self._binaries.major):
                program, binary_major = self._binaries.postgres, self._binaries.major
                raise DataOfAnotherVersion(
                    data=data, data_major=major, binary=program, binary_major=binary_major
                )

    def _create(self) -> None:
        self._progress("creating the database (first start only)")
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        nobody = _nobody(new) if os.geteuid() == 0 else None
        if nobody is not None:
            os.chown(new, nobody.uid, nobody.gid)
        self._runs_as = self._account_for(new)
        with self.log.open("ab") as log:
            began_at = log.tell()
            self._child = self._spawn([self._binaries.initdb, "-D", new, *_INITDB_WORDS], log)
        failure = self._wait_until(lambda child: child.returncode() == 0, began_at=began_at)
        if failure is not None:
            raise failure
        # Only a complete database gets the name: whatever kills us before leaves nothing half done behind.
        new.rename(self.data)

    def _account_for(self, data: Path) -> Account | None:
        """Choose whom the server runs as, and make sure that this account gets through to its files."""
        owner = data.stat()
        if os.geteuid() != 0:
            if owner.st_uid != os.geteuid():
                raise StateUnusable(folder=data, reason=f"it belongs to the user with id {owner.st_uid}")
            return None
        for override in (False, True):
            account = Account(uid=owner.st_uid, gid=owner.st_gid, override=override)
            if runs([*_VISIT, data, self._binaries.postgres], account=account):
                return account
        reason = (
            f"Postgres does not run as root, and the user with id {owner.st_uid} cannot reach {data} and "
            f"{self._binaries.postgres} (a folder above them is closed to others)"
        )
        raise StateUnusable(folder=data, reason=reason)

    def _account(self) -> Account | None:
        return self._runs_as

    def _command(self, port: int) -> list[str | Path]:
        command: list[str | Path] = [self._binaries.postgres, "-D", self.data]
        for name, value in {**_SETTINGS, **self._settings, "port": str(port)}.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _answers(self, child: Child, port: int) -> bool:
        lines = self._pid_file()
        ready = len(lines) > 7 and lines[7].strip() == "ready"
        return ready and lines[0] == str(child.pid) and accepts(port)

    def _recorded_pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and lines[0].isdecimal() else None

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(errors="replace").splitlines()
        except OSError:
            return []


def _data_major(data: Path) -> str | None:
    try:
        return (data / "PG_VERSION").read_text(errors="replace").strip()
    except OSError:
        return None


def _nobody(folder: Path) -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        reason = "Postgres does not run as root, and there is no user 'nobody' to run it as"
        raise StateUnusable(folder=folder, reason=reason) from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)
