"""Policies with real agents: a denial reaches the model and runs nothing, an escalation waits for the right people."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.support import scripted
from tests.support.agents import agent, identity
from tests.support.servers import Stack
from threadhold import Above, Decision, Hosted, Policy, Principal, Rule, Terms, Threadhold, open_runner
from threadhold.runner.errors import Forbidden, OwnRequest
from threadhold.runner.machine import RunStatus
from threadhold.storage.pool import Database
from threadhold.storage.work import PostgresWork

BOSS = Principal(id="boss", workspace="home", roles=frozenset({"approver"}))
POLICY = Policy(
    [
        Rule("no sums over a thousand", "deny", tools=["add"], args={"a": Above(1000)}, reason="too large"),
        Rule("sums over a hundred", "escalate", tools=["add"], args={"a": Above(100)}, reason="is it right?"),
        Rule(
            "sums over ten", "escalate", tools=["add"], args={"a": Above(10)}, terms=Terms(approvers=["me"])
        ),
        Rule("never pay much", "deny", tools=["pay"], args={"amount": Above(100)}),
        Rule("pay", "escalate", tools=["pay"], args={"amount": Above(10)}, terms=Terms(approvers=["boss"])),
        Rule("broken", "allow", tools=["whoami"], where=lambda ask: bool(ask.args["nothing"])),
    ]
)


@pytest.fixture
async def bench(
    stack: Stack, database: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    """A Runner whose agent has a policy; `seen` has what the model was shown, per request."""
    seen: list[Any] = []
    next_step = scripted.next_step

    def watched(messages: Any) -> str:
        seen.append(list(messages))
        return next_step(messages)

    monkeypatch.setattr(scripted, "next_step", watched)
    app = Threadhold(agents={"scripted": Hosted(agent, deps=identity, policy=POLICY)})
    environment = getattr(request, "param", "development")
    async with open_runner(app, stack.settings(environment=environment), capacity=4) as runner:
        yield Bench(runner, database, seen)
    assert await PostgresWork(database, worker="-", ttl=None).audit() == []  # type: ignore[arg-type]


def results(bench: Bench) -> list[str]:
    """Return what the model was told of its calls in the newest request."""
    last = bench.seen[-1][-1]
    assert isinstance(last, ModelRequest)
    return [str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)]


async def test_a_denial_reaches_the_model_and_executes_nothing(bench: Bench) -> None:
    facts = await bench.ask('call add {"a": 2000, "b": 1} | call add {"a": 1, "b": 2} ;; say done')
    assert of_kind(facts, "run_ended")[-1]["output"] == "done"
    [denied, sum] = results(bench)
    assert denied == ("Denied by policy (rule 'no sums over a thousand'): too large. Nothing was executed.")
    assert sum == "3"
    assert [fact["args"] for fact in of_kind(facts, "tool_called")] == ['{"a": 1, "b": 2}']
    judged = {fact["verdict"]: fact for fact in of_kind(facts, "policy_evaluated")}
    assert judged["deny"]["rule"] == "no sums over a thousand"
    assert judged["deny"]["args"] == {"a": 2000, "b": 1}
    # The branches that the first match kept from deciding are on record with it.
    assert [each["rule"] for each in judged["deny"]["branches"] if each["matched"] and not each["taken"]] == [
        "sums over a hundred",
        "sums over ten",
        "otherwise",
    ]
    assert (judged["allow"]["rule"], judged["allow"]["environment"]) == ("otherwise", "development")
    run = of_kind(facts, "run_ended")[-1]
    assert run["status"] == "completed"
    [thread] = await bench.runner.threads(by=ME)
    [made] = await bench.runner.runs(by=ME, thread=thread.id)
    calls = (await bench.runner.calls(made.id, by=ME)).items
    assert {call.outcome for call in calls} == {"denied", "ok"}


async def test_an_escalation_waits_for_a_person_and_then_runs(bench: Bench) -> None:
    receipt = await bench.send('call add {"a": 200, "b": 1} ;; say done')
    opened = await bench.fact(receipt.thread, "request_opened")
    request = await bench.runner.request(opened["request"], by=ME)
    assert (request.kind, request.tool, request.args) == ("approval", "add", {"a": 200, "b": 1})
    assert request.metadata == {"threadhold_rule": "sums over a hundred", "reason": "is it right?"}
    await bench.runner.answer(request.id, Decision.approve(), by=ME)
    facts = await bench.idle(receipt.thread)
    assert results(bench) == ["201"]
    judged = of_kind(facts, "policy_evaluated")
    assert [(fact["verdict"], fact["approved"]) for fact in judged] == [("escalate", False), ("allow", True)]


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        (150, ["151"]),
        (5, ["6"]),
        (2000, ["Denied by policy (rule 'no sums over a thousand'): too large. Nothing was executed."]),
        # Another rule wants another person's word.
        (50, ["Denied by policy (rule 'sums over ten')"]),
    ],
)
async def test_edited_arguments_are_judged_again(bench: Bench, edited: int, told: list[str]) -> None:
    receipt = await bench.send('call add {"a": 200, "b": 1} ;; say done')
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.runner.answer(opened["request"], Decision.edit({"a": edited, "b": 1}), by=ME)
    facts = await bench.idle(receipt.thread)
    assert of_kind(facts, "run_ended")[-1]["status"] == "completed"
    assert [text.startswith(start) for text, start in zip(results(bench), told, strict=True)] == [True]
    assert len(of_kind(facts, "tool_called")) == (1 if told[0].isdigit() else 0)


async def test_tools_that_ask_by_themselves_are_judged_before_people_are_asked(bench: Bench) -> None:
    facts = await bench.ask('call pay {"amount": 500} ;; say done')
    # Nobody was asked about what the policy denies.
    assert "request_opened" not in kinds(facts)
    assert results(bench)[0].startswith("Denied by policy (rule 'never pay much')")
    receipt = await bench.send(
        'call pay {"amount": 500} | call pay {"amount": 50} | call pay {"amount": 5} ;; say done'
    )
    run = receipt.run
    assert run is not None
    paused = await bench.runner.rested(run, by=ME, wait=30)
    assert paused.status is RunStatus.PAUSED
    asked = await bench.runner.requests(by=BOSS, thread=receipt.thread)
    assert {(each.args["amount"], each.approvers) for each in asked} == {(50, ("boss",)), (5, None)}
    with pytest.raises(Forbidden):
        await bench.runner.answer(
            next(each.id for each in asked if each.approvers), Decision.approve(), by=ME
        )
    for each in asked:
        await bench.runner.answer(each.id, Decision.approve(), by=BOSS)
    await bench.idle(receipt.thread)
    told = results(bench)
    assert len(told) == 3
    assert sum(text.startswith("Denied by policy") for text in told) == 1
    assert sum(text.startswith("paid") for text in told) == 2


async def test_a_rule_that_cannot_be_asked_denies(bench: Bench) -> None:
    facts = await bench.ask("call whoami {} ;; say done")
    [judged] = of_kind(facts, "policy_evaluated")
    assert (judged["verdict"], judged["rule"]) == ("deny", "broken")
    assert next(each for each in judged["branches"] if each["taken"])["error"].startswith("KeyError")
    assert "tool_called" not in kinds(facts)


@pytest.mark.parametrize("bench", ["production"], indirect=True)
async def test_in_production_nobody_approves_for_themselves(bench: Bench) -> None:
    receipt = await bench.send('call add {"a": 200, "b": 1} ;; say done')
    opened = await bench.fact(receipt.thread, "request_opened")
    for decision in (Decision.approve(), Decision.edit({"a": 1, "b": 1})):
        with pytest.raises(OwnRequest):
            await bench.runner.answer(opened["request"], decision, by=ME)
    # The refusal has left it as it was.
    assert (await bench.runner.request(opened["request"], by=ME)).status == "open"
    await bench.runner.answer(opened["request"], Decision.approve(), by=BOSS)
    await bench.idle(receipt.thread)
    assert results(bench) == ["201"]


@pytest.mark.parametrize("bench", ["production"], indirect=True)
async def test_in_production_the_terms_of_a_rule_may_still_allow_it(bench: Bench) -> None:
    receipt = await bench.send('call add {"a": 20, "b": 1} ;; say done')
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.runner.answer(opened["request"], Decision.approve(), by=ME)
    await bench.idle(receipt.thread)
    assert results(bench) == ["21"]
