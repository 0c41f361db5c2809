"""How many runs one worker starts and ends, and how long a start takes under that load."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from statistics import mean
from typing import Any, Final

from benchmarks.bounds import bounded
from benchmarks.errors import ProcessEnded
from benchmarks.rows import Row, latency_row, rate_row
from benchmarks.stack import BY, CAPACITY, ROOT, Bench
from benchmarks.stamps import PORT_VARIABLE, now

CLIENTS: Final = 16
ROUNDS: Final = 2
RUNS_PER_ROUND: Final = 320
ROUND_WITHIN_S: Final = 8.0
FLOOR_WITHIN_S: Final = 3.0
BARE_WITHIN_S: Final = 30.0
WARM_UP: Final = 64
GOAL: Final = 300.0


async def measure(bench: Bench) -> list[Row]:
    """Let clients send one message after the other; before each round of that, a round of each floor."""
    bench.meter.begin("load", ROUNDS * RUNS_PER_ROUND)
    await _by_clients(WARM_UP, lambda: _started(bench, []), within=FLOOR_WITHIN_S)
    starts: list[float] = []
    floors: list[float] = []
    rates: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS):
        bare.append(await _bare_rate())
        await _floor_round(bench, floors)
        rates.append(await _round(bench, starts))
    what = (
        f"runs started and ended, one worker of capacity {CAPACITY}, {CLIENTS} clients; "
        "floor: the bare agent.run in a process of its own"
    )
    return [
        rate_row("load", what, mean(rates), mean(bare), goal=GOAL, n=len(starts)),
        latency_row("load-start", "Runner.send -> first line, under that load", starts, floors),
    ]


async def _round(bench: Bench, starts: list[float]) -> float:
    """Return runs per second, from the first send to the last end as the database has them."""
    runs: list[str] = []

    async def one() -> None:
        runs.append(await _started(bench, starts))
        bench.meter.tick()

    await _by_clients(RUNS_PER_ROUND, one, within=ROUND_WITHIN_S)
    seen = [await bench.ended(run) for run in runs]
    began = min(run.created_at for run in seen)
    ended = max(run.ended_at for run in seen if run.ended_at is not None)
    return len(runs) / (ended - began).total_seconds()


async def _started(bench: Bench, starts: list[float]) -> str:
    """Start a run and return its id once its model was asked."""
    began = now()
    receipt = await bench.runner.send(None, "noop", by=BY, agent="bench")
    run = receipt.run or ""
    starts.append(await bench.stamps.of("deps", run) - began)
    await bench.stamps.of("model", run)
    return run


async def _floor_round(bench: Bench, floors: list[float]) -> None:
    async def one() -> None:
        floors.append(await bench.floors.start())

    await _by_clients(RUNS_PER_ROUND, one, within=FLOOR_WITHIN_S)


async def _bare_rate() -> float:
    """Return how often a second pydantic-ai alone runs the same agent.

    Raises:
        ProcessEnded: if that process prints no number.
    """
    words = ["-m", "benchmarks.bare", str(RUNS_PER_ROUND), str(CLIENTS), str(FLOOR_WITHIN_S)]
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, PORT_VARIABLE: "9"}  # nobody listens there
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, env=env, stdout=pipe, stderr=pipe
    )
    said = errors = b""
    try:
        async with asyncio.timeout(BARE_WITHIN_S):
            said, errors = await child.communicate()
        return float(said)
    except (TimeoutError, ValueError):
        raise ProcessEnded("the bare agent", errors.decode(errors="replace")) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _by_clients(count: int, one: Callable[[], Awaitable[Any]], *, within: float) -> None:
    """Do something `count` times, by clients that each wait for their last before they do the next.

    Args:
        count: at most so many times in all.
        one: what to do.
        within: seconds, after which nobody begins another.
    """
    left = iter(bounded(count, within))

    async def client() -> None:
        for _ in left:
            await one()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
