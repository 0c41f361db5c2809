"""How long it takes from the death of a worker (kill -9) to the recorded end of its run, with default settings."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.errors import BenchError, NothingCame
from benchmarks.rows import Row, latency_row
from benchmarks.stack import BY, ROOT, Bench, ready
from benchmarks.stamps import now
from benchmarks.victims import VARIABLE, VICTIMS_MAX, app, victim
from threadhold.adapters.bootstrap import open_runner
from threadhold.runner.deaths import DEAD_AFTER_S
from threadhold.runner.machine import is_final
from threadhold.runner.service import Runner

SAMPLES: Final = 20
# Workers that live side by side; each start keeps a core busy for two seconds or more.
BATCH: Final = 3
WITHIN_S: Final = 60.0
# The first one dies while no lapse is taken yet, because the database has only just come up.
ENDED_WITHIN_S: Final = 40.0
LOOK_EVERY_S: Final = 0.01
# Deaths come at any time between two looks of a sweeper.
SPREAD_S: Final = 1.0


async def measure(bench: Bench) -> list[Row]:
    """Start workers, give each a run, kill them, and wait for the runs' ends."""
    assert SAMPLES < VICTIMS_MAX
    bench.meter.begin("detection", SAMPLES)
    samples: list[float] = []
    end = now() + WITHIN_S
    async with open_runner(app, bench.settings) as runner:
        await _killed(bench, runner, [SAMPLES])
        for first in range(0, SAMPLES, BATCH):
            if now() > end and samples:
                break
            batch = await _killed(bench, runner, list(range(first, min(first + BATCH, SAMPLES))))
            samples += batch
            bench.meter.tick(len(batch))
    what = "kill -9 of a worker -> its run has ended as abandoned; the floor is the absence waited for"
    return [latency_row("detection", what, samples, [DEAD_AFTER_S] * len(samples), goal_ms=5000)]


async def _killed(bench: Bench, runner: Runner, numbers: list[int]) -> list[float]:
    """Return the seconds from each victim's death to the end of its run."""
    with _workers(bench, numbers) as processes:
        logs = [bench.logs / f"{victim(number)}.log" for number in numbers]
        await asyncio.gather(*(ready(log, '"keeper_ready"') for log in logs))
        runs = []
        for number in numbers:
            receipt = await runner.send(None, "stream", by=BY, agent=victim(number))
            await bench.stamps.of("streaming", receipt.run or "")
            runs.append(receipt.run or "")
        pairs = zip(processes, runs, strict=True)
        return await asyncio.gather(*(_noticed(runner, process, run) for process, run in pairs))


async def _noticed(runner: Runner, process: subprocess.Popen[bytes], run: str) -> float:
    """Kill a worker and return the seconds until its run has ended.

    Raises:
        BenchError: if that was not because the worker had died.
        NothingCame: if it does not end.
    """
    await asyncio.sleep(random.uniform(0, SPREAD_S))
    began = now()
    process.kill()
    while now() - began < ENDED_WITHIN_S:
        seen = await runner.run(run, by=BY)
        if is_final(seen.status):
            if (seen.error or {}).get("cause") != "killed":
                raise BenchError(f"the run of a killed worker ended as {seen.status}: {seen.error}")
            return now() - began
        await asyncio.sleep(LOOK_EVERY_S)
    raise NothingCame(f"the end of run {run}", ENDED_WITHIN_S)


@contextmanager
def _workers(bench: Bench, numbers: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run workers, each with an agent of its own; none is left behind."""
    processes = []
    try:
        for number in numbers:
            with (bench.logs / f"{victim(number)}.log").open("wb") as out:
                command = [sys.executable, "-m", "threadhold", "worker", "benchmarks.victims:app"]
                env = {**bench.env, VARIABLE: victim(number)}
                processes.append(subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=ROOT))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
