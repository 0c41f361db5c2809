"""Running an agent: facts, history, steering, stops and failures, with real servers and a scripted model."""

from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.support.agents import agent
from threadhold import Hosted
from threadhold.runner.machine import RunStatus


def parts(messages: list[ModelMessage], kind: type) -> list[Any]:
    """Return all parts of one type."""
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


async def test_facts_of_a_run_with_tools(bench: Bench) -> None:
    facts = await bench.ask('call add {"a": 1, "b": 2} | call add {"a": 3, "b": 4} ;; say sums: 3, 7')
    order = kinds(facts)
    assert order[:4] == ["message_accepted", "run_started", "message_delivered", "model_called"]
    assert sorted(order[4:8]) == ["tool_called"] * 2 + ["tool_returned"] * 2
    assert order[8:] == ["model_called", "attempt_closed", "run_ended"]
    returned = of_kind(facts, "tool_returned")
    assert {(fact["outcome"], fact["result"]) for fact in returned} == {("ok", 3), ("ok", 7)}
    first, last = of_kind(facts, "model_called")
    assert [call["tool"] for call in first["calls"]] == ["add", "add"]
    assert (last["text"], last["model"]) == ("sums: 3, 7", "scripted")
    assert last["input_tokens"] > 0
    ended = facts[-1]
    assert (ended["status"], ended["output"]) == ("completed", "sums: 3, 7")


async def test_a_run_has_what_it_returned_and_lists_of_runs_leave_it_out(bench: Bench) -> None:
    completed = await bench.run(await bench.send("say all of it"))
    failed = await bench.run(await bench.send("raise nothing to say"))
    assert (completed.status, completed.output) == (RunStatus.COMPLETED, "all of it")
    assert (failed.status, failed.output) == (RunStatus.FAILED, None)
    assert [run.output for run in await bench.runner.runs(by=ME)] == [None, None]


async def test_history_is_whole_and_in_order(bench: Bench) -> None:
    receipt = await bench.send('call add {"a": 1, "b": 2} ;; say three')
    await bench.idle(receipt.thread)
    history = await bench.history(receipt.thread)
    assert [type(message) for message in history] == [
        ModelRequest,
        ModelResponse,
        ModelRequest,
        ModelResponse,
    ]
    assert parts(history, UserPromptPart)[0].content.startswith("call add")
    assert [part.content for part in parts(history, ToolReturnPart)] == [3]
    assert [part.content for part in parts(history, TextPart)] == ["three"]


async def test_next_run_sees_the_conversation_and_one_system_prompt(bench: Bench) -> None:
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    await bench.ask("say two", receipt.thread)
    shown = bench.seen[-1]
    assert [part.content for part in parts(shown, TextPart)] == ["one"]
    assert [part.content for part in parts(shown, UserPromptPart)] == ["say one", "say two"]
    assert [part.content for part in parts(shown, SystemPromptPart)] == ["You are scripted."]


async def test_message_to_a_busy_thread_is_seen_at_the_next_request(bench: Bench) -> None:
    receipt = await bench.send('call nap {"seconds": 0.3} ;; words 1 0')
    await bench.fact(receipt.thread, "tool_called")
    steer = await bench.send("hurry", receipt.thread)
    assert (steer.disposition, steer.run) == ("steered", receipt.run)
    facts = await bench.idle(receipt.thread)
    delivered = next(n for n, fact in enumerate(facts) if fact.get("message") == steer.message and n > 3)
    assert facts[delivered]["fact"] in ("message_accepted", "message_delivered")
    positions = {(fact["fact"], fact.get("message")): n for n, fact in enumerate(facts)}
    last_call = max(n for n, fact in enumerate(facts) if fact["fact"] == "model_called")
    assert positions["message_delivered", steer.message] < last_call
    assert [part.content for part in parts(bench.seen[-1], UserPromptPart)][-1] == "hurry"
    assert len(of_kind(facts, "run_ended")) == 1
    history = await bench.history(receipt.thread)
    assert [part.content for part in parts(history, UserPromptPart)].count("hurry") == 1


async def test_message_during_the_final_text_gets_an_answer_in_the_same_run(bench: Bench) -> None:
    receipt = await bench.send("words 10 0.05")
    await bench.fact(receipt.thread, "run_started")
    steer = await bench.send("and you", receipt.thread)
    facts = await bench.idle(receipt.thread)
    assert [fact["text"] for fact in of_kind(facts, "model_called")][-1] == "heard: and you"
    assert len(of_kind(facts, "run_ended")) == 1
    state = await bench.runner.message(steer.message, by=ME)
    assert (state.state, state.run) == ("delivered", receipt.run)
    history = await bench.history(receipt.thread)
    assert [part.content for part in parts(history, UserPromptPart)] == ["words 10 0.05", "and you"]


async def test_stop_keeps_the_partial_answer_and_the_thread_goes_on(bench: Bench) -> None:
    receipt = await bench.send("words 1000 0.02")
    async for delivery in bench.runner.watch(receipt.thread, by=ME, after="start"):
        if delivery.frame.data.get("event_kind") == "part_delta":
            break
    stopped = await bench.runner.stop(by=ME, run=receipt.run, wait=10)
    assert (stopped.settled, stopped.status) == (True, RunStatus.STOPPED)
    again = await bench.runner.stop(by=ME, run=receipt.run)
    assert (again.settled, again.status) == (True, RunStatus.STOPPED)
    facts = await bench.ask("what were you saying", receipt.thread)
    assert of_kind(facts, "run_ended")[-1]["status"] == "completed"
    partial = parts(bench.seen[-1], TextPart)[0].content
    assert partial.startswith("w1 w2 ")
    history = await bench.history(receipt.thread)
    assert [part.content for part in parts(history, UserPromptPart)] == [
        "words 1000 0.02",
        "what were you saying",
    ]
    assert len(parts(history, TextPart)) == 2


