"""Agents that misbehave: whatever they do, their run ends with a type, and nobody else's is touched."""

import asyncio
from uuid import uuid4

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import TextPart, ToolReturnPart, UserPromptPart

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.runner.test_execution import parts
from tests.support.agents import add, agent
from tests.support.scripted import scripted_model
from threadhold import Hosted
from threadhold.runner.machine import RunStatus
from threadhold.runner.worker import Worker


def host(bench: Bench, monkeypatch: pytest.MonkeyPatch, hosted: Hosted) -> None:
    """Replace the app's agent for one test."""
    monkeypatch.setitem(bench.runner.app._agents, "scripted", hosted)


async def test_agent_that_trims_its_history_is_stored_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimming = Agent(
        scripted_model(), tools=[add], capabilities=[ProcessHistory(lambda messages: messages[-3:])]
    )
    host(bench, monkeypatch, Hosted(trimming))
    receipt = await bench.send("say before")
    await bench.idle(receipt.thread)
    script = " ;; ".join(['call add {"a": 1, "b": 2}'] * 3 + ["say after"])
    facts = await bench.ask(script, receipt.thread)
    assert facts[-1]["status"] == "completed"
    history = await bench.history(receipt.thread)
    # The model forgets its script on the way; what it did all the same is stored, all of it and once.
    assert len(parts(history, ToolReturnPart)) == len(of_kind(facts, "tool_returned")) >= 2
    said = [fact["text"] for fact in of_kind(facts, "model_called") if fact["text"]]
    assert [part.content for part in parts(history, TextPart)] == said
    assert len(parts(history, UserPromptPart)) == 2


async def test_agent_that_rewrites_its_newest_messages_fails_with_a_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewriting = Agent(
        scripted_model(),
        tools=[add],
        capabilities=[ProcessHistory(lambda messages: messages[:1] if len(messages) > 2 else messages)],
    )
    host(bench, monkeypatch, Hosted(rewriting))
    run = await bench.run(await bench.send('call add {"a": 1, "b": 2} ;; say lost'))
    assert run.status == RunStatus.FAILED


async def test_tool_that_ends_the_process_ends_only_its_run(bench: Bench) -> None:
    other = await bench.send("words 20 0.02")
    run = await bench.run(await bench.send("call leave ;; say never"))
    assert (run.status, run.error and run.error["type"]) == (RunStatus.FAILED, "SystemExit")
    assert (await bench.run(other)).status == RunStatus.COMPLETED


async def test_tool_that_lets_a_cancellation_slip_fails_its_run(bench: Bench) -> None:
    run = await bench.run(await bench.send("call slip ;; say never"))
    assert (run.status, run.error and run.error["type"]) == (RunStatus.FAILED, "cancelled")


async def test_run_whose_dependencies_hang_can_be_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(identity: object) -> None:
        await asyncio.Event().wait()

    host(bench, monkeypatch, Hosted(agent, deps=hang))
    receipt = await bench.send("say never")
    await bench.fact(receipt.thread, "message_delivered")
    stopped = await bench.runner.stop(by=ME, run=receipt.run, wait=10)
    assert (stopped.settled, stopped.status) == (True, RunStatus.STOPPED)


async def test_no_tool_and_no_model_call_starts_after_a_stop_that_nobody_was_told_of(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "poke", lambda self, thread: None)
    script = " ;; ".join(['call nap {"seconds": 0.05}'] * 100)
    receipt = await bench.send(script)
    await bench.fact(receipt.thread, "tool_called")
    await bench.runner.stop(by=ME, run=receipt.run, wait=10)
    facts = await bench.idle(receipt.thread)
    after = kinds(facts)[kinds(facts).index("stop_requested") :]
    # One that had begun may return; the record that tells of the stop may be the one that announces a call.
    assert after.count("tool_returned") <= 1
    assert after.count("tool_called") <= 1
    assert of_kind(facts, "run_ended")[0]["status"] == "stopped"


async def test_an_id_is_the_same_thread_however_it_is_written(bench: Bench) -> None:
    id = str(uuid4())
    receipt = await bench.send("words 5 0.01", id.upper())
    assert receipt.thread == id
    live = [
        delivery.frame
        async for delivery in bench.runner.watch(f"{{{id}}}", by=ME, after="start", until="idle")
        if delivery.frame.n
    ]
    assert live
    assert (await bench.runner.stop(by=ME, thread=id.upper())).settled
