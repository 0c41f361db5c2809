"""Grants with real agents: a rule lets a call through for as long as there is a use, and each use is gone for good."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from tests.project.test_governance_page import PAGE
from tests.runner.conftest import ME, Bench, kinds, of_kind, stop_before
from tests.support import scripted
from tests.support.scripted import opened
from tests.support.servers import Stack
from threadhold import Budget, Decision, Hosted, Limits, Policy, Principal, Rule, Threadhold, open_runner
from threadhold.runner.errors import Closed, InvalidInput, NotFound, OperatorsOnly
from threadhold.runner.grants import GRANTS_MAX, LASTS_MAX, USES_MAX, Grant
from threadhold.runner.machine import RunStatus
from threadhold.storage.pool import Database
from threadhold.storage.work import PostgresWork

OPS = Principal(id="ops", workspace="home", roles=frozenset({"operator"}))
POLICY = Policy(
    [
        Rule("wires need a grant", "deny", tools=["wire"], reason="ask for one", grant="wire"),
        Rule("calls", "escalate", tools=["call_up"], reason="may it?", grant="call"),
        Rule("slow ones", "deny", tools=["slow"], grant="slow"),
        Rule("what fails", "deny", tools=["fail"], grant="fail"),
    ]
)
DENIED = "Denied by policy (rule 'wires need a grant'): ask for one. Nothing was executed."


class Done:
    """What the tools of one test have done."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def agent(self) -> Agent[None, str]:
        """Return an agent whose tools write here."""
        agent: Agent[None, str] = Agent(scripted.scripted_model())

        @agent.tool_plain(sequential=True)
        async def wire(to: str) -> str:
            """Send money."""
            self.did.append(f"wire {to}")
            return f"sent to {to}"

        @agent.tool_plain
        async def call_up(who: str) -> str:
            """Call somebody."""
            self.did.append(f"call {who}")
            return f"called {who}"

        @agent.tool_plain
        async def fail() -> str:
            """Begin, and fail."""
            self.did.append("fail")
            raise RuntimeError("the line is cut")

        @agent.tool_plain
        async def slow(gate: str) -> str:
            """Wait until a file is there."""
            self.did.append("slow")
            await opened(gate)
            return "done"

        return agent


@pytest.fixture
def done() -> Done:
    """What was done."""
    return Done()


@pytest.fixture
async def bench(
    stack: Stack,
    database: Database,
    done: Done,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Bench]:
    """A Runner whose agent needs grants; `seen` has what the model was shown, per request."""
    seen: list[list[ModelMessage]] = []
    next_step = scripted.next_step

    def watched(messages: list[ModelMessage]) -> str:
        seen.append(list(messages))
        return next_step(messages)

    monkeypatch.setattr(scripted, "next_step", watched)
    hosted = Hosted(done.agent(), policy=POLICY, budget=getattr(request, "param", None))
    async with open_runner(Threadhold(agents={"scripted": hosted}), stack.settings(), capacity=4) as runner:
        yield Bench(runner, database, seen)
    assert await PostgresWork(database, worker="-", ttl=None).audit() == []  # type: ignore[arg-type]


async def granted(bench: Bench, capability: str, uses: int = 1, **terms: Any) -> Grant:
    """Grant something as an operator."""
    return await bench.runner.create_grant(capability, uses=uses, by=OPS, **terms)


async def used(bench: Bench, grant: Grant) -> int:
    """Return how often a grant was used."""
    return (await bench.runner.grant(grant.id, by=OPS)).used


def told(bench: Bench) -> list[str]:
    """Return what the model was told of its calls in the newest request."""
    last = bench.seen[-1][-1]
    assert isinstance(last, ModelRequest)
    return [str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)]


async def test_what_is_denied_runs_as_often_as_it_was_granted(bench: Bench, done: Done) -> None:
    assert of_kind(await bench.ask('call wire {"to": "a"} ;; say none'), "tool_called") == []
    assert (told(bench), done.did) == ([DENIED], [])
    grant = await granted(bench, "wire", 2, principal=ME.id, expires_in=timedelta(hours=1))
    facts = await bench.ask(
        'call wire {"to": "a"} ;; call wire {"to": "b"} | call wire {"to": "c"} ;; call wire {"to": "d"} ;; say x'
    )
    assert done.did == ["wire a", "wire b"]
    assert told(bench) == [DENIED]
    assert await used(bench, grant) == 2
    calls = [(fact["verdict"], fact.get("grant")) for fact in of_kind(facts, "policy_evaluated")]
    assert calls == [("allow", "wire"), ("allow", "wire"), ("deny", None), ("deny", None)]
    ids = [fact["call_id"] for fact in of_kind(facts, "tool_called")]
    assert [(fact["call_id"], fact["use"], fact["of"]) for fact in of_kind(facts, "grant_used")] == [
        (ids[0], 1, 2),
        (ids[1], 2, 2),
    ]
    # The use is on record before the call, and what is denied is a call that ended so.
    order = [kind for kind in kinds(facts) if kind in ("grant_used", "tool_called", "tool_returned")]
    assert order[:3] == ["grant_used", "tool_called", "tool_returned"]
    outcomes = [fact["outcome"] for fact in of_kind(facts, "tool_returned")]
    assert outcomes == ["ok", "ok", "denied", "denied"]
    assert of_kind(facts, "run_ended")[-1]["status"] == "completed"


