"""The servers for one developer: who comes first starts and owns them, who comes later shares them."""

import contextlib
import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from threadhold.adapters.embedded.errors import EmbeddedError, ServerKeepsDying, StateInUse, StateUnusable
from threadhold.adapters.embedded.locks import FileLock
from threadhold.adapters.embedded.loopback import accepts
from threadhold.adapters.embedded.patience import RESTARTS_MAX, Patience
from threadhold.adapters.embedded.postgres import EmbeddedPostgres
from threadhold.adapters.embedded.server import EmbeddedServer, Progress, prepare_folder, quiet, why
from threadhold.adapters.embedded.valkey import EmbeddedValkey

# The owner may be creating its database, or recovering it, while we wait.
_ATTACH_S_MAX = 90.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Addresses:
    """What the owner tells others in `servers.json`; None: it does not run that server here."""

    database_url: str | None
    redis_url: str | None
    owner_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revival:
    """An attempt to start a dead server again: which one since it last was well, and why it failed, if so."""

    server: str
    restarts: int
    failure: EmbeddedError | None = None


class Servers:
    """The URLs to use, and what has to be stopped for them; a context manager that stops on exit.

    `owned`: servers were started here, and end with this process. `attached`: another process owns them,
    the one with the id `owner_pid`.
    """

    def __init__(
        self,
        *,
        database_url: str,
        redis_url: str,
        owner_pid: int | None = None,
        started: tuple[EmbeddedServer, ...] = (),
        lock: FileLock | None = None,
        announcement: Path | None = None,
    ) -> None:
        self.database_url = database_url
        self.redis_url = redis_url
        self.owner_pid = owner_pid
        self._announcement = announcement
        self._lock = lock
        self._maker_pid = os.getpid()
        self._started = started
        self._patience = {server: Patience() for server in started}
        self._failures: dict[EmbeddedServer, EmbeddedError] = {}
        self._changing = threading.Lock()  # Reviving is done in a thread: it must not undo a stop.
        self._stopped = False

    @property
    def owned(self) -> bool:
        return bool(self._started)

    @property
    def attached(self) -> bool:
        return self.owner_pid is not None

    @property
    def running(self) -> bool:
        """Whether all servers that were started here live; does not block."""
        return all(server.running for server in self._started)

    def revive(self) -> list[Revival]:
        """Start those of our servers that died, on the ports they had; does nothing after `stop`.

        Blocks, for seconds; may be called from any thread. What did not start is tried again by the next
        call. Raises ServerKeepsDying once the restarts of a server do not last.
        """
        if self._maker_pid != os.getpid():
            return []
        with self._changing:
            dead = [] if self._stopped else [server for server in self._started if not server.running]
            return [self._revive(server) for server in dead]

    def _revive(self, server: EmbeddedServer) -> Revival:
        patience = self._patience[server]
        restarts = patience.spend(time.monotonic())
        if restarts is None:
            failure = self._failures.get(server)
            raise ServerKeepsDying(
                server=server.title, restarts=RESTARTS_MAX, log=server.log, failure=failure
            )
        try:
            server.restart()
        except EmbeddedError as error:
            self._failures[server] = error
            return Revival(server=server.title, restarts=restarts, failure=error)
        self._failures.pop(server, None)
        patience.succeeded(time.monotonic())
        return Revival(server=server.title, restarts=restarts)

    def stop(self) -> None:
        """Stop what was started here; servers of others are left alone. May be called twice."""
        if self._maker_pid != os.getpid():
            return  # A forked copy of the owner.
        with self._changing:
            self._stopped = True
            self._stop()

    def _stop(self) -> None:
        if self._announcement is not None:
            with contextlib.suppress(OSError):  # First of all: nobody shall attach to what is going down.
                self._announcement.unlink(missing_ok=True)
            self._announcement = None
        for server in reversed(self._started):  # Valkey first, Postgres, the truth, last.
            server.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "Servers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_servers(
    state: Path, *, database_url: str | None, redis_url: str | None, progress: Progress = quiet
) -> Servers:
    """Start the servers for which no URL is given, or attach to those that another process runs in `state`.

    Blocks until they accept connections, for about two minutes at most. `progress` gets lines for a human;
    nothing is printed. Raises an EmbeddedError.
    """
    if database_url is not None and redis_url is not None:
        return Servers(database_url=database_url, redis_url=redis_url)
    return _started(state, database_url, redis_url, progress, shared=True)


