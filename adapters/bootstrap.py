"""The composition root: picks the backends and wires them. Beside the process that renews, nobody else knows which."""

import asyncio
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import structlog
from arq.connections import ArqRedis

from threadhold.adapters.dispatch import JobQueue, dispatch
from threadhold.adapters.executor.wires import ExecutorWires, asker_channel
from threadhold.adapters.http.health import Health
from threadhold.adapters.keeping import child_process
from threadhold.adapters.metrics.process import Metrics, Sources
from threadhold.adapters.metrics.sampling import Sampler
from threadhold.adapters.settings import Settings
from threadhold.adapters.wires import RedisWires, worker_channel
from threadhold.claims import Blocker, ClaimTimes, Keeper
from threadhold.claims.blocks import Lookout, say_blocked
from threadhold.claims.board import Board
from threadhold.fanout.connections import Client, connect
from threadhold.fanout.hub import Hub
from threadhold.fanout.nodes import NodesLive, NodesSubscriber
from threadhold.fanout.ports import LiveLog
from threadhold.fanout.redis import RedisLive, RedisSignals
from threadhold.fanout.subscriber import RedisSubscriber
from threadhold.runner.admitting import Admitting
from threadhold.runner.app import Threadhold
from threadhold.runner.deaths import Deaths
from threadhold.runner.errors import Unavailable
from threadhold.runner.holding import Holding
from threadhold.runner.records import Principal
from threadhold.runner.remote import Remote
from threadhold.runner.repositories import RunRepository
from threadhold.runner.service import Runner
from threadhold.runner.worker import Worker
from threadhold.storage.claims import PostgresHolders
from threadhold.storage.executions import PostgresExecutions
from threadhold.storage.grants import PostgresGrants
from threadhold.storage.log import PostgresLog
from threadhold.storage.messages import PostgresMessages
from threadhold.storage.migrate import migrate
from threadhold.storage.pool import Database
from threadhold.storage.remote import PostgresRemote
from threadhold.storage.repositories import PostgresRepository
from threadhold.storage.requests import PostgresRequests
from threadhold.storage.runs import PostgresRuns
from threadhold.storage.spend import PostgresSpend
from threadhold.storage.threads import PostgresFacts, PostgresThreads
from threadhold.storage.work import PostgresWork

log = structlog.get_logger(__name__)

