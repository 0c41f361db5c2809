"""Agents that are asked by agents come under the run's policy and bindings, and tell of themselves on its record."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.runner.conftest import Bench, House, of_kind, stop_before
from tests.support.scripted import scripted_model
from tests.support.servers import Stack
from threadhold import (
    Binding,
    Budget,
    Hosted,
    Limits,
    Policy,
    Rule,
    Threadhold,
    credential,
    delegate,
    open_runner,
)
from threadhold.runner.machine import RunStatus
from threadhold.storage.pool import Database
from threadhold.storage.work import PostgresWork

TOKEN = "tok-of-the-bank-1234"


def expert_of(tool: str, *, approval: bool = False) -> Agent[None, str]:
    """Return an agent that calls its tool once, and answers with what it was told."""

    def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part for message in messages for part in message.parts if part.part_kind == "tool-return"]
        if returned:
            return ModelResponse(parts=[TextPart(str(returned[-1].content))])
        return ModelResponse(parts=[ToolCallPart(tool, {}, tool_call_id="c")])

    expert = Agent(FunctionModel(answers), name="expert")

    async def act() -> str:
        """Do it."""
        return f"done with {credential()}" if tool == "wire" else "done"

    expert.tool_plain(name=tool, requires_approval=approval)(act)
    return expert


def asker(expert: Agent[None, str]) -> Agent[None, str]:
    """Return an agent whose tool asks the other one."""
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask."""
        return (await delegate(expert, "well?")).output

    return agent


@asynccontextmanager
async def bench_of(
    stack: Stack, database: Database, agent: Agent[None, str], **options: Any
) -> AsyncIterator[Bench]:
    """Open a Runner; every invariant must hold in the end."""
    app = Threadhold(agents={"scripted": Hosted(agent, **options)})
    async with open_runner(app, stack.settings(), capacity=2) as runner:
        yield Bench(runner, database)
    assert await PostgresWork(database, worker="-", ttl=None).audit() == []  # type: ignore[arg-type]


async def told(bench: Bench) -> tuple[str, list[dict[str, Any]]]:
    """Return what the agent that asks was answered, and what the other one did."""
    facts = await bench.ask("call ask {} ;; say done")
    [returned] = of_kind(facts, "tool_returned")
    return str(returned.get("result") or returned.get("error")), of_kind(facts, "delegated")


async def test_its_calls_come_under_the_policy_of_the_run(stack: Stack, database: Database) -> None:
    policy = Policy([Rule("never drop", "deny", tools=["drop"], where=lambda ask: ask.agent == "expert")])
    async with bench_of(stack, database, asker(expert_of("drop")), policy=policy) as bench:
        answer, did = await told(bench)
    assert answer == "Denied by policy (rule 'never drop'). Nothing was executed."
    assert [(fact["did"], fact.get("verdict") or fact.get("outcome")) for fact in did] == [
        ("model_called", None),
        ("policy_evaluated", "deny"),
        ("tool_returned", "denied"),
        ("model_called", None),
    ]


async def test_what_would_wait_for_people_is_denied(stack: Stack, database: Database) -> None:
    policy = Policy([Rule("ask first", "escalate", tools=["drop"])])
    async with bench_of(stack, database, asker(expert_of("drop")), policy=policy) as bench:
        answer, did = await told(bench)
    assert "cannot wait for" in answer
    assert [fact["did"] for fact in did] == ["model_called", "policy_evaluated", "model_called"]


async def test_so_is_what_a_tool_asks_for_by_itself(stack: Stack, database: Database) -> None:
    async with bench_of(stack, database, asker(expert_of("drop", approval=True))) as bench:
        answer, did = await told(bench)
    assert "cannot wait for" in answer
    assert [fact["did"] for fact in did] == ["model_called", "model_called"]


