"""The record of a governed run tells its whole story, to programs and in sentences."""

from datetime import UTC, datetime

from tests.runner.conftest import ME, Bench, of_kind
from tests.runner.priced import GPT, agent
from tests.support.servers import Stack
from threadhold import (
    Above,
    Budget,
    Decision,
    Hosted,
    Limits,
    Policy,
    Principal,
    Rule,
    Threadhold,
    open_runner,
)
from threadhold.adapters.cli.reasons import sentences
from threadhold.runner.records import Why
from threadhold.storage.pool import Database

BOSS = Principal(id="boss", workspace="home", roles=frozenset({"approver", "operator"}))
POLICY = Policy(
    [
        Rule("never much", "deny", tools=["add"], args={"a": Above(1000)}, reason="too much"),
        Rule("ask first", "escalate", tools=["add"], args={"a": Above(10)}),
    ]
)
BUDGET = Budget("staff", run=Limits(model_calls=3), workspace=Limits(every="month"))


async def told(stack: Stack, database: Database) -> Why:
    """Return the story of a run that asked, was allowed, was denied, and came to the end of its budget."""
    app = Threadhold(agents={"scripted": Hosted(agent, policy=POLICY, budget=BUDGET)})
    async with open_runner(app, stack.settings(environment="staging"), capacity=2) as runner:
        bench = Bench(runner, database)
        steps = ['{"a": 20, "b": 1}', '{"a": 2000, "b": 1}', '{"a": 1, "b": 1}', '{"a": 2, "b": 2}']
        receipt = await bench.send(" ;; ".join(f"call add {step}" for step in steps))
        await bench.fact(receipt.thread, "paused")
        [request] = await runner.requests(by=ME)
        await runner.answer(request.id, Decision.edit({"a": 21, "b": 1}), by=BOSS)
        await bench.idle(receipt.thread)
        return await runner.why(receipt.run or "", by=ME)


async def test_the_record_of_a_run_says_who_what_how_much_and_why(stack: Stack, database: Database) -> None:
    why = await told(stack, database)
    assert (why.run.reason, why.run.principal) == ("budget_exhausted", "me")
    assert (why.run.interface, why.run.environment, why.run.budget) == ("python", "staging", "staff")
    assert why.spent["model_calls"] == 3
    assert [place["scope"] for place in why.charged] == ["run", "thread", "principal", "workspace"]
    assert {place["model_calls"] for place in why.charged} == {3}
    assert {place["tool_calls"] for place in why.charged} == {2}
    assert why.charged[3]["since"].startswith(datetime.now(UTC).strftime("%Y-%m-01"))
    assert [each["fact"] for each in why.decisions] == [
        "policy_evaluated",
        "request_answered",
        "policy_evaluated",
        "policy_evaluated",
        "policy_evaluated",
        "budget_exhausted",
    ]
    lines = sentences(why, datetime.now(UTC))
    text = "\n".join(lines)
    assert "It came in by python, in staging, under the budget 'staff'." in lines
    assert "add put to people by rule 'ask first'" in text
    assert "add approved with other arguments by boss" in text
    assert "add allowed by rule 'ask first', as people have approved" in text
    assert "add denied by rule 'never much' (too much)" in text
    assert "budget: model_calls of its run used up, 3 of 3" in text
    assert "its workspace since " in text


async def test_each_fact_and_each_frame_carries_what_the_run_was_admitted_with(
    stack: Stack, database: Database
) -> None:
    app = Threadhold(agents={"scripted": Hosted(agent, budget=BUDGET)})
    async with open_runner(app, stack.settings(environment="staging"), capacity=2) as runner:
        bench = Bench(runner, database)
        receipt = await bench.send('say hello | call add {"a": 1, "b": 2} ;; say done')
        frames = [
            delivery.frame
            async for delivery in runner.watch(receipt.thread, by=ME, after="start", until="idle")
        ]
        facts = (await runner.facts(receipt.thread, by=ME)).items
    identity = {"principal": "me", "interface": "python", "environment": "staging", "budget": "staff"}
    of_run = [frame for frame in frames if frame.kind not in ("head", "end")]
    assert {frame.kind for frame in of_run} == {"fact", "attempt", "event"}
    assert all((frame.run, frame.admission) == (receipt.run, identity) for frame in of_run)
    assert all((fact.run, fact.admission) == (receipt.run, identity) for fact in facts)
    assert of_kind([{"fact": fact.kind, **fact.data} for fact in facts], "model_called")[0]["model"] == GPT
