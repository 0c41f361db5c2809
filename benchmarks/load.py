"""How many runs one worker starts and ends, and how long a start takes under that load."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.rows import Row, latency_row, rate_row
from benchmarks.stack import BY, CAPACITY, Bench
from benchmarks.stamps import now

CLIENTS: Final = 16
RUNS: Final = 640
WARM_UP: Final = 64
GOAL: Final = 300.0


async def measure(bench: Bench) -> list[Row]:
    """Let clients send one message after the other, and then do as many floors, in two rounds each."""
    bench.meter.begin("load", RUNS)
    await _by_clients(WARM_UP, lambda: _started(bench, []))
    starts: list[float] = []
    floors: list[float] = []
    rates: list[float] = []
    floor_rates: list[float] = []
    for _ in range(2):
        floor_rates.append(await _floor_round(bench, floors, RUNS // 2))
        rates.append(await _round(bench, starts, RUNS // 2))
    what = f"runs started and ended, one worker of capacity {CAPACITY}, {CLIENTS} clients"
    rate, floor = sum(rates) / 2, sum(floor_rates) / 2
    return [
        rate_row("load", what, rate, floor, goal=GOAL, n=RUNS),
        latency_row("load-start", "Runner.send -> first line, under that load", starts, floors),
    ]


async def _round(bench: Bench, starts: list[float], count: int) -> float:
    """Return runs per second, from the first send to the last end as the database has them."""
    runs: list[str] = []

    async def one() -> None:
        runs.append(await _started(bench, starts))
        bench.meter.tick()

    await _by_clients(count, one)
    seen = [await bench.ended(run) for run in runs]
    began = min(run.created_at for run in seen)
    ended = max(run.ended_at for run in seen if run.ended_at is not None)
    return count / (ended - began).total_seconds()


async def _floor_round(bench: Bench, floors: list[float], count: int) -> float:
    began = now()

    async def one() -> None:
        floors.append(await bench.floors.start())

    await _by_clients(count, one)
    return count / (now() - began)


async def _started(bench: Bench, starts: list[float]) -> str:
    """Start a run and return its id once its model was asked."""
    began = now()
    receipt = await bench.runner.send(None, "noop", by=BY, agent="bench")
    run = receipt.run or ""
    starts.append(await bench.stamps.of("deps", run) - began)
    await bench.stamps.of("model", run)
    return run


async def _by_clients(count: int, one: Callable[[], Awaitable[None | str]]) -> None:
    """Do something `count` times, by clients that each wait for their last before they do the next."""

    async def client() -> None:
        for _ in range(count // CLIENTS):
            await one()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