async def test_its_tools_get_the_credentials_that_they_are_bound_to(stack: Stack, database: Database) -> None:
    bound: dict[str, Any] = {
        "tools": {"wire": Binding(credentials="bank")},
        "credentials": {"bank": lambda identity: TOKEN},
    }
    async with bench_of(stack, database, asker(expert_of("wire")), **bound) as bench:
        answer, did = await told(bench)
    assert answer == "done with [secret]"
    called = next(fact for fact in did if fact["did"] == "tool_called")
    assert (called["agent"], called["depth"], called["credentials"]) == ("expert", 1, "bank")
    assert called["idempotency_key"].endswith(":c")
    assert TOKEN not in str(did)


async def test_an_output_function_that_is_denied_does_not_run(house: House) -> None:
    wired: list[str] = []

    def wire(account: str) -> str:
        """Send money."""
        wired.append(account)
        return "sent"

    def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [asked] = [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)]
        return ModelResponse(parts=[ToolCallPart("wire", {"account": asked})])

    output = ToolOutput(wire, name="wire")
    expert = Agent(FunctionModel(answers), name="expert", output_type=output, retries=1)
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    async def ask(account: str) -> str:
        """Ask."""
        try:
            return (await delegate(expert, account)).output
        except UnexpectedModelBehavior:
            return "none"

    rule = Rule("not there", "deny", tools=["wire"], where=lambda ask: "theirs" in ask.args.values())
    async with house.bench(agent=agent, policy=Policy([rule])) as bench:
        facts = await bench.ask('call ask {"account": "theirs"} ;; call ask {"account": "ours"} ;; say done')
    assert [fact["result"] for fact in of_kind(facts, "tool_returned")] == ["none", "sent"]
    assert wired == ["ours"]


@pytest.mark.parametrize(("kind", "asked"), [("model", 0), ("tool", 1)])
async def test_nothing_of_it_begins_once_the_run_is_told_to_stop(
    house: House, monkeypatch: pytest.MonkeyPatch, kind: str, asked: int
) -> None:
    did: list[str] = []

    def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        did.append("asked")
        return ModelResponse(parts=[ToolCallPart("act", {})])

    expert = Agent(FunctionModel(answers), name="expert")

    @expert.tool_plain
    async def act() -> str:
        """Do it."""
        did.append("acted")
        return "done"

    def is_of_the_expert(spend: dict[str, Any]) -> bool:
        return spend["kind"] == kind and (spend.get("depth") == 1 or "/" in spend.get("call_id", ""))

    stop_before(monkeypatch, house.database, is_of_the_expert)
    async with house.bench(Budget("b"), agent=asker(expert)) as bench:
        run = await bench.run(await bench.send("call ask {} ;; say done"))
    assert (run.status, did) == (RunStatus.STOPPED, ["asked"] * asked)


async def test_two_that_are_asked_within_one_call_have_keys_of_their_own(house: House) -> None:
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask twice."""
        return " ".join([(await delegate(expert_of("drop"), "well?")).output for _ in range(2)])

    async with house.bench(Budget("b"), agent=agent) as bench:
        answer, did = await told(bench)
    assert answer == "done done"
    called = [fact for fact in did if fact["did"] == "tool_called"]
    assert len(called) == len({fact["idempotency_key"] for fact in called}) == 2


async def test_a_budget_that_ends_it_says_so_whatever_stands_around_the_call(house: House) -> None:
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask, with a line beside it that looks like a secret."""
        return (await delegate(expert_of("drop"), "password = 'hunter2-secret-9'")).output

    async with house.bench(Budget("b", run=Limits(model_calls=1)), agent=agent) as bench:
        run = await bench.run(await bench.send("call ask {} ;; say done"))
    assert (run.status, run.reason, (run.error or {})["limit"]) == (
        RunStatus.FAILED,
        "budget_exhausted",
        "model_calls",
    )


async def test_outside_of_a_run_it_is_a_run_of_the_agent() -> None:
    assert (await delegate(expert_of("drop"), "well?")).output == "done"
