"""What governance costs: the same runs with a policy, with a budget, with both, and with neither, by turns."""

from typing import Final

from benchmarks.bounds import bounded
from benchmarks.errors import BenchError
from benchmarks.rows import Row, latency_row
from benchmarks.stack import BY, Bench
from threadhold.runner.machine import RunStatus

CALLS: Final = 20
SAMPLES: Final = 12
WARM_UP: Final = 2
WITHIN_S: Final = 45.0
KINDS: Final = {"governed": "policy and budget", "with-policy": "policy", "with-budget": "budget"}
FREE: Final = "free"
SCRIPTS: Final = {
    "step": (f"steps {CALLS}", "a call of a model and one of a tool"),
    "tool": (f"tools {CALLS}", "a call of a tool, of 20 at once"),
}


async def measure(bench: Bench) -> list[Row]:
    """Run each script under each kind of governance, and without any."""
    taken: dict[tuple[str, str], list[float]] = {(s, k): [] for s in SCRIPTS for k in (FREE, *KINDS)}
    bench.meter.begin("governance", SAMPLES)
    for number in bounded(WARM_UP + SAMPLES, WITHIN_S):
        for (script, kind), samples in taken.items():
            seconds = await _ran(bench, SCRIPTS[script][0], kind)
            if number >= WARM_UP:
                samples.append(seconds / CALLS)
        if number >= WARM_UP:
            bench.meter.tick()
    return [
        latency_row(
            f"governance-{script}-{kind}",
            f"{SCRIPTS[script][1]}, with {told}",
            taken[script, kind],
            taken[script, FREE],
        )
        for script in SCRIPTS
        for kind, told in KINDS.items()
    ]


async def _ran(bench: Bench, script: str, agent: str) -> float:
    """Return for how many seconds a run has worked, by the database's clock.

    Raises:
        BenchError: if it did not complete.
    """
    receipt = await bench.runner.send(None, script, by=BY, agent=agent)
    run = await bench.ended(receipt.run or "")
    if run.status is not RunStatus.COMPLETED or run.started_at is None or run.ended_at is None:
        raise BenchError(f"a run of {agent} came out as {run.status}: {run.error}")
    return (run.ended_at - run.started_at).total_seconds()
