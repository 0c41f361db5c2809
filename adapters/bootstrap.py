"""The composition root: picks the backends and wires them. Nobody else knows which they are."""

import asyncio
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import structlog
from arq.connections import ArqRedis

from threadhold.adapters.dispatch import JobQueue, dispatch
from threadhold.adapters.http.health import Health
from threadhold.adapters.settings import Settings
from threadhold.adapters.wires import RedisWires, worker_channel
from threadhold.claims import ClaimTimes, Keeper
from threadhold.fanout.hub import Hub
from threadhold.fanout.redis import RedisLive, RedisSubscriber, connect
from threadhold.runner.app import Threadhold
from threadhold.runner.errors import Unavailable
from threadhold.runner.service import Runner
from threadhold.runner.worker import Worker
from threadhold.storage.claims import PostgresRenewer
from threadhold.storage.messages import PostgresMessages
from threadhold.storage.migrate import migrate
from threadhold.storage.pool import Database
from threadhold.storage.runs import PostgresRuns
from threadhold.storage.threads import PostgresFacts, PostgresThreads
from threadhold.storage.work import PostgresWork

log = structlog.get_logger(__name__)


class NotConfigured(Exception):
    """A server that is needed was not named."""

    code = "not_configured"

    def __init__(self, name: str) -> None:
        super().__init__(f"set {name}, or use `threadhold dev`, which brings its own servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What one process shares between its Runner and its worker."""

    settings: Settings
    database: Database
    live: RedisLive
    subscriber: RedisSubscriber
    queue: JobQueue
    wires: RedisWires
    hub: Hub

    async def health(self) -> Health:
        """Say what is wrong with the servers behind this process."""
        postgres = None
        try:
            await self.database.run("ping")
        except Unavailable as error:
            postgres = str(error)
        return Health(
            postgres=postgres, redis=None if self.subscriber.healthy else "the subscription is down"
        )


async def migrate_database(settings: Settings) -> list[str]:
    """Bring the database to this version and return what was applied.

    Raises:
        NotConfigured, Unavailable, ChangedMigration.
    """
    if settings.database_url is None:
        raise NotConfigured("THREADHOLD_DATABASE_URL")
    applied = await migrate(settings.database_url, schema=settings.db_schema)
    if applied:
        log.info("migrated", applied=applied)
    return applied


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Connect to both servers; Redis may be away, Postgres may not.

    Raises:
        NotConfigured: if a URL is missing.
        Unavailable: if Postgres cannot be reached.
    """
    if settings.database_url is None:
        raise NotConfigured("THREADHOLD_DATABASE_URL")
    if settings.redis_url is None:
        raise NotConfigured("THREADHOLD_REDIS_URL")
    async with AsyncExitStack() as stack:
        database = Database(settings.database_url, schema=settings.db_schema, size=settings.pool_size)
        await database.open()
        stack.push_async_callback(database.close)
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        live = RedisLive(redis, prefix=settings.prefix)
        subscriber = RedisSubscriber(settings.redis_url, prefix=settings.prefix)
        stack.push_async_callback(subscriber.aclose)
        queue = JobQueue(ArqRedis(redis.connection_pool), prefix=settings.prefix)
        wires = RedisWires(live=live, publisher=live, queue=queue)
        stack.push_async_callback(wires.aclose)
        hub = Hub(PostgresFacts(database), live, subscriber)
        await hub.start()
        stack.push_async_callback(hub.aclose)
        yield Parts(
            settings=settings,
            database=database,
            live=live,
            subscriber=subscriber,
            queue=queue,
            wires=wires,
            hub=hub,
        )


def make_runner(app: Threadhold, parts: Parts) -> Runner:
    """Return a Runner over these parts."""
    return Runner(
        app,
        threads=PostgresThreads(parts.database),
        messages=PostgresMessages(parts.database),
        runs=PostgresRuns(parts.database),
        wires=parts.wires,
        hub=parts.hub,
    )


async def disown_workers(parts: Parts, *, named: str) -> None:
    """Record what workers of this name have left, at once: the caller knows that they are gone."""
    work = PostgresWork(parts.database, worker=named, ttl=parts.settings.claim_ttl)
    if claims := await work.disown(named):
        log.warning("earlier_claims_lapsed", claims=claims)
        for nudge in await work.sweep(limit=claims):
            parts.wires.announce(nudge)


def worker_id(name: str | None = None) -> str:
    """Return an id for this incarnation of a worker; the name is for people, the rest makes it unique."""
    return f"{name or platform.node() or 'worker'}-{uuid4().hex[:12]}"


@asynccontextmanager
async def running_worker(app: Threadhold, parts: Parts, *, id: str, capacity: int) -> AsyncIterator[Worker]:
    """Run a worker beside whatever else this process does; on leaving it drains within the grace period."""
    settings = parts.settings
    assert settings.database_url is not None
    times = ClaimTimes(
        ttl=settings.claim_ttl.total_seconds(),
        renew_every=settings.renew_every.total_seconds(),
        margin=settings.trust_margin.total_seconds(),
    )
    renewer = PostgresRenewer(
        settings.database_url, schema=settings.db_schema, worker=id, ttl=settings.claim_ttl
    )
    worker = Worker(
        app,
        work=PostgresWork(parts.database, worker=id, ttl=settings.claim_ttl),
        wires=parts.wires,
        live=parts.live,
        keeper=Keeper(renewer, times=times),
        capacity=capacity,
        sweep_every=settings.sweep_every.total_seconds(),
    )
    await parts.subscriber.subscribe_channel(worker_channel(id), _poking(worker))
    await worker.start()
    dispatching = asyncio.create_task(dispatch(worker, parts.queue), name="dispatch")
    try:
        yield worker
    finally:
        dispatching.cancel()
        try:
            await asyncio.gather(dispatching, return_exceptions=True)
            await worker.drain(grace=settings.grace.total_seconds())
        finally:
            await asyncio.shield(asyncio.ensure_future(worker.aclose()))


def _poking(worker: Worker) -> Callable[[bytes], None]:
    def poke(payload: bytes) -> None:
        worker.poke(payload.decode("ascii", "replace"))

    return poke


@asynccontextmanager
async def open_runner(
    app: Threadhold, settings: Settings | None = None, *, capacity: int | None = None
) -> AsyncIterator[Runner]:
    """Open a Runner in a program of one's own.

    Args:
        app: the agents.
        settings: where the servers are; default from the environment.
        capacity: also execute runs here, so many at once; without it messages wait for a worker.

    Raises:
        NotConfigured, Unavailable.
    """
    async with open_parts(settings or Settings()) as parts:
        runner = make_runner(app, parts)
        async with AsyncExitStack() as stack:
            if capacity is not None:
                await stack.enter_async_context(running_worker(app, parts, id=worker_id(), capacity=capacity))
            stack.push_async_callback(runner.aclose)
            yield runner
