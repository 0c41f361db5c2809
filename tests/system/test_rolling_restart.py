"""Every worker is told to leave and is replaced, one after the other, while runs go on.

`RUNS` in the environment makes it more runs than in CI.
"""

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.servers import Stack
from tests.support.truth import truth
from tests.support.waiting import until
from tests.system.conftest import Gate
from tests.system.fleet import END_S_MAX, Fleet, fleet, open_gate
from threadhold.runner.machine import RunStatus

RUNS: Final = int(os.environ.get("RUNS", "10"))
WORKERS: Final = 3
STEPS: Final = 12
STEP_S: Final = 0.5
TIMES: Final = {
    # Far more than a tool takes here, however slow the machine.
    "THREADHOLD_GRACE": "60",
    "THREADHOLD_CAPACITY": str(RUNS),
}


def scripts(finish: Path) -> list[str]:
    """Return what the runs do: many short tools one after the other, or a long word with tools around it.

    None of them ends before the last worker has been replaced.
    """
    steps = " ;; ".join([f'call step {{"seconds": {STEP_S}}}'] * STEPS)
    speaking = f"call step {{}} ;; words 3 0.01 | hold {finish} | call step {{}} ;; say done"
    working = f"{steps} ;; hold {finish} | say done"
    return [working if number % 2 else speaking for number in range(RUNS)]


def steps_of(scripts: list[str]) -> int:
    """Count the calls in scripts."""
    return sum(script.count("call step") for script in scripts)


@pytest.mark.timeout(900)
async def test_workers_that_are_replaced_one_after_the_other_lose_no_run_and_repeat_no_tool(
    stack: Stack, tmp_path: Path, gate: Gate
) -> None:
    finish = gate("finish")
    plan = scripts(finish)
    async with (
        fleet(stack, tmp_path, workers=WORKERS, times=TIMES) as ships,
        truth(stack.database_url) as judge,
    ):
        sent = await ships.send_each(plan)
        await ships.reported("begin", RUNS)
        given = [await replace(ships, number) for number in range(WORKERS)]
        open_gate(finish)
        runs = await ships.ended(sent)

        assert {(run.status, run.error) for run in runs} == {(RunStatus.COMPLETED, None)}
        closed = [fact for each in sent for fact in await judge.facts(each.thread, "attempt_closed")]
        outcomes = Counter((fact["outcome"], fact.get("cause")) for fact in closed)
        assert set(outcomes) == {("handed_over", "drain"), ("completed", None)}
        assert outcomes["completed", None] == RUNS
        # Each worker had something to give when it was asked to leave.
        assert min(given) > 0
        assert sum(given) == outcomes["handed_over", "drain"]
        # A call that was asked for just then may not have been started any more: the model was told so.
        whys = await asyncio.gather(*(ships.client.why(run.id) for run in runs))
        fates = Counter(fate for why in whys for fate in why.tools.values())
        assert set(fates) <= {"finished", "never_started"}
        assert fates.total() == steps_of(plan)
        assert len(ships.reports("begin")) == len(ships.reports("end")) == fates["finished"]
        ships.check_nothing_twice()
        assert await judge.broken() == []
        assert ships.starter.errors() == []
    print(  # noqa: T201
        f"{RUNS} runs, {WORKERS} workers replaced, {given} runs handed over, attempts {dict(outcomes)}, "
        f"of {steps_of(plan)} tool calls {dict(fates)}, each once"
    )


async def replace(ships: Fleet, number: int) -> int:
    """Replace one of the first workers while it has runs; return how many it gave away."""
    leaving = ships.workers[number]
    name = f"worker{number}"

    async def has_runs() -> bool:
        return any(
            worker.id.startswith(f"{name}-") and worker.running > 0 for worker in await ships.client.workers()
        )

    await until(has_runs, within=END_S_MAX, what=f"{name} has no run")
    leaving.ask_to_end()
    assert await asyncio.to_thread(leaving.wait, within=END_S_MAX) == 0
    given = sum('"handed_over"' in line for line in leaving.text().splitlines())
    ships.hire(f"{name}-again")
    await ships.workers[-1].says('"worker_ready"', within=END_S_MAX)
    return given