def start_postgres(state: Path, *, database_url: str | None, progress: Progress = quiet) -> Servers:
    """Do as `start_servers` for a command that needs Postgres alone, and that for a moment.

    What it starts is not shared: who comes meanwhile waits for its end, since there would be no Valkey for them.
    """
    if database_url is not None:
        return Servers(database_url=database_url, redis_url="")
    return _started(state, None, "", progress, shared=False)


def _started(
    state: Path, database_url: str | None, redis_url: str | None, progress: Progress, *, shared: bool
) -> Servers:
    state = state.absolute()
    prepare_folder(state)
    try:
        return _own_or_attach(
            state, FileLock(state / "lock"), database_url, redis_url, progress, shared=shared
        )
    except OSError as error:
        raise StateUnusable(folder=state, reason=why(error)) from error


def _own_or_attach(
    state: Path,
    lock: FileLock,
    database_url: str | None,
    redis_url: str | None,
    progress: Progress,
    *,
    shared: bool,
) -> Servers:
    try:
        deadline = time.monotonic() + _ATTACH_S_MAX
        # Asked again on each round: the owner that we wait for may die, and then it is our turn.
        while not lock.try_acquire():
            servers = _attach(state, database_url, redis_url)
            if servers is not None:
                lock.close()
                return servers
            if time.monotonic() > deadline:
                reason = f"its owner has not brought up its servers within {_ATTACH_S_MAX:.0f} s"
                raise StateInUse(folder=state, reason=reason)
            time.sleep(_POLL_S)
        return _own(state, lock, database_url, redis_url, progress, shared=shared)
    except BaseException:
        lock.close()
        raise


def _own(
    state: Path,
    lock: FileLock,
    database_url: str | None,
    redis_url: str | None,
    progress: Progress,
    *,
    shared: bool,
) -> Servers:
    announcement = state / "servers.json"
    announcement.unlink(missing_ok=True)  # What a killed owner has left.
    postgres = EmbeddedPostgres(state, progress=progress) if database_url is None else None
    valkey = EmbeddedValkey(state, progress=progress) if redis_url is None else None
    started: tuple[EmbeddedServer, ...] = tuple(one for one in (postgres, valkey) if one is not None)
    servers = Servers(
        database_url=database_url or "",
        redis_url=redis_url or "",
        started=started,
        lock=lock,
        announcement=announcement,
    )
    try:
        for server in started:
            server.start()
        found = _Addresses(
            database_url=postgres.url if postgres else None,
            redis_url=valkey.url if valkey else None,
            owner_pid=os.getpid(),
        )
        if shared:
            _announce(announcement, found)
    except BaseException:
        servers.stop()
        raise
    servers.database_url = found.database_url or servers.database_url
    servers.redis_url = found.redis_url or servers.redis_url
    return servers


def _announce(announcement: Path, addresses: _Addresses) -> None:
    new = announcement.with_suffix(".new")
    new.write_text(json.dumps(asdict(addresses), indent=2) + "\n", encoding="utf-8")
    new.replace(announcement)


def _attach(state: Path, database_url: str | None, redis_url: str | None) -> Servers | None:
    """Return the owner's servers, None while they are not up; raises StateInUse without what we need."""
    found = _read(state / "servers.json")
    if found is None:
        return None
    database_url = database_url if database_url is not None else found.database_url
    redis_url = redis_url if redis_url is not None else found.redis_url
    if database_url is None or redis_url is None:
        missing = "Postgres" if database_url is None else "Valkey"
        reason = f"process {found.owner_pid} owns it, but runs no {missing} in it"
        raise StateInUse(folder=state, reason=reason)
    shared = {found.database_url, found.redis_url} & {database_url, redis_url}
    up = all(accepts(urlsplit(url).port or 0) for url in shared if url is not None)
    # Read again: had the owner changed in between, these would be the addresses of servers that go down.
    if not up or _read(state / "servers.json") != found:
        return None
    return Servers(database_url=database_url, redis_url=redis_url, owner_pid=found.owner_pid)


def _read(announcement: Path) -> _Addresses | None:
    try:
        return _Addresses(**json.loads(announcement.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
