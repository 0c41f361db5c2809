"""How long it takes from a stop to the recorded end of a run that streams in another process."""

from typing import Final

from benchmarks.bounds import bounded
from benchmarks.errors import BenchError
from benchmarks.rows import Row, latency_row
from benchmarks.stack import BY, Bench
from benchmarks.stamps import now

SAMPLES: Final = 40
WITHIN_S: Final = 15.0
WARM_UP: Final = 3
WAIT_S: Final = 5.0


async def measure(bench: Bench) -> list[Row]:
    """Stop runs that stream, and run the floor, by turns."""
    bench.meter.begin("stop", SAMPLES)
    subject: list[float] = []
    floor: list[float] = []
    for number in bounded(WARM_UP + SAMPLES, WITHIN_S):
        taken, least = await _stopped(bench), await bench.floors.stop()
        if number >= WARM_UP:
            subject.append(taken)
            floor.append(least)
            bench.meter.tick()
    return [
        latency_row(
            "stop", "Runner.stop -> returns settled, of a run that streams", subject, floor, goal_ms=20
        )
    ]


async def _stopped(bench: Bench) -> float:
    """Return the seconds until a stop was settled.

    Raises:
        BenchError: if the run did not end as stopped.
    """
    receipt = await bench.runner.send(None, "stream", by=BY, agent="bench")
    for point in ("deps", "model", "streaming"):
        await bench.stamps.of(point, receipt.run or "")
    began = now()
    stopped = await bench.runner.stop(run=receipt.run, by=BY, wait=WAIT_S)
    taken = now() - began
    if not stopped.settled or stopped.status != "stopped":
        raise BenchError(f"the stop of a run came out as {stopped.status}, settled: {stopped.settled}")
    return taken
