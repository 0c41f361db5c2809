"""All numbers of one process: some are counted as things happen, the rest is asked for when somebody looks."""

import asyncio
import time
from collections import Counter as Counted
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from threadhold import __version__
from threadhold.adapters.http.doors import DoorStats
from threadhold.adapters.metrics.counting import PREFIX, Counts
from threadhold.adapters.metrics.sampling import Sampler
from threadhold.adapters.metrics.traffic import Traffic
from threadhold.claims import KeeperStats
from threadhold.fanout.counts import HubStats
from threadhold.runner.worker import WorkerStats

LAG_EVERY_S: Final = 0.5
LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Pool(Protocol):
    """How the connections to Postgres are used."""

    @property
    def size_max(self) -> int:
        """The most there may be."""
        ...

    @property
    def idle(self) -> int:
        """How many do nothing."""
        ...

    @property
    def in_use(self) -> int:
        """How many do something."""
        ...

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        ...


class Subscription(Protocol):
    """A subscription to Redis."""

    @property
    def healthy(self) -> bool:
        """Whether it hears its own publish."""
        ...

    @property
    def resubscriptions(self) -> int:
        """How often it had to connect again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked when somebody looks."""

    hub: Callable[[], HubStats]
    pool: Callable[[], Pool]
    subscriptions: Iterable[Subscription]
    sampler: Sampler


class Metrics(Collector):
    """The metrics of one process, in a registry of their own.

    Args:
        sources: what every process of a stack has.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._workers: list[Callable[[], WorkerStats]] = []
        self._doors: Callable[[], DoorStats] | None = None
        self.registry = CollectorRegistry()
        self.tally = Counts(self.registry)
        self.traffic = Traffic(self.registry)
        self._blocked = Counter(
            f"{PREFIX}loop_blocked", "Blocks of the main loop that were seen", registry=self.registry
        )
        self._lag = Histogram(
            f"{PREFIX}loop_lag_seconds",
            "How late the main loop comes to what is due",
            registry=self.registry,
            buckets=LAG_BUCKETS,
        )
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Measure the main loop for the body of the `with`."""
        measuring = asyncio.create_task(self._measure(), name="loop-lag")
        try:
            yield
        finally:
            measuring.cancel()
            await asyncio.wait({measuring})

    async def _measure(self) -> None:
        while True:
            due = time.perf_counter() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lag.observe(max(0.0, time.perf_counter() - due))

    def blocked(self) -> None:
        """Count a block of the main loop; may be called from any thread."""
        self._blocked.inc()

    @contextmanager
    def worker(self, stats: Callable[[], WorkerStats]) -> Iterator[None]:
        """Show a worker for the body of the `with`."""
        self._workers.append(stats)
        try:
            yield
        finally:
            self._workers.remove(stats)

    def doors(self, stats: Callable[[], DoorStats]) -> None:
        """Show the doors of this process's app from now on."""
        self._doors = stats

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all numbers in a format that the client takes, with its media type."""
        await self._sources.sampler.look()
        encode, content_type = choose_encoder(accept)
        return encode(_Shown(self.registry)), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield what is asked for now."""
        yield _gauge("info", "The version that runs here", {(__version__,): 1}, "version")
        yield from self._of_servers()
        yield from _of_hub(self._sources.hub())
        if self._workers:
            yield from _of_worker(_together([worker() for worker in self._workers]))
        if self._doors is not None:
            yield from _of_doors(self._doors())

    def _of_servers(self) -> Iterator[Metric]:
        seen, pool = self._sources.sampler.last, self._sources.pool()
        subscriptions = list(self._sources.subscriptions)
        yield _gauge("postgres_up", "Whether Postgres answers", seen.postgres)
        yield _gauge("redis_up", "Whether Redis answers", seen.redis)
        yield _gauge(
            "pending_runs",
            "Runs of the whole stack that wait for a worker",
            {(agent,): count for agent, count in (seen.pending or {}).items()},
            "agent",
        )
        uses = {("idle",): pool.idle, ("in_use",): pool.in_use}
        yield _gauge("pool_connections", "Connections to Postgres", uses, "state")
        yield _gauge("pool_connections_max", "The most connections to Postgres", pool.size_max)
        yield _gauge("pool_waiting", "Calls that wait for a connection to Postgres", pool.waiting)
        healthy = all(each.healthy for each in subscriptions)
        yield _gauge("subscriber_healthy", "Whether all subscriptions hear themselves", healthy)
        again = sum(each.resubscriptions for each in subscriptions)
        yield _counter("subscriber_resubscriptions", "Subscriptions over a new connection", again)


class _Shown(Collector):
    """A registry without the times at which each of its counters was made, which double what is scraped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _of_hub(hub: HubStats) -> Iterator[Metric]:
    yield _gauge("watched_threads", "Threads that somebody watches here", hub.threads)
    yield _gauge("watchers", "Watches that are open here", hub.watchers)
    yield _counter("deliveries", "Frames that were handed to watchers", hub.deliveries)
    yield _counter("watch_overflows", "Queues of slow watchers that were given up", hub.overflows)
    yield _counter("watch_gaps", "Gaps that watchers were told of", _by(hub.gaps), "reason")


def _together(workers: Sequence[WorkerStats]) -> WorkerStats:
    """Return the stats of all workers of this process as if they were one."""
    claims = [worker.claims for worker in workers]
    lost: Counted[str] = Counted()
    for each in claims:
        lost.update(each.lost)
    return WorkerStats(
        running=sum(worker.running for worker in workers),
        capacity=sum(worker.capacity for worker in workers),
        dropped=sum(worker.dropped for worker in workers),
        broken=sum(worker.broken for worker in workers),
        claims=KeeperStats(
            held=sum(each.held for each in claims),
            renewed=sum(each.renewed for each in claims),
            failed=sum(each.failed for each in claims),
            age_s=max((each.age_s for each in claims if each.age_s is not None), default=None),
            lost=lost,
        ),
    )


def _of_worker(worker: WorkerStats) -> Iterator[Metric]:
    claims = worker.claims
    yield _gauge("runs_in_progress", "Runs that execute here", worker.running)
    yield _gauge("worker_capacity", "Runs that may execute here at once", worker.capacity)
    yield _counter("outbox_frames_dropped", "Live frames that Redis did not take in time", worker.dropped)
    yield _counter("invariants_broken", "Broken invariants that audits here have seen", worker.broken)
    yield _gauge("claims_held", "Claims that are kept here", claims.held)
    renewals = {("ok",): claims.renewed, ("failed",): claims.failed}
    yield _counter("claim_renewals", "Statements that renewed claims", renewals, "result")
    age = {} if claims.age_s is None else {(): claims.age_s}
    yield _gauge("claim_renewal_age_seconds", "Since renewing claims worked last", age)
    yield _counter("claims_lost", "Claims that were lost here", _by(claims.lost), "why")


def _of_doors(doors: DoorStats) -> Iterator[Metric]:
    yield _gauge("open_sockets", "WebSockets that are open here", doors.sockets)
    yield _counter("consumers_cut", "Peers that took nothing and were cut off", _by(doors.cut), "door")
    yield _counter("rate_limited", "What principals were refused for the moment", _by(doors.limited), "kind")


Values = float | Mapping[Any, float]
"""One number, or one for each tuple of labels."""


def _by(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): count for name, count in counts.items()}


def _gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in _items(values):
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in _items(values):
        family.add_metric(key, value)
    return family


def _items(values: Values) -> Iterable[tuple[Any, float]]:
    return values.items() if isinstance(values, Mapping) else [((), float(values))]
