"""Runs that wait for people: paused, answered once, resumed as a new attempt, on real servers."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.support.histories import texts
from tests.support.waiting import until
from threadhold import Decision, Principal
from threadhold.runner.errors import (
    AlreadyAnswered,
    ArgsChanged,
    DecideFirst,
    Forbidden,
    InvalidInput,
    NotFound,
    OwnRequest,
    RequestClosed,
    WrongDecision,
)
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Receipt, Request

BOSS = Principal(id="boss", workspace="home", roles=frozenset({"approver"}))
STRANGER = Principal(id="stranger", workspace="elsewhere", roles=frozenset({"operator", "approver"}))


async def paused(bench: Bench, script: str, thread: str | None = None) -> tuple[Receipt, list[Request]]:
    """Send a script that pauses, and return what it waits for, oldest first."""
    receipt = await bench.send(script, thread)
    await bench.fact(receipt.thread, "paused")
    requests = await bench.runner.requests(by=ME, thread=receipt.thread)
    return receipt, requests[::-1]


def results(messages: list[ModelMessage]) -> dict[str, tuple[Any, str]]:
    """Return what the model was told of each call: the content and the outcome."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return {
        part.tool_name: (part.content, part.outcome) for part in parts if isinstance(part, ToolReturnPart)
    }


async def test_an_approved_call_runs_in_a_new_attempt_of_the_same_run(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 5}')
    assert (request.kind, request.tool, request.args) == ("approval", "pay", {"amount": 5})
    assert (await bench.runner.thread(receipt.thread, by=ME)).state == "paused"
    outcome = await bench.runner.answer(request.id, Decision.approve(), by=ME, args_hash=request.args_hash)
    assert (outcome.open, outcome.status, outcome.duplicate) == (0, RunStatus.PENDING, False)
    facts = await bench.idle(receipt.thread)
    assert (await bench.run(receipt)).status == RunStatus.COMPLETED
    assert kinds(facts) == [
        "message_accepted",
        "run_started",
        "message_delivered",
        "model_called",
        "request_opened",
        "attempt_closed",
        "paused",
        "request_answered",
        "attempt_started",
        "tool_called",
        "tool_returned",
        "model_called",
        "attempt_closed",
        "run_ended",
    ]
    assert [fact["outcome"] for fact in of_kind(facts, "attempt_closed")] == ["interrupted", "completed"]
    assert results(bench.seen[-1])["pay"] == ("paid 5 to anybody", "success")


async def test_edited_arguments_are_the_ones_that_run(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 500}')
    await bench.runner.answer(request.id, Decision.edit({"amount": 1, "to": "bob"}), by=ME)
    await bench.idle(receipt.thread)
    assert results(bench.seen[-1])["pay"] == ("paid 1 to bob", "success")


async def test_a_rejection_tells_the_model_why_and_nothing_runs(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 5}')
    await bench.runner.answer(request.id, Decision.reject("too much"), by=ME)
    facts = await bench.idle(receipt.thread)
    assert of_kind(facts, "tool_called") == []
    assert results(bench.seen[-1])["pay"] == ("too much", "denied")
    assert (await bench.run(receipt)).status == RunStatus.COMPLETED


async def test_a_question_gets_its_reply_and_an_outside_call_its_result(bench: Bench) -> None:
    receipt, requests = await paused(bench, 'call ask {"question": "who?"} | call outside {"job": "x"}')
    assert [(request.kind, request.metadata) for request in requests] == [
        ("question", {"question": "who?"}),
        ("external", {"job": "x"}),
    ]
    first = await bench.runner.answer(requests[0].id, Decision.reply("bob"), by=ME)
    assert (first.open, first.status) == (1, RunStatus.PAUSED)
    await bench.runner.answer(requests[1].id, Decision.reply({"rows": 3}), by=ME)
    await bench.idle(receipt.thread)
    assert results(bench.seen[-1]) == {"ask": ("bob", "success"), "outside": ({"rows": 3}, "success")}


