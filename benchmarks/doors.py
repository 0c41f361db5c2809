"""What a delivery costs the API replica, over WebSocket and over server-sent events."""

import json
from dataclasses import dataclass
from typing import Final

from benchmarks.errors import BenchError
from benchmarks.feed import Feed
from benchmarks.remote import child, cpu_of, resident_of
from benchmarks.rows import Row, cost_row, latency_row, rate_row
from benchmarks.sockets import URL_VARIABLE
from benchmarks.stack import TARGET, Bench, process, ready

FRAMES: Final = 10
DROPS: Final = 50
PAUSE_S: Final = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A way in, how many clients, and how often they say how far they are."""

    way: str
    clients: int
    marks: int

    @property
    def name(self) -> str:
        """The name of the rows."""
        return f"fanout-{self.way}-{self.clients}"


SETUPS: Final = (
    Setup(way="ws", clients=1, marks=100),
    Setup(way="ws", clients=100, marks=20),
    Setup(way="ws", clients=500, marks=8),
    Setup(way="sse", clients=100, marks=20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a door did.

    `rate` is deliveries per second, `cpu` and `slow_cpu` processor seconds per delivery, as fast as can be and at the
    moderate rate, at which no two frames are written together; `lags` are in seconds, `memory` is bytes per client.
    """

    rate: float
    cpu: float
    slow_cpu: float
    deliveries: int
    lags: list[float]
    memory: float


async def measure(bench: Bench, feed: Feed) -> list[Row]:
    """Feed clients of a replica, and clients of the floor's door, by turns."""
    bench.meter.begin("doors", len(SETUPS) * 2)
    rows: list[Row] = []
    commands = {"bare_door": ["benchmarks.bare_door"], "door": ["threadhold", "serve", TARGET, "--port", "0"]}
    for setup in SETUPS:
        floor, taken = [
            await _taken(bench, feed, setup, name=name, command=command) for name, command in commands.items()
        ]
        rows += _rows(setup, taken, floor)
    return rows


async def _taken(bench: Bench, feed: Feed, setup: Setup, *, name: str, command: list[str]) -> Taken:
    """Start a door and clients, flood them, and feed them at a moderate rate.

    Raises:
        BenchError: if a client was told of a gap.
    """
    [thread] = await feed.threads(1)
    round, every = f"{name}-{setup.name}", setup.clients * FRAMES
    with process(round, command, env=bench.env, logs=bench.logs) as started:
        said = json.loads(await ready(started.log, '"api_ready"'))
        env, door = bench.env | {URL_VARIABLE: said["url"]}, started.pid
        async with child(
            f"clients-{round}", "benchmarks.crowd", setup.way, env=env, logs=bench.logs
        ) as crowd:
            empty = resident_of(door)
            await crowd.ask("watch", name=round, threads=[thread], each=setup.clients, every=every)
            memory = (resident_of(door) - empty) / setup.clients
            async with feed.outboxes([thread]) as outboxes:
                busy = cpu_of(door)
                await feed.flood(round, outboxes, marks=setup.marks, each=FRAMES)
                flooded = await crowd.ask("until", count=every * setup.marks)
                cpu = cpu_of(door) - busy
                await crowd.ask("sample")
                busy = cpu_of(door)
                await feed.drip(outboxes, frames=DROPS, pause=PAUSE_S)
                dripped = await crowd.ask("until", count=flooded["count"] + DROPS * setup.clients)
                slow_cpu = cpu_of(door) - busy
    bench.meter.tick()
    if dripped["gaps"]:
        raise BenchError(f"{round}: {dripped['gaps']} gaps")
    return Taken(
        rate=flooded["deliveries"] / flooded["wall"],
        cpu=cpu / flooded["count"],
        slow_cpu=slow_cpu / (DROPS * setup.clients),
        deliveries=flooded["count"],
        lags=dripped["lags"],
        memory=memory,
    )


def _rows(setup: Setup, taken: Taken, floor: Taken) -> list[Row]:
    name, what = setup.name, f"{setup.clients} clients of one thread over {setup.way}"
    rows = [
        rate_row(name, f"deliveries per second, {what}", taken.rate, floor.rate, n=taken.deliveries),
        cost_row(
            f"{name}-cpu",
            f"processor time of the API replica per delivery, {what}",
            taken.cpu * 1e6,
            floor.cpu * 1e6,
            unit="us",
            n=taken.deliveries,
        ),
        cost_row(
            f"{name}-cpu-slow",
            f"the same at {1 / PAUSE_S:g} frames/s",
            taken.slow_cpu * 1e6,
            floor.slow_cpu * 1e6,
            unit="us",
            n=DROPS * setup.clients,
        ),
        latency_row(
            f"{name}-lag", f"Outbox.put -> client, {1 / PAUSE_S:g} frames/s, {what}", taken.lags, floor.lags
        ),
    ]
    if setup.clients > 1:
        memory = f"memory of the API replica per client, {what}"
        weight = cost_row(
            f"{name}-memory", memory, taken.memory / 1024, floor.memory / 1024, unit="KB", n=setup.clients
        )
        rows.append(weight)
    return rows