DISPATCH_END_TRIES: Final = 10
DISPATCH_END_S: Final = 0.5
HEARD_S: Final = 3.0
RECORD_TTL: Final = timedelta(minutes=5)


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
    live: LiveLog
    ears: RedisSubscriber
    """Hears what is said to this process's workers."""
    frames: NodesSubscriber | RedisSubscriber
    """Hears what is said of threads; the same connection, unless live frames have servers of their own."""
    queue: JobQueue
    wires: RedisWires
    hub: Hub
    metrics: Metrics

    async def health(self) -> Health:
        """Say what is wrong with the servers behind this process."""
        postgres = None
        try:
            await self.database.run("ping")
        except Unavailable as error:
            postgres = str(error)
        return Health(
            postgres=postgres,
            redis=None if self.ears.healthy and self.frames.healthy else "the subscription is down",
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


async def audit_database(settings: Settings) -> list[dict[str, Any]]:
    """Return every broken invariant of the database; empty on a healthy one.

    Raises:
        NotConfigured, Unavailable.
    """
    if settings.database_url is None:
        raise NotConfigured("THREADHOLD_DATABASE_URL")
    database = Database(settings.database_url, schema=settings.db_schema, size=1)
    await database.open()
    try:
        return await PostgresWork(database, worker="audit", ttl=settings.claim_ttl).audit()
    finally:
        await database.close()


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
        ears = RedisSubscriber(settings.redis_url, prefix=settings.redis_prefix)
        stack.push_async_callback(ears.aclose)
        live, frames = _live_over(settings, redis, ears, stack)
        queue = JobQueue(ArqRedis(redis.connection_pool), prefix=settings.redis_prefix)
        signals = RedisSignals(redis, prefix=settings.redis_prefix)
        wires = RedisWires(live=live, publisher=signals, queue=queue)
        stack.push_async_callback(wires.aclose)
        hub = Hub(PostgresFacts(database), live, frames)
        await hub.start()
        stack.push_async_callback(hub.aclose)
        await _hear_oneself(ears, frames)
        metrics = _metrics(database, hub, queue, subscriptions={ears, frames})
        await stack.enter_async_context(metrics.running())
        yield Parts(
            settings=settings,
            database=database,
            live=live,
            ears=ears,
            frames=frames,
            queue=queue,
            wires=wires,
            hub=hub,
            metrics=metrics,
        )


def _metrics(
    database: Database, hub: Hub, queue: JobQueue, *, subscriptions: set[NodesSubscriber | RedisSubscriber]
) -> Metrics:
    sampler = Sampler(pending=PostgresRuns(database).pending, ping=queue.redis.ping)
    return Metrics(Sources(hub=hub.stats, pool=database.stats, subscriptions=subscriptions, sampler=sampler))


def _live_over(
    settings: Settings, redis: Client, ears: RedisSubscriber, stack: AsyncExitStack
) -> tuple[LiveLog, NodesSubscriber | RedisSubscriber]:
    """Return the live log and what hears of it: beside the rest, or on servers of their own."""

    def window(client: Client) -> RedisLive:
        frames_max, ttl = settings.live_frames, settings.live_ttl.total_seconds()
        live = RedisLive(client, prefix=settings.redis_prefix, stream_frames_max=frames_max, ttl=ttl)
        stack.push_async_callback(live.aclose)
        return live

    if not settings.live_nodes:
        return window(redis), ears
    clients = [connect(url) for url in settings.live_nodes]
    for client in clients:
        stack.push_async_callback(client.aclose)
    subscriber = NodesSubscriber(
        [RedisSubscriber(url, prefix=settings.redis_prefix) for url in settings.live_nodes]
    )
    stack.push_async_callback(subscriber.aclose)
    return NodesLive([window(client) for client in clients]), subscriber


async def _hear_oneself(*subscribers: NodesSubscriber | RedisSubscriber) -> None:
    """Return when this process hears what it publishes; without Redis it does its work all the same."""
    try:
        async with asyncio.timeout(HEARD_S):
            await asyncio.gather(*(subscriber.wait_healthy() for subscriber in subscribers))
    except TimeoutError:
        hint = "are THREADHOLD_REDIS_URL and THREADHOLD_LIVE_REDIS_URLS right, and the servers up?"
        log.warning("redis_not_heard", seconds=HEARD_S, hint=hint)


def make_runner(app: Threadhold, parts: Parts) -> Runner:
    """Return a Runner over these parts."""
    id, tally = worker_id("runner"), parts.metrics.tally
    admitting = Admitting(environment=parts.settings.environment, budgets=app.budgets)
    holding = Holding(
        work=PostgresWork(
            parts.database, worker=id, ttl=parts.settings.claim_ttl, tally=tally, admitting=admitting
        ),
        wires=parts.wires,
        keeper=lambda: make_keeper(parts.settings, id=id, metrics=parts.metrics),
    )
    return Runner(
        app,
        threads=PostgresThreads(parts.database),
        messages=PostgresMessages(parts.database, tally=tally, admitting=admitting),
        runs=PostgresRuns(parts.database, tally=tally, admitting=admitting),
        requests=PostgresRequests(parts.database, tally=tally),
        log=PostgresLog(parts.database),
        executions=PostgresExecutions(parts.database, admitting=admitting),
        grants=PostgresGrants(parts.database),
        spend=PostgresSpend(parts.database),
        holding=holding,
        wires=parts.wires,
        hub=parts.hub,
    )


async def disown_workers(parts: Parts, *, named: str) -> None:
    """Record what workers of this name have left, at once: the caller knows that they are gone."""
    ttl, tally = parts.settings.claim_ttl, parts.metrics.tally
    work = PostgresWork(parts.database, worker=named, ttl=ttl, tally=tally)
    if claims := await work.disown(named):
        log.warning("earlier_claims_lapsed", claims=claims)
        for nudge in await work.sweep(limit=claims):
            parts.wires.announce(nudge)


def worker_id(name: str | None = None) -> str:
    """Return an id for this incarnation of a worker; the name is for people, the rest makes it unique."""
    return f"{name or platform.node() or 'worker'}-{uuid4().hex[:12]}"


def make_keeper(settings: Settings, *, id: str, metrics: Metrics) -> Keeper:
    """Return a keeper for the claims of a worker, to be started in the main thread of its loop."""
    assert settings.database_url is not None
    times = ClaimTimes(
        ttl=settings.claim_ttl.total_seconds(),
        renew_every=settings.renew_every.total_seconds(),
        margin=settings.trust_margin.total_seconds(),
    )
    board = Board()
    child = child_process(
        board,
        url=settings.database_url,
        schema=settings.db_schema,
        worker=id,
        times=times,
    )

    def say(seconds: float, who: Blocker | None) -> None:
        metrics.blocked()
        say_blocked(seconds, who)

    return Keeper(child, board, times=times, lookout=Lookout(say))


@asynccontextmanager
async def running_worker(app: Threadhold, parts: Parts, *, id: str, capacity: int) -> AsyncIterator[Worker]:
    """Run a worker beside whatever else this process does; on leaving it drains within the grace period."""
    settings = parts.settings
    assert settings.database_url is not None
    holders = PostgresHolders(settings.database_url, schema=settings.db_schema, worker=id)
    keeper = make_keeper(settings, id=id, metrics=parts.metrics)
    calls = executor_wires(parts)
    remote = Remote(PostgresRemote(parts.database, worker=id), calls)
    worker = Worker(
        app,
        work=PostgresWork(parts.database, worker=id, ttl=settings.claim_ttl, tally=parts.metrics.tally),
        wires=parts.wires,
        live=parts.live,
        keeper=keeper,
        deaths=Deaths(holders),
        remote=remote,
        capacity=capacity,
        sweep_every=settings.sweep_every.total_seconds(),
    )
    await parts.ears.subscribe_channel(worker_channel(id), hearing(worker.poke))
    await parts.ears.subscribe_channel(asker_channel(id), hearing(remote.hear))
    try:
        await worker.start()
    except BaseException:
        await keeper.aclose()
        raise
    # Also while it drains: then most of all somebody looks.
    shown = ExitStack()
    shown.enter_context(parts.metrics.worker(worker.stats))
    dispatching = asyncio.create_task(dispatch(worker, parts.queue), name="dispatch")
    try:
        yield worker
    finally:
        worker.leave()
        try:
            await end_dispatch(dispatching)
            await worker.drain(grace=settings.grace.total_seconds())
        finally:
            shown.close()
            await asyncio.shield(asyncio.ensure_future(worker.aclose()))
            await calls.aclose()


async def end_dispatch(dispatching: asyncio.Task[None]) -> None:
    """Cancel the dispatcher until it has ended, a few seconds at most; the worker takes nothing from it any more."""
    for _ in range(DISPATCH_END_TRIES):
        dispatching.cancel()
        await asyncio.wait({dispatching}, timeout=DISPATCH_END_S)
        if dispatching.done():
            return
    log.warning("dispatch_does_not_end")


def hearing(act: Callable[[str], None]) -> Callable[[bytes], None]:
    """Return what calls this with the id that is the payload."""
    return lambda payload: act(payload.decode("ascii", "replace"))


def executor_wires(parts: Parts) -> ExecutorWires:
    """Return the hints between workers and executors; their arq queue is one of its own."""
    prefix = parts.settings.redis_prefix
    signals = RedisSignals(parts.queue.redis, prefix=prefix)
    return ExecutorWires(publisher=signals, queue=JobQueue(parts.queue.redis, prefix=f"{prefix}tools:"))


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


@asynccontextmanager
async def open_repository(
    by: Principal, settings: Settings | None = None, *, holder: str | None = None, ttl: timedelta = RECORD_TTL
) -> AsyncIterator[RunRepository]:
    """Open the records of runs that a program of one's own keeps.

    Args:
        by: who reads and writes.
        settings: where the servers are; default from the environment.
        holder: this program's name, for whoever asks who holds a run; the machine's by default.
        ttl: how long a running run may go without a write before it counts as abandoned.

    Raises:
        NotConfigured, Unavailable.
    """
    async with open_parts(settings or Settings()) as parts:
        yield PostgresRepository(
            parts.database,
            by=by,
            holder=worker_id(holder),
            ttl=ttl,
            announce=parts.wires.announce,
            admitting=Admitting(environment=parts.settings.environment),
        )