async def test_people_are_asked_once_a_grant_is_used_up(bench: Bench, done: Done) -> None:
    grant = await granted(bench, "call")
    receipt = await bench.send('call call_up {"who": "ada"} ;; call call_up {"who": "bob"} ;; say done')
    opened_request = await bench.fact(receipt.thread, "request_opened")
    assert done.did == ["call ada"]
    request = await bench.runner.request(opened_request["request"], by=ME)
    assert (request.kind, request.tool, request.args) == ("approval", "call_up", {"who": "bob"})
    assert request.metadata == {"threadhold_rule": "calls", "reason": "may it?"}
    # What people allow takes no use of a grant that was made since.
    again = await granted(bench, "call")
    await bench.runner.answer(request.id, Decision.approve(), by=ME)
    facts = await bench.idle(receipt.thread)
    assert done.did == ["call ada", "call bob"]
    assert (await used(bench, grant), await used(bench, again)) == (1, 0)
    judged = [(fact["verdict"], fact["approved"]) for fact in of_kind(facts, "policy_evaluated")]
    assert judged == [("allow", False), ("escalate", False), ("allow", True)]


async def test_a_tool_that_fails_has_used_its_use(bench: Bench, done: Done) -> None:
    grant = await granted(bench, "fail")
    first = await bench.run(await bench.send("call fail {} ;; say done"))
    assert (first.status, (first.error or {})["message"]) == (RunStatus.FAILED, "the line is cut")
    assert (done.did, await used(bench, grant)) == (["fail"], 1)
    second = await bench.run(await bench.send("call fail {} ;; say done"))
    assert (second.status, done.did) == (RunStatus.COMPLETED, ["fail"])
    assert told(bench)[0].startswith("Denied by policy (rule 'what fails')")


async def test_a_use_counts_while_its_run_is_under_way(bench: Bench, done: Done, tmp_path: Path) -> None:
    grant = await granted(bench, "slow")
    gate = tmp_path / "gate"
    first = await bench.send(f'call slow {{"gate": "{gate}"}} ;; say done')
    await bench.fact(first.thread, "tool_called")
    facts = await bench.ask(f'call slow {{"gate": "{gate}"}} ;; say done')
    assert of_kind(facts, "tool_called") == []
    assert told(bench)[0].startswith("Denied by policy (rule 'slow ones')")
    # A run that is stopped gives nothing back either, and a revocation lets it go on.
    assert (await bench.runner.revoke_grant(grant.id, by=OPS)).used == 1
    gate.touch()
    assert (await bench.run(first)).status is RunStatus.COMPLETED
    assert done.did == ["slow"]


@pytest.mark.parametrize("bench", [Budget("one", run=Limits(tool_calls=1))], indirect=True)
async def test_what_a_budget_refuses_uses_no_grant(bench: Bench, done: Done) -> None:
    grant = await granted(bench, "wire", 5)
    run = await bench.run(await bench.send('call wire {"to": "a"} ;; call wire {"to": "b"} ;; say done'))
    assert (run.status, run.reason) == (RunStatus.FAILED, "budget_exhausted")
    assert (done.did, await used(bench, grant)) == (["wire a"], 1)


async def test_a_call_that_a_stop_comes_before_uses_no_grant(
    bench: Bench, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = await granted(bench, "wire")
    stop_before(monkeypatch, bench.database, lambda spend: "grant" in spend)
    run = await bench.run(await bench.send('call wire {"to": "a"} ;; say done'))
    assert run.status is RunStatus.STOPPED
    assert (done.did, await used(bench, grant)) == ([], 0)


async def test_grants_are_for_operators_to_make_and_revoke(bench: Bench) -> None:
    grant = await granted(bench, "wire", key="k")
    assert await granted(bench, "wire", key="k") == grant
    for call in (
        bench.runner.create_grant("wire", uses=1, by=ME),
        bench.runner.revoke_grant(grant.id, by=ME),
        bench.runner.revoke_grant("no id", by=ME),
    ):
        with pytest.raises(OperatorsOnly):
            await call
    assert await bench.runner.grants(by=ME) == [grant]
    for call in (bench.runner.grant("no id", by=ME), bench.runner.revoke_grant("no id", by=OPS)):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await granted(bench, "wire", thread="no id")
    for key, name in (("", "wire"), ("k", "")):
        with pytest.raises(InvalidInput):
            await granted(bench, name, key=key)


async def test_a_closed_runner_grants_nothing(bench: Bench) -> None:
    await bench.runner.aclose()
    for call in (
        granted(bench, "wire"),
        bench.runner.grants(by=OPS),
        bench.runner.grant("g", by=OPS),
        bench.runner.revoke_grant("g", by=OPS),
    ):
        with pytest.raises(Closed):
            await call


async def test_the_page_grants_what_it_says(bench: Bench) -> None:
    scope: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(code, "governance.md", "exec"), scope)
        if "create_grant" in code:
            break
    page = SimpleNamespace(**scope)
    made = await bench.runner.grant(await page.let_it_wire(bench.runner, OPS), by=OPS)
    assert (made.capability, made.uses, made.principal) == ("wire", 3, "night-job")
    assert made.expires_at == made.created_at + timedelta(hours=1)
    assert [rule.grant for rule in page.payments.rules] == ["wire", "call"]
    for bound in (USES_MAX, LASTS_MAX.days, GRANTS_MAX):
        assert f"{bound:,}" in PAGE
