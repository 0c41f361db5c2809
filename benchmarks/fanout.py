"""What it costs to bring frames to many watchers: in one process, through the doors, and in memory."""

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks import doors, memory
from benchmarks.errors import BenchError
from benchmarks.feed import Feed, open_feed
from benchmarks.remote import Child, child
from benchmarks.rows import Row, cost_row, latency_row, percentile, rate_row
from benchmarks.servers import Listeners, Spent, listeners, spent
from benchmarks.stack import Bench

GOAL: Final = 100_000.0
IDLE_S: Final = 6.0
COPIES: Final = (1, 21)
COPY_BYTES: Final = 400
COPY_TIMES: Final = 1000
HEADS_SAMPLES: Final = 20
# After the attempt frame, which is the first.
SINGLES: Final = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A crowd and what it is fed.

    Args:
        name: of the rows.
        threads, each: how many threads, and watchers of each.
        marks, frames: how often the crowd says how far it is, and frames per thread from one time to the next.
        drops, pause: frames at the moderate rate, and seconds between them.
    """

    name: str
    threads: int
    each: int
    marks: int
    frames: int
    drops: int
    pause: float

    @property
    def what(self) -> str:
        """The crowd in words."""
        if self.threads > 1:
            return f"{self.threads} threads, {self.each} watcher each"
        return f"1 thread, {self.each} watchers"


SETUPS: Final = (
    Setup(name="fanout-1", threads=1, each=1, marks=60, frames=50, drops=100, pause=0.02),
    Setup(name="fanout-10", threads=1, each=10, marks=60, frames=50, drops=100, pause=0.02),
    Setup(name="fanout-100", threads=1, each=100, marks=40, frames=50, drops=75, pause=0.02),
    Setup(name="fanout-1000", threads=1, each=1000, marks=14, frames=50, drops=50, pause=0.04),
    Setup(name="fanout-threads", threads=1000, each=1, marks=10, frames=1, drops=1000, pause=0.002),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one crowd did.

    `rate` is deliveries per second, `cpu` and `slow_cpu` processor seconds per delivery, as fast as can be and at the
    moderate rate; `lags` are in seconds; `redis` is what the server did for `frames` frames.
    """

    rate: float
    cpu: float
    slow_cpu: float
    deliveries: int
    lags: list[float]
    redis: Spent
    frames: int


async def measure(bench: Bench) -> list[Row]:
    """Feed crowds in a process of their own, and the floor's crowds, by turns; then the doors; then weigh."""
    bench.meter.begin("fanout", len(SETUPS) * 2)
    rows: list[Row] = []
    async with open_feed(bench) as feed:
        before = await listeners(feed.redis)
        async with (
            child("hub", "benchmarks.crowd", "hub", env=bench.env, logs=bench.logs) as hub,
            child("bare", "benchmarks.crowd", "bare", env=bench.env, logs=bench.logs) as bare,
        ):
            for setup in SETUPS:
                floor = await _taken(bench, feed, bare, setup, name=f"bare-{setup.name}")
                taken = await _taken(bench, feed, hub, setup, name=setup.name)
                rows += _rows(setup, taken, floor)
            rows += await _idle_rows(feed, hub, before)
            rows.append(await _copy_row(feed))
        rows += await doors.measure(bench, feed)
        rows += await memory.measure(bench, feed)
    return rows


async def _taken(bench: Bench, feed: Feed, crowd: Child, setup: Setup, *, name: str) -> Taken:
    """Let a crowd enter, flood it, feed it at a moderate rate, and let it go.

    Raises:
        BenchError: if somebody was too slow, so that the numbers would mean something else.
    """
    threads = await feed.threads(setup.threads)
    every = setup.threads * setup.each * setup.frames
    await crowd.ask("watch", name=name, threads=threads, each=setup.each, every=every)
    async with feed.outboxes(threads) as outboxes:
        before = await spent(feed.redis)
        await feed.flood(name, outboxes, marks=setup.marks, each=setup.frames)
        flooded = await crowd.ask("until", count=every * setup.marks)
        redis = (await spent(feed.redis)).since(before)
        await crowd.ask("sample")
        busy = (await crowd.ask("cpu"))["cpu"]
        await feed.drip(outboxes, frames=setup.drops, pause=setup.pause)
        dripped = await crowd.ask("until", count=flooded["count"] + setup.drops * setup.each)
        slow_cpu = (await crowd.ask("cpu"))["cpu"] - busy
    await crowd.ask("leave")
    bench.meter.tick()
    if dripped["gaps"] or dripped["overflows"]:
        raise BenchError(f"{name}: {dripped['gaps']} gaps and {dripped['overflows']} overflows")
    return Taken(
        rate=flooded["deliveries"] / flooded["wall"],
        cpu=flooded["cpu"] / flooded["deliveries"],
        slow_cpu=slow_cpu / (setup.drops * setup.each),
        deliveries=flooded["deliveries"],
        lags=dripped["lags"],
        redis=redis,
        frames=setup.threads * setup.frames * setup.marks,
    )


