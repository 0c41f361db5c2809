"""What a run is admitted with: who it acts for has a budget, whoever starts it, and keeps it."""

from pathlib import Path

import pytest

from tests.runner.conftest import ME, House
from tests.support.agents import agent, identity
from threadhold import Budget, Limits, Principal
from threadhold.runner.machine import RunStatus

BOSS = Principal(id="boss", workspace="home", roles=frozenset({"operator"}))
STAFF = Budget("staff", roles=["operator"])
GUEST = Budget("guest", run=Limits(model_calls=50))


async def test_a_run_that_an_operator_replays_has_the_budget_of_whom_it_acts_for(house: House) -> None:
    async with house.bench(STAFF, GUEST) as bench:
        first = await bench.run(await bench.send("say hello"))
        assert first.budget == "guest"
        replay = await bench.runner.replay(first.id, by=BOSS)
        await bench.idle(first.thread)
        again = await bench.runner.run(replay.run, by=ME)
    assert (again.status, again.principal, again.budget) == (RunStatus.COMPLETED, "me", "guest")


async def test_whoever_no_budget_is_for_has_none(house: House) -> None:
    none_left = Budget("staff", roles=["operator"], run=Limits(model_calls=0))
    async with house.bench(none_left) as bench:
        run = await bench.run(await bench.send("say hello"))
    assert (run.status, run.budget) == (RunStatus.COMPLETED, None)
    assert await house.calls() == []


@pytest.mark.parametrize("queued", [False, True])
async def test_a_message_to_a_run_has_its_budget_and_one_that_waits_for_its_own_run_has_its_senders(
    house: House, tmp_path: Path, queued: bool
) -> None:
    gate = tmp_path / "gate"
    async with house.bench(STAFF, GUEST, agent=agent, deps=identity) as bench:
        receipt = await bench.send(f'call hold {{"gate": "{gate}"}} ;; say done')
        await bench.fact(receipt.thread, "tool_called")
        await bench.runner.send(receipt.thread, "sooner", by=BOSS)
        if queued:
            await bench.runner.send(receipt.thread, "say mine", by=BOSS, on_busy="queue")
        gate.touch()
        await bench.idle(receipt.thread)
    rows = await house.rows("SELECT principal, budget FROM runs ORDER BY run_no")
    expected = [("me", "guest"), ("boss", "staff")][: 1 + queued]
    assert [(row["principal"], row["budget"]) for row in rows] == expected