async def test_stop_during_a_tool_closes_its_call(bench: Bench) -> None:
    receipt = await bench.send('call add {"a": 1, "b": 1} | call nap {"seconds": 60} ;; say never')
    await bench.fact(receipt.thread, "tool_called", tool="nap")
    await bench.fact(receipt.thread, "tool_returned", tool="add")
    stopped = await bench.runner.stop(by=ME, thread=receipt.thread, key="s", wait=10)
    assert stopped.settled
    assert sorted(stopped.tools.values()) == ["finished", "unknown"]
    facts = await bench.ask("go on", receipt.thread)
    assert of_kind(facts, "run_ended")[-1]["status"] == "completed"
    shown = bench.seen[-1]
    calls = {part.tool_call_id for part in parts(shown, ToolCallPart)}
    assert {part.tool_call_id for part in parts(shown, ToolReturnPart)} == calls


@pytest.mark.parametrize(
    ("tool", "reason", "kind"),
    [("fail", "error", "out_of_stock"), ("crash", "error", "LookupError")],
)
async def test_failing_tools_fail_the_run_with_a_type(
    bench: Bench, tool: str, reason: str, kind: str
) -> None:
    receipt = await bench.send(f'call {tool} {{"why": "no shelf"}} ;; say never')
    run = await bench.run(receipt)
    assert (run.status, run.reason) == (RunStatus.FAILED, reason)
    assert run.error is not None
    assert run.error["type"] == kind
    assert "no shelf" in run.error["message"]
    facts = await bench.ask("go on", receipt.thread)
    assert of_kind(facts, "tool_returned")[0]["outcome"] == "failed"
    history = await bench.history(receipt.thread)
    assert [part.tool_name for part in parts(history, ToolCallPart)] == [tool]
    assert [part.content for part in parts(history, UserPromptPart)][1:] == ["go on"]
    assert of_kind(facts, "run_ended")[-1]["status"] == "completed"


async def test_rejection_is_a_retry_for_the_model(bench: Bench) -> None:
    facts = await bench.ask('call reject {"why": "not yours"} ;; say sorry')
    assert [(fact["outcome"], fact["error"]) for fact in of_kind(facts, "tool_returned")] == [
        ("retry", "not yours")
    ]
    assert facts[-1]["status"] == "completed"
    assert "not yours" in str(bench.seen[-1])


async def test_failing_provider_fails_the_run(bench: Bench) -> None:
    run = await bench.run(await bench.send("raise the provider is down"))
    assert (run.status, run.error) == (
        RunStatus.FAILED,
        {"type": "RuntimeError", "message": "the provider is down"},
    )


async def test_tools_act_for_the_principal_who_asked(bench: Bench) -> None:
    facts = await bench.ask("call whoami ;; say done")
    assert of_kind(facts, "tool_returned")[0]["result"] == "me in home"


async def test_live_text_is_the_final_text(bench: Bench) -> None:
    receipt = await bench.send("say ä€\U0001f600 | words 30 0.005")
    text, final, numbers = "", "", []
    async for delivery in bench.runner.watch(receipt.thread, by=ME, after="start", until="idle"):
        frame = delivery.frame
        if frame.n:
            numbers.append(frame.n)
        if frame.data.get("event_kind") == "part_start":
            text += frame.data["part"]["content"]
        if frame.data.get("event_kind") == "part_delta":
            text += frame.data["delta"]["content_delta"]
        if frame.data.get("fact") == "model_called":
            final = frame.data["text"]
    assert text == final
    assert numbers == list(range(1, len(numbers) + 1))


async def test_agent_that_cancels_itself_has_failed_and_was_not_stopped(bench: Bench) -> None:
    run = await bench.run(await bench.send("call quit ;; say never"))
    assert (run.status, run.error) == (
        RunStatus.FAILED,
        {"type": "cancelled", "message": "the agent cancelled itself"},
    )


async def test_dependencies_that_cannot_be_made_fail_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)

    def refuse(identity: object) -> None:
        raise PermissionError("no seat in the database")

    hosted = Hosted(agent, deps=refuse)
    monkeypatch.setitem(bench.runner.app._agents, "scripted", hosted)
    facts = await bench.ask("say two", receipt.thread)
    assert facts[-1]["error"] == {"type": "PermissionError", "message": "no seat in the database"}
    history = await bench.history(receipt.thread)
    assert [part.content for part in parts(history, UserPromptPart)] == ["say one", "say two"]
    assert [part.content for part in parts(history, TextPart)] == ["one"]


async def test_unreadable_history_fails_the_run_and_not_the_worker(bench: Bench) -> None:
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    async with bench.database._pool.acquire() as connection, connection.transaction():
        # Past the guard that lets nobody change it.
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute('UPDATE threadhold.history SET messages = \'[{"kind": "from the future"}]\'')
    run = await bench.run(await bench.send("say two", receipt.thread))
    assert (run.status, run.reason) == (RunStatus.FAILED, "history_unsafe")


async def test_more_messages_than_slots_all_run(bench: Bench) -> None:
    receipts = [await bench.send(f"say {n}") for n in range(20)]
    for receipt in receipts:
        assert (await bench.run(receipt)).status == RunStatus.COMPLETED