def _rows(setup: Setup, taken: Taken, floor: Taken) -> list[Row]:
    what, rate = setup.what, 1 / setup.pause
    goal = GOAL if setup.name == "fanout-1000" else None
    rows = [
        rate_row(
            setup.name,
            f"deliveries per second, {what}",
            taken.rate,
            floor.rate,
            goal=goal,
            n=taken.deliveries,
        ),
        cost_row(
            f"{setup.name}-cpu",
            f"processor time of the watching process per delivery, {what}",
            taken.cpu * 1e6,
            floor.cpu * 1e6,
            unit="us",
            n=taken.deliveries,
        ),
        cost_row(
            f"{setup.name}-cpu-slow",
            f"the same at {rate:g} frames/s",
            taken.slow_cpu * 1e6,
            floor.slow_cpu * 1e6,
            unit="us",
            n=setup.drops * setup.each,
        ),
        latency_row(
            f"{setup.name}-lag", f"Outbox.put -> watcher, {rate:g} frames/s, {what}", taken.lags, floor.lags
        ),
    ]
    if setup.each > 1 and setup.name != "fanout-1000":
        return rows
    calls = ", ".join(
        f"{name} {count / taken.frames:.2f}" for name, count in sorted(taken.redis.calls.items())
    )
    rows.append(
        cost_row(
            f"{setup.name}-redis",
            f"processor time of Redis per frame, {what}; calls per frame: {calls}",
            taken.redis.cpu / taken.frames * 1e6,
            floor.redis.cpu / floor.frames * 1e6,
            unit="us",
            n=taken.frames,
        )
    )
    return rows


async def _idle_rows(feed: Feed, hub: Child, before: Listeners) -> list[Row]:
    """Let 1,000 threads, each watched once, be busy and silent: what is spent then, is spent on looking."""
    threads = await feed.threads(1000)
    await hub.ask("watch", name="idle", threads=threads, each=1, every=1)
    async with feed.outboxes(threads):
        await asyncio.sleep(1.0)
        listening = await listeners(feed.redis)
        redis, busy = await spent(feed.redis), (await hub.ask("cpu"))["cpu"]
        await asyncio.sleep(IDLE_S)
        looked, cpu = (await spent(feed.redis)).since(redis), (await hub.ask("cpu"))["cpu"] - busy
        heads = [await feed.heads(threads) for _ in range(HEADS_SAMPLES)]
        singles = await _single_row(feed, threads)
    await hub.ask("leave")
    calls = ", ".join(f"{name} {count / IDLE_S:.1f}/s" for name, count in sorted(looked.calls.items()))
    what = "1000 busy threads in which nothing happens, 1 watcher each"
    return [
        singles,
        cost_row(
            "fanout-idle-cpu",
            f"processor time of the watching process per thread and second, {what}",
            cpu / IDLE_S / len(threads) * 1e6,
            unit="us",
            n=len(threads),
        ),
        cost_row(
            "fanout-idle-redis",
            f"processor time of Redis per thread and second, whole stack, {what}; calls: {calls}",
            looked.cpu / IDLE_S / len(threads) * 1e6,
            unit="us",
            n=len(threads),
        ),
        cost_row(
            "fanout-heads",
            "the query for the heads of 1000 threads, each 2 s per watching process",
            percentile(heads, 50) * 1000,
            unit="ms",
            n=len(heads),
        ),
        cost_row(
            "fanout-connections",
            "subscribed connections of the watching process; "
            f"{listening.subscriptions - before.subscriptions} subscriptions, 1 of them its heartbeat",
            listening.connections - before.connections,
            unit="",
            goal=1,
            n=len(threads),
        ),
    ]


async def _single_row(feed: Feed, threads: list[str]) -> Row:
    """Store frames one by one, as runs do that stream at their own pace, and ring as many doorbells."""
    times = len(SINGLES)
    before = await spent(feed.redis)
    await feed.singly(threads, SINGLES)
    between = await spent(feed.redis)
    await feed.rung(threads, times)
    singly, rung = between.since(before), (await spent(feed.redis)).since(between)
    count = times * len(threads)
    return cost_row(
        "fanout-frame-redis",
        "processor time of Redis per frame that is stored by itself, 1 process listens; the floor is a doorbell; "
        f"{singly.calls['evalsha'] / count:.2f} scripts and {singly.total / count:.2f} calls per frame",
        singly.cpu / count * 1e6,
        rung.cpu / count * 1e6,
        unit="us",
        n=count,
    )


async def _copy_row(feed: Feed) -> Row:
    """Publish to one listener and to many: each more is one more process that watches the thread."""
    cpu = []
    for count in COPIES:
        before = await spent(feed.redis)
        await feed.copied("x" * COPY_BYTES, listeners=count, times=COPY_TIMES)
        cpu.append((await spent(feed.redis)).since(before).cpu / COPY_TIMES)
    return cost_row(
        "fanout-copy-redis",
        f"processor time of Redis per frame of {COPY_BYTES} bytes and listening process more, "
        f"from {COPIES[0]} to {COPIES[1]} of them",
        (cpu[1] - cpu[0]) / (COPIES[1] - COPIES[0]) * 1e6,
        unit="us",
        n=COPY_TIMES,
    )
