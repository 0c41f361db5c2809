"""Workers that leave hand their runs over: no crash, no retry, no tool twice, and nothing that was said comes twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, ToolReturnPart

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.support.agents import agent, identity
from tests.support.servers import Stack
from threadhold import Hosted, Retry, Runner, Threadhold, open_runner
from threadhold.runner.machine import RunStatus
from threadhold.storage.pool import Database
from threadhold.storage.work import PostgresWork

APP = Threadhold(
    agents={
        "scripted": Hosted(agent, deps=identity),
        "again": Hosted(agent, deps=identity, after_abandon=Retry(times=2)),
    }
)
SHORT = {"claim_ttl": 2, "renew_every": 0.3, "trust_margin": 0.5, "sweep_every": 0.2}


class Team:
    """Workers within this process that come and leave while people talk to another Runner."""

    def __init__(self, stack: Stack, people: Runner, database: Database) -> None:
        self.bench = Bench(people, database)
        self.people = people
        self._stack = stack
        self._workers: list[AsyncExitStack] = []

    async def join(self, **settings: Any) -> None:
        """Let a worker come."""
        worker = AsyncExitStack()
        await worker.enter_async_context(open_runner(APP, self._stack.settings(**settings), capacity=4))
        self._workers.append(worker)

    async def leave(self) -> None:
        """Let the oldest worker drain and go."""
        await self._workers.pop(0).aclose()

    async def aclose(self) -> None:
        """Let all go."""
        while self._workers:
            await self.leave()


@pytest.fixture
async def team(stack: Stack, database: Database) -> AsyncIterator[Team]:
    """People and one worker; every invariant must hold in the end."""
    async with open_runner(APP, stack.settings()) as people:
        team = Team(stack, people, database)
        await team.join()
        try:
            yield team
        finally:
            await team.aclose()
    work = PostgresWork(database, worker="-", ttl=None)  # type: ignore[arg-type]
    assert await work.audit() == []


def outcomes(facts: list[dict[str, Any]]) -> list[str]:
    """Return how the attempts came out."""
    return [fact["outcome"] for fact in of_kind(facts, "attempt_closed")]


async def test_text_in_progress_is_withdrawn_and_said_anew_elsewhere(team: Team) -> None:
    receipt = await team.bench.send("words 40 0.05")
    async for delivery in team.people.watch(receipt.thread, by=ME, after="start"):
        if delivery.frame.data.get("event_kind") == "part_delta":
            break
    await team.leave()
    handed = await team.people.run(str(receipt.run), by=ME)
    assert (handed.status, handed.reason) == (RunStatus.PENDING, None)
    await team.join()
    facts = await team.bench.idle(receipt.thread)
    assert outcomes(facts) == ["handed_over", "completed"]
    assert of_kind(facts, "attempt_closed")[0]["text"] == "withdrawn"
    responses = [m for m in await team.bench.history(receipt.thread) if isinstance(m, ModelResponse)]
    assert [response.text for response in responses] == ["".join(f"w{n} " for n in range(1, 41))]
    assert [response.state for response in responses] == ["complete"]


async def test_tools_that_end_within_the_grace_period_run_once(team: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    receipt = await team.bench.send(
        f'call hold {{"gate": "{gate}"}} | call add {{"a": 1, "b": 2}} ;; say done'
    )
    await team.bench.fact(receipt.thread, "tool_called", tool="hold")
    await team.bench.fact(receipt.thread, "tool_returned", tool="add")
    leaving = asyncio.create_task(team.leave())
    await team.join()
    gate.touch()
    await leaving
    facts = await team.bench.idle(receipt.thread)
    assert outcomes(facts) == ["handed_over", "completed"]
    assert sorted(fact["tool"] for fact in of_kind(facts, "tool_called")) == ["add", "hold"]
    history = await team.bench.history(receipt.thread)
    results = [part for message in history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert {part.tool_name: part.content for part in results} == {"hold": "let go", "add": 3}
    assert len(results) == 2


async def test_a_tool_that_does_not_end_in_time_leaves_its_run_abandoned(stack: Stack, team: Team) -> None:
    await team.leave()
    await team.join(grace=0.2)
    receipt = await team.bench.send('call nap {"seconds": 600}')
    await team.bench.fact(receipt.thread, "tool_called")
    await team.leave()
    given_up = await team.people.run(str(receipt.run), by=ME)
    assert (given_up.status, given_up.reason) == (RunStatus.FAILED, "abandoned")
    assert given_up.error is not None
    assert (given_up.error["cause"], given_up.error["unknown_calls"][0]["tool"]) == ("drain", "nap")


async def test_a_stop_during_a_hand_over_ends_the_run(team: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    receipt = await team.bench.send(f'call hold {{"gate": "{gate}"}} ;; say done')
    await team.bench.fact(receipt.thread, "tool_called")
    leaving = asyncio.create_task(team.leave())
    await team.people.stop(run=receipt.run, by=ME, wait=0)
    gate.touch()
    await leaving
    facts = await team.bench.idle(receipt.thread)
    assert of_kind(facts, "run_ended")[0]["status"] == "stopped"


async def test_a_message_that_waits_goes_to_the_worker_that_goes_on(team: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    receipt = await team.bench.send(f'call hold {{"gate": "{gate}"}}')
    await team.bench.fact(receipt.thread, "tool_called")
    leaving = asyncio.create_task(team.leave())
    steer = await team.bench.send("be quick", receipt.thread)
    gate.touch()
    await leaving
    await team.join()
    facts = await team.bench.idle(receipt.thread)
    assert (await team.people.message(steer.message, by=ME)).run == receipt.run
    assert of_kind(facts, "model_called")[-1]["text"] == "heard: be quick"
    assert len(of_kind(facts, "run_ended")) == 1


async def test_an_abandoned_run_is_tried_again_where_its_agent_allows_it(team: Team, stack: Stack) -> None:
    await team.leave()
    await team.join(grace=0, **SHORT)
    receipt = await team.people.send(None, 'call nap {"seconds": 600} ;; say done', by=ME, agent="again")
    await team.bench.fact(receipt.thread, "tool_called")
    await team.leave()
    await team.join()
    facts = await team.bench.idle(receipt.thread)
    assert outcomes(facts) == ["abandoned", "completed"]
    assert of_kind(facts, "attempt_closed")[0]["lost"]["unknown_calls"][0]["tool"] == "nap"
    # Nobody knows whether it has happened, so it is not repeated: the model is told.
    assert [fact["tool"] for fact in of_kind(facts, "tool_called")] == ["nap"]
    assert kinds(facts).count("run_started") == 1
