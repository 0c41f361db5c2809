"""What a hundred runs cost that stream at once on one worker, and how late their watchers are."""

import asyncio
import os
import sys
from typing import Final

from benchmarks.agents import app
from benchmarks.errors import ProcessEnded
from benchmarks.frame import delta_stamp
from benchmarks.remote import cpu_of
from benchmarks.rows import Row, cost_row, latency_row
from benchmarks.stack import BY, ROOT, TARGET, Bench, Started, process, ready
from benchmarks.stamps import PORT_VARIABLE, now

RUNS: Final = 100
DELTAS: Final = 300
EVERY_S: Final = 0.05
SCRIPT: Final = f"deltas {DELTAS} {EVERY_S}"
LAG_P99_MS: Final = 100.0
RATIO_MAX: Final = 1.3
FLOOR_EVERY_S: Final = 0.1
FLOOR_BYTES: Final = 300
WITHIN_S: Final = 60.0


async def measure(bench: Bench) -> list[Row]:
    """Let one worker stream all of them, watched from this process; then the same agents without a runtime."""
    bench.meter.begin("streams", RUNS)
    words = ["threadhold", "worker", TARGET, "--capacity", str(RUNS)]
    # The runs are the new worker's alone.
    for other in await bench.runner.workers(by=BY):
        await bench.runner.drain(other.id, by=BY)
    with process("streams", words, env=bench.env, logs=bench.logs) as worker:
        await ready(worker.log, '"worker_ready"')
        await _watched(bench, "deltas 2 0.01")
        lags, floor, cpu = await _streamed(bench, worker)
    return _rows(lags, floor, cpu / (RUNS * DELTAS), await _bare_cpu() / (RUNS * DELTAS))


def _rows(lags: list[float], floor: list[float], cpu: float, bare: float) -> list[Row]:
    what = f"text delta -> watcher, {RUNS} runs at once on one worker, {1 / EVERY_S:g} deltas/s each, joined for 50 ms"
    lag = latency_row("streams-lag", what, lags, floor, p99_max_ms=LAG_P99_MS)
    what = "processor time of the worker per streamed delta; floor: the bare agent.run of as many at once"
    return [
        lag,
        cost_row("streams-cpu", what, cpu * 1e6, bare * 1e6, unit="us", ratio_max=RATIO_MAX, n=RUNS * DELTAS),
    ]


async def _streamed(bench: Bench, worker: Started) -> tuple[list[float], list[float], float]:
    """Return how late deltas were, floors in the meantime, and the processor seconds of the worker."""
    floor: list[float] = []
    sampling = asyncio.create_task(_sampled(bench, floor))
    before = cpu_of(worker.pid)
    async with asyncio.timeout(WITHIN_S):
        found = await asyncio.gather(*(_watched(bench, SCRIPT) for _ in range(RUNS)))
    # From when all of them stream: what the hundred starts at once cost is another row's.
    began = max(min(stamp for stamp, _ in lags) for lags in found)
    spent = cpu_of(worker.pid) - before
    sampling.cancel()
    return [lag for lags in found for stamp, lag in lags if stamp >= began], floor, spent


async def _watched(bench: Bench, script: str) -> list[tuple[float, float]]:
    """Start a run and return when each of its deltas was said, and how late it came."""
    sent = await bench.runner.send(None, script, by=BY, agent=app.names[0])
    lags: list[tuple[float, float]] = []
    async for delivery in bench.runner.watch(sent.thread, by=BY, after="start", until="idle"):
        stamp = delta_stamp(delivery.frame)
        if stamp is not None:
            lags.append((stamp, now() - stamp))
    bench.meter.tick()
    return lags


async def _sampled(bench: Bench, floor: list[float]) -> None:
    while True:
        floor.append(await bench.floors.frame(FLOOR_BYTES))
        await asyncio.sleep(FLOOR_EVERY_S)


async def _bare_cpu() -> float:
    """Return the processor seconds of the same streams by pydantic-ai alone, in a process of their own.

    Raises:
        ProcessEnded: if that process prints no number.
    """
    words = ["-m", "benchmarks.bare_streams", str(RUNS), SCRIPT]
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, PORT_VARIABLE: "9"}  # nobody listens there
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, env=env, stdout=pipe, stderr=pipe
    )
    said, errors = await child.communicate()
    try:
        return float(said)
    except ValueError:
        raise ProcessEnded("the bare streams", errors.decode(errors="replace")) from None