async def test_siblings_of_a_deferred_call_run_once_and_keep_their_results(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call add {"a": 1, "b": 2} | call pay {"amount": 5}')
    await bench.runner.answer(request.id, Decision.approve(), by=ME)
    facts = await bench.idle(receipt.thread)
    assert [fact["tool"] for fact in of_kind(facts, "tool_called")] == ["add", "pay"]
    assert results(bench.seen[-1]) == {"add": (3, "success"), "pay": ("paid 5 to anybody", "success")}


async def test_a_message_answers_questions_and_denies_approvals_and_is_no_prompt(bench: Bench) -> None:
    receipt, requests = await paused(bench, 'call ask {"question": "who?"} | call pay {"amount": 5}')
    reply = await bench.send("never mind", receipt.thread)
    assert reply.disposition == "replied"
    facts = await bench.idle(receipt.thread)
    assert results(bench.seen[-1]) == {"ask": ("never mind", "success"), "pay": ("never mind", "denied")}
    assert texts(bench.seen[-1], UserPromptPart) == ['call ask {"question": "who?"} | call pay {"amount": 5}']
    assert (await bench.runner.message(reply.message, by=ME)).state == "delivered"
    assert [fact["decision"] for fact in of_kind(facts, "request_answered")] == ["reject", "reply"]
    assert [request.kind for request in requests] == ["approval", "question"]


async def test_answered_requests_keep_their_answer_when_a_message_fills_the_rest(bench: Bench) -> None:
    receipt, requests = await paused(bench, 'call ask {"question": "who?"} | call pay {"amount": 5}')
    await bench.runner.answer(requests[0].id, Decision.approve(), by=ME)
    await bench.send("alice", receipt.thread)
    await bench.idle(receipt.thread)
    assert results(bench.seen[-1]) == {"ask": ("alice", "success"), "pay": ("paid 5 to anybody", "success")}


async def test_a_waiting_message_never_destroys_a_pause_and_comes_after_the_results(
    bench: Bench, tmp_path: Any
) -> None:
    gate = tmp_path / "gate"
    script = f'hold {gate} | call pay {{"amount": 5}}'
    receipt = await bench.send(script)
    await bench.asked()
    steer = await bench.send("hurry", receipt.thread)
    assert steer.disposition == "steered"
    gate.touch()
    await bench.fact(receipt.thread, "paused")
    assert (await bench.runner.message(steer.message, by=ME)).state == "waiting"
    [request] = await bench.runner.requests(by=ME, thread=receipt.thread)
    await bench.runner.answer(request.id, Decision.approve(), by=ME)
    await bench.idle(receipt.thread)
    assert (await bench.runner.message(steer.message, by=ME)).state == "delivered"
    assert texts(bench.seen[-1], UserPromptPart) == [script, "hurry"]
    assert results(bench.seen[-1])["pay"] == ("paid 5 to anybody", "success")


async def test_a_resumed_run_may_pause_again(bench: Bench) -> None:
    script = 'call pay {"amount": 1} ;; call pay {"amount": 2}'
    receipt, [first] = await paused(bench, script)
    await bench.runner.answer(first.id, Decision.approve(), by=ME)
    second = await until(lambda: bench.runner.requests(by=ME, thread=receipt.thread))
    await bench.runner.answer(second[0].id, Decision.approve(), by=ME)
    facts = await bench.idle(receipt.thread)
    assert [fact["result"] for fact in of_kind(facts, "tool_returned")] == [
        "paid 1 to anybody",
        "paid 2 to anybody",
    ]
    assert (await bench.run(receipt)).attempt == 3
    history = await bench.history(receipt.thread)
    calls = [part for message in history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert len(calls) == 2


async def test_each_request_is_answered_once(bench: Bench) -> None:
    _, requests = await paused(bench, 'call pay {"amount": 5} | call ask {"question": "who?"}')
    first = await bench.runner.answer(requests[0].id, Decision.approve(), by=ME)
    again = await bench.runner.answer(requests[0].id, Decision.approve(), by=ME)
    assert (again.decision, again.duplicate, again.seq) == (first.decision, True, first.seq)
    with pytest.raises(AlreadyAnswered, match="first answer counts"):
        await bench.runner.answer(requests[0].id, Decision.reject(), by=ME)
    with pytest.raises(AlreadyAnswered):
        await bench.runner.answer(requests[0].id, Decision.approve(), by=BOSS)
    await bench.send("done", (await bench.runner.request(requests[0].id, by=ME)).thread)


async def test_of_many_answers_at_once_one_counts(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 5}')
    decisions = [Decision.reject(f"no {number}") for number in range(8)]
    outcomes = await asyncio.gather(
        *(bench.runner.answer(request.id, decision, by=ME) for decision in decisions), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyAnswered"] * 7 + ["Outcome"]
    facts = await bench.idle(receipt.thread)
    assert len(of_kind(facts, "request_answered")) == 1


async def test_a_decision_must_fit_what_was_asked(bench: Bench) -> None:
    receipt, requests = await paused(bench, 'call pay {"amount": 5} | call ask {"question": "who?"}')
    with pytest.raises(WrongDecision, match="approve, edit, reject"):
        await bench.runner.answer(requests[0].id, Decision.reply("yes"), by=ME)
    with pytest.raises(WrongDecision, match="reply, reject"):
        await bench.runner.answer(requests[1].id, Decision.approve(), by=ME)
    with pytest.raises(ArgsChanged):
        await bench.runner.answer(requests[0].id, Decision.approve(), by=ME, args_hash="00" * 32)
    with pytest.raises(InvalidInput):
        await bench.runner.answer(requests[0].id, Decision(kind="edit"), by=ME)
    with pytest.raises(NotFound):
        await bench.runner.answer(requests[0].id, Decision.approve(), by=STRANGER)
    with pytest.raises(NotFound):
        await bench.runner.answer(receipt.message, Decision.approve(), by=ME)
    await bench.send("done", receipt.thread)


async def test_whoever_asked_cannot_approve_where_duties_are_separate(bench: Bench) -> None:
    receipt, [request] = await paused(bench, "call guarded {}")
    assert (request.other_only, request.metadata) == (True, {"note": "think twice"})
    with pytest.raises(OwnRequest):
        await bench.runner.answer(request.id, Decision.approve(), by=ME)
    with pytest.raises(OwnRequest):
        await bench.runner.answer(request.id, Decision.edit({}), by=ME)
    with pytest.raises(DecideFirst):
        await bench.runner.stop(by=ME, thread=receipt.thread, key="k")
    assert (await bench.runner.request(request.id, by=BOSS)).status == "open"
    await bench.runner.answer(request.id, Decision.approve(), by=BOSS)
    await bench.idle(receipt.thread)
    assert results(bench.seen[-1])["guarded"] == ("guarded done", "success")
    # The thread was open to the approver only while something was to be decided.
    with pytest.raises(NotFound):
        await bench.runner.thread(receipt.thread, by=BOSS)


async def test_a_run_that_somebody_else_let_go_on_still_acts_for_the_one_who_started_it(bench: Bench) -> None:
    receipt, [request] = await paused(bench, "call guarded {} ;; call whoami {}")
    await bench.runner.answer(request.id, Decision.approve(), by=BOSS)
    facts = await bench.idle(receipt.thread)
    assert [fact["by"] for fact in of_kind(facts, "request_answered")] == ["boss"]
    assert results(bench.seen[-1])["whoami"] == ("me in home", "success")


async def test_named_approvers_are_the_only_ones(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call guarded {"approvers": ["carol"]}')
    carol = Principal(id="carol", workspace="home")
    with pytest.raises(NotFound):
        await bench.runner.answer(request.id, Decision.approve(), by=BOSS)
    with pytest.raises(Forbidden):
        await bench.runner.answer(request.id, Decision.reject(), by=ME)
    await bench.runner.answer(request.id, Decision.approve(), by=carol)
    await bench.idle(receipt.thread)
    again = await bench.runner.answer(request.id, Decision.approve(), by=carol)
    assert again.duplicate


async def test_a_request_whose_time_is_over_is_denied_by_the_system(bench: Bench) -> None:
    # Its time may be over before anybody could list it.
    receipt = await bench.send('call guarded {"expires_s": 0.2}')
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.fact(receipt.thread, "run_ended")
    facts = await bench.idle(receipt.thread)
    [answered] = of_kind(facts, "request_answered")
    assert (answered["by"], answered["decision"], answered["reason"]) == ("system", "reject", "expired")
    assert results(bench.seen[-1])["guarded"] == ("expired", "denied")
    with pytest.raises(AlreadyAnswered):
        await bench.runner.answer(opened["request"], Decision.approve(), by=BOSS)


async def test_stopping_a_paused_run_ends_it_and_closes_its_requests_on_the_record(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 5}')
    stopped = await bench.runner.stop(by=ME, run=receipt.run)
    assert (stopped.settled, stopped.status) == (True, RunStatus.STOPPED)
    facts = await bench.idle(receipt.thread)
    [answered] = of_kind(facts, "request_answered")
    assert (answered["by"], answered["decision"]) == ("me", "cancelled")
    with pytest.raises(RequestClosed):
        await bench.runner.answer(request.id, Decision.approve(), by=ME)
    after = await bench.ask("say still here", receipt.thread)
    assert of_kind(after, "run_ended")[-1]["status"] == "completed"


async def test_nothing_is_held_while_a_run_waits(bench: Bench) -> None:
    receipt, [request] = await paused(bench, 'call pay {"amount": 5}')
    why = await bench.runner.why(str(receipt.run), by=ME)
    assert why.claim is None
    assert [each.id for each in why.requests] == [request.id]
    assert [attempt.outcome for attempt in why.attempts] == ["interrupted"]
    await bench.send("no", receipt.thread)
    await bench.idle(receipt.thread)
