"""How long it takes from a send to the agent's first line on a worker in another process."""

import asyncio
from typing import Final

from benchmarks.bounds import bounded
from benchmarks.rows import Row, latency_row
from benchmarks.stack import BY, Bench
from benchmarks.stamps import now

SAMPLES: Final = 150
WITHIN_S: Final = 20.0
WARM_UP: Final = 10
CROWD: Final = 10


async def measure(bench: Bench) -> list[Row]:
    """Send over the Runner in this process, over REST, and run the floor, by turns."""
    bench.meter.begin("start", SAMPLES)
    await asyncio.gather(*(_sent(bench) for _ in range(CROWD)))  # opens the pools' connections
    deps: list[float] = []
    model: list[float] = []
    rest: list[float] = []
    floor: list[float] = []
    for number in bounded(WARM_UP + SAMPLES, WITHIN_S):
        to_deps, to_model = await _sent(bench)
        least = await bench.floors.start()
        over_rest = await _sent_over_rest(bench)
        if number >= WARM_UP:
            deps.append(to_deps)
            model.append(to_model)
            rest.append(over_rest)
            floor.append(least)
            bench.meter.tick()
    first = "first line of the agent's dependencies factory"
    return [
        latency_row("start", f"Runner.send -> {first}", deps, floor, goal_ms=6, ratio_max=3),
        latency_row("start-model", "Runner.send -> first line of the model function", model, floor),
        latency_row("start-rest", f"POST to an API replica -> {first}", rest, floor),
    ]


async def _sent(bench: Bench) -> tuple[float, float]:
    """Start a run on a new thread; return the seconds to the first lines of the factory and of the model."""
    began = now()
    receipt = await bench.runner.send(None, "noop", by=BY, agent="bench")
    run = receipt.run or ""
    to_deps = await bench.stamps.of("deps", run) - began
    to_model = await bench.stamps.of("model", run) - began
    await bench.ended(run)
    return to_deps, to_model


async def _sent_over_rest(bench: Bench) -> float:
    began = now()
    receipt = await bench.client.send(None, "noop", agent="bench")
    run = receipt.run or ""
    taken = await bench.stamps.of("deps", run) - began
    await bench.stamps.of("model", run)
    await bench.ended(run)
    return taken
