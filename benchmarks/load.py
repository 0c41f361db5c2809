"""How many runs one worker starts and ends, and how long a start takes under that load."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.bounds import bounded
from benchmarks.rows import Row, latency_row, rate_row
from benchmarks.stack import BY, CAPACITY, Bench
from benchmarks.stamps import now

CLIENTS: Final = 16
ROUNDS: Final = 2
RUNS_PER_ROUND: Final = 320
ROUND_WITHIN_S: Final = 8.0
WARM_UP: Final = 64
GOAL: Final = 300.0


async def measure(bench: Bench) -> list[Row]:
    """Let clients send one message after the other, and then do as many floors, in two rounds each."""
    bench.meter.begin("load", ROUNDS * RUNS_PER_ROUND)
    await _by_clients(WARM_UP, lambda: _started(bench, []))
    starts: list[float] = []
    floors: list[float] = []
    rates: list[float] = []
    floor_rates: list[float] = []
    for _ in range(ROUNDS):
        floor_rates.append(await _floor_round(bench, floors))
        rates.append(await _round(bench, starts))
    what = f"runs started and ended, one worker of capacity {CAPACITY}, {CLIENTS} clients"
    rate, floor = sum(rates) / ROUNDS, sum(floor_rates) / ROUNDS
    return [
        rate_row("load", what, rate, floor, goal=GOAL, n=len(starts)),
        latency_row("load-start", "Runner.send -> first line, under that load", starts, floors),
    ]


async def _round(bench: Bench, starts: list[float]) -> float:
    """Return runs per second, from the first send to the last end as the database has them."""
    runs: list[str] = []

    async def one() -> None:
        runs.append(await _started(bench, starts))
        bench.meter.tick()

    await _by_clients(RUNS_PER_ROUND, one)
    seen = [await bench.ended(run) for run in runs]
    began = min(run.created_at for run in seen)
    ended = max(run.ended_at for run in seen if run.ended_at is not None)
    return len(runs) / (ended - began).total_seconds()


async def _floor_round(bench: Bench, floors: list[float]) -> float:
    before, began = len(floors), now()

    async def one() -> None:
        floors.append(await bench.floors.start())

    await _by_clients(RUNS_PER_ROUND, one)
    return (len(floors) - before) / (now() - began)


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
    left = iter(bounded(count, ROUND_WITHIN_S))

    async def client() -> None:
        for _ in left:
            await one()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
