"""The processes of a stack: `dev`, `serve` and `worker` until SIGINT or SIGTERM, `migrate` and `audit` to their end."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from threadhold.adapters.bootstrap import (
    Parts,
    audit_database,
    disown_workers,
    make_runner,
    migrate_database,
    open_parts,
    running_worker,
    worker_id,
)
from threadhold.adapters.embedded import EmbeddedError, Revival, Servers, start_postgres, start_servers
from threadhold.adapters.endings import end_when_told, first_of
from threadhold.adapters.executor.running import run_executor
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.auth import Authenticate, bearer, local_principal
from threadhold.adapters.http.gate import LOOPBACK
from threadhold.adapters.http.quotas import Allowance
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.identity.errors import IdentityMissing
from threadhold.adapters.identity.verifying import verifier_of
from threadhold.adapters.logs import configure_logs
from threadhold.adapters.metrics.serving import metrics_port, serving_metrics
from threadhold.adapters.output import scrubbed_output
from threadhold.adapters.settings import Settings
from threadhold.runner.app import Threadhold
from threadhold.runner.credentials import PROCESS

log = structlog.get_logger(__name__)

T = TypeVar("T")
OnReady = Callable[[str], Awaitable[None]]
# Workers of `dev` are named so. Who owns the embedded database knows that an earlier one of them is gone.
DEV: Final = "dev"
# Whoever presses Ctrl-C on a notebook does not want to wait for a long run.
DEV_GRACE: Final = timedelta(seconds=1)
# How often the embedded servers are looked after.
LOOK_EVERY_S: Final = 1.0


def run(process: Coroutine[Any, Any, T]) -> T:
    """Run one of the processes below to its end, on the fast event loop where there is one.

    What anybody prints meanwhile is scrubbed of secrets.
    """
    with scrubbed_output(PROCESS), asyncio.Runner(loop_factory=_fast_loop) as runner:
        return runner.run(process)


def _fast_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@asynccontextmanager
async def embedded_servers(
    settings: Settings, ending: asyncio.Event
) -> AsyncIterator[tuple[Settings, Servers]]:
    """Start the servers that were not named, or attach to those that another process runs in the state folder.

    Servers that die are started again. `ending` is set when one of them keeps dying.

    Raises:
        EmbeddedError: if they cannot be had, or, on leaving, if one of them kept dying.
    """
    servers = start_servers(
        Path(settings.state),
        database_url=settings.database_url,
        redis_url=settings.redis_url,
        progress=_log_step,
    )
    with servers:
        _log_owner(servers)
        urls = {"database_url": servers.database_url, "redis_url": servers.redis_url}
        keeping = asyncio.create_task(_keep_alive(servers, ending), name="embedded")
        try:
            yield settings.model_copy(update=urls), servers
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            if not keeping.cancelled() and (gave_up := keeping.exception()):
                raise gave_up


@contextmanager
def embedded_postgres(settings: Settings) -> Iterator[Settings]:
    """Start Postgres if none was named, or attach to that of another process, for a command that needs no Redis.

    Raises:
        EmbeddedError: it cannot be had.
    """
    state = Path(settings.state)
    with start_postgres(state, database_url=settings.database_url, progress=_log_step) as servers:
        _log_owner(servers)
        yield settings.model_copy(update={"database_url": servers.database_url})


def _log_step(line: str) -> None:
    log.info("embedded", step=line)


def _log_owner(servers: Servers) -> None:
    if servers.attached:
        log.info("embedded_attached", owner_pid=servers.owner_pid)


async def _keep_alive(servers: Servers, ending: asyncio.Event) -> None:
    """Start servers of ours that die again, until one does not stay alive."""
    try:
        while servers.owned:
            await asyncio.sleep(LOOK_EVERY_S)
            if not servers.running:
                for revival in await asyncio.to_thread(servers.revive):
                    _log_revival(revival)
    except EmbeddedError as error:
        log.error("embedded_gave_up", detail=str(error))
        ending.set()
        raise


def _log_revival(revival: Revival) -> None:
    if revival.failure is None:
        log.warning("embedded_restarted", server=revival.server, restarts=revival.restarts)
    else:
        log.warning(
            "embedded_not_restarted",
            server=revival.server,
            restarts=revival.restarts,
            detail=str(revival.failure),
        )


async def dev(
    app: Threadhold, settings: Settings, *, host: str, port: int, on_ready: OnReady | None = None
) -> None:
    """Run everything in one process: servers as needed, migrations, an API and a worker.

    Raises:
        BadTokensFile, IdentityMissing, ListenError, EmbeddedError, Unavailable.
    """
    configure_logs()
    ending = asyncio.Event()
    authenticate = how_to_authenticate(settings, host=host)
    listening = listen(host, port)
    try:
        async with (
            _metrics_port(settings) as metrics_at,
            embedded_servers(settings, ending) as (ready, servers),
        ):
            await migrate_database(ready)
            async with open_parts(ready) as parts, metrics_at(parts):
                # The folder's lock proves that an earlier `dev` on this database is gone.
                if servers.owned and settings.database_url is None:
                    await disown_workers(parts, named=DEV)
                await _serve(
                    app,
                    parts,
                    listening,
                    ending,
                    host=host,
                    authenticate=authenticate,
                    on_ready=on_ready,
                    executing=True,
                )
    finally:
        listening.close()


async def serve(app: Threadhold, settings: Settings, *, host: str, port: int) -> None:
    """Run an API replica.

    Raises:
        BadTokensFile, IdentityMissing, ListenError, EmbeddedError, Unavailable.
    """
    configure_logs()
    ending = asyncio.Event()
    authenticate = how_to_authenticate(settings, host=host)
    listening = listen(host, port)
    try:
        async with _stack(settings, ending) as parts:
            await _serve(app, parts, listening, ending, host=host, authenticate=authenticate)
    finally:
        listening.close()


def how_to_authenticate(settings: Settings, *, host: str) -> Authenticate:
    """Return how a server on this host tells who calls; one that only this machine can reach need not.

    Raises:
        BadTokensFile, IdentityMissing.
    """
    verifier = verifier_of(settings)
    if verifier is not None:
        return bearer(verifier)
    if host not in LOOPBACK:
        if not settings.open_access:
            raise IdentityMissing(host)
        log.warning("api_open", host=host, detail="every caller acts as 'local', who may do everything")
    return local_principal


def allowance_of(settings: Settings) -> Allowance:
    """Return what each principal may have of a replica."""
    return Allowance(
        messages_per_minute=settings.messages_per_minute,
        watches=settings.open_watches,
        sockets=settings.open_sockets,
    )


async def worker(app: Threadhold, settings: Settings, *, capacity: int, name: str | None = None) -> None:
    """Run a worker, until it is told to end or an operator drains it.

    Raises:
        MetricsPortError, EmbeddedError, Unavailable.
    """
    configure_logs()
    ending = asyncio.Event()
    end_when_told(ending)
    async with _stack(settings, ending) as parts:
        await _work(app, parts, ending, id=worker_id(name), capacity=capacity)


async def executor(
    app: Threadhold, settings: Settings, *, target: str, queue: str, capacity: int, name: str | None = None
) -> None:
    """Run an executor, until it is told to end or an operator drains it.

    Raises:
        MetricsPortError, EmbeddedError, Unavailable, ChildFailed.
    """
    configure_logs()
    ending = asyncio.Event()
    end_when_told(ending)
    async with _stack(settings, ending) as parts:
        id = worker_id(name)
        await run_executor(app, parts, ending, id=id, target=target, queue=queue, capacity=capacity)


async def migrate(settings: Settings) -> list[str]:
    """Bring the database to this version and return what was applied.

    Raises:
        EmbeddedError, Unavailable, ChangedMigration.
    """
    with embedded_postgres(settings) as ready:
        return await migrate_database(ready)


async def audit(settings: Settings) -> list[dict[str, Any]]:
    """Return every broken invariant of the database.

    Raises:
        EmbeddedError, Unavailable.
    """
    with embedded_postgres(settings) as ready:
        if settings.database_url is None:
            await migrate_database(ready)
        return await audit_database(ready)


MetricsAt = Callable[[Parts], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _metrics_port(settings: Settings) -> AsyncIterator[MetricsAt]:
    """Take the port for metrics, if there is to be one, before anything else is started; yield what serves on it.

    Raises:
        MetricsPortError: it cannot be had.
    """
    with metrics_port(settings.metrics_host, settings.metrics_port) as listening:
        yield lambda parts: serving_metrics(parts.metrics, listening, host=settings.metrics_host)


@asynccontextmanager
async def _stack(settings: Settings, ending: asyncio.Event) -> AsyncIterator[Parts]:
    """Open the parts; an embedded database is migrated on the way, one of yours is not."""
    async with _metrics_port(settings) as metrics_at, embedded_servers(settings, ending) as (ready, _):
        if settings.database_url is None:
            await migrate_database(ready)
        async with open_parts(ready) as parts, metrics_at(parts):
            yield parts


async def _serve(
    app: Threadhold,
    parts: Parts,
    listening: socket.socket,
    ending: asyncio.Event,
    *,
    host: str,
    authenticate: Authenticate,
    on_ready: OnReady | None = None,
    executing: bool = False,
) -> None:
    """Serve until told to end, or `ending` is set; with `executing`, run the agents here as well."""
    end_when_told(ending)
    drain = asyncio.Event()
    runner = make_runner(app, parts)
    # Where a token is needed, no page can do anything by giving this server a name of its own; a proxy has one.
    hosts = LOOPBACK if host in LOOPBACK and authenticate is local_principal else None
    api = create_api(
        runner,
        health=parts.health,
        drain=drain,
        origins=parts.settings.allowed_origins,
        hosts=hosts,
        authenticate=authenticate,
        allowance=allowance_of(parts.settings),
        # A deployment's own frontend is at `/`; a page where tokens are typed does not go beside it unasked.
        page=executing,
        metrics=parts.metrics,
        show_metrics=parts.settings.metrics_port is None,
    )
    server = ApiServer(api, listening=listening, drain=drain)
    if (unready := (await parts.health()).postgres) is not None:
        log.warning("database_not_ready", detail=unready)
    async with AsyncExitStack() as stack:
        if executing:
            await stack.enter_async_context(_dev_worker(app, parts))
        serving = asyncio.create_task(server.serve(), name="api")
        url = f"http://{host}:{server.port}"
        log.info("api_ready", url=url, agents=list(app.names))
        if on_ready is not None:
            await on_ready(url)
        told = asyncio.create_task(ending.wait(), name="signal")
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        server.should_exit = True
        await serving
        await runner.aclose()
    log.info("api_ended", url=url)


@asynccontextmanager
async def _dev_worker(app: Threadhold, parts: Parts) -> AsyncIterator[None]:
    """Run a worker beside the API; when an operator drains it, only the worker leaves."""
    settings = parts.settings.model_copy(update={"grace": min(parts.settings.grace, DEV_GRACE)})
    own = replace(parts, settings=settings)
    leaving, ready = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(
        _work(app, own, leaving, id=worker_id(DEV), capacity=settings.capacity, ready=ready), name="worker"
    )
    started = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({working, started}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        yield
    finally:
        started.cancel()
        leaving.set()
        await working


async def _work(
    app: Threadhold,
    parts: Parts,
    ending: asyncio.Event,
    *,
    id: str,
    capacity: int,
    ready: asyncio.Event | None = None,
) -> None:
    """Take threads until `ending` is set or an operator drains this worker; then hand over what runs."""
    async with running_worker(app, parts, id=id, capacity=capacity) as worker:
        log.info("worker_ready", worker=id, agents=list(app.names), capacity=capacity)
        if ready is not None:
            ready.set()
        await first_of(ending.wait(), worker.drained())
        asked_by = "signal" if ending.is_set() else "operator"
        log.info("worker_ending", worker=id, asked_by=asked_by, runs=worker.running)
    log.info("worker_ended", worker=id)
    if ready is not None and asked_by == "operator":
        log.warning("no_worker_here", detail="the API stays; messages wait for another worker")
