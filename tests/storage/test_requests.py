"""Pauses, answers, expiry, hand-overs and partial text, as transactions: each repeatable, each fenced."""

from datetime import timedelta

import pytest

from tests.storage.conftest import ME, OPERATOR, STRANGER, Desk
from threadhold.runner.decisions import Decision, NewRequest, Terms
from threadhold.runner.errors import AlreadyAnswered, ClaimLost, DecideFirst, NotFound, RequestClosed
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Outcome, Principal, Request, Start
from threadhold.storage.requests import PostgresRequests

ASKED = NewRequest(kind="approval", call_id="c1", tool="pay", args={"amount": 5})


async def pause(desk: Desk, thread: str, *requests: NewRequest) -> tuple[Start, list[Request]]:
    """Let a run pause, and return its attempt and what it waits for."""
    await desk.send(thread)
    start = await desk.begin(thread)
    nudge = await desk.work.pause(start, requests=requests or [ASKED], history=[{"kind": "response"}])
    assert nudge is not None
    found = await PostgresRequests(desk.database).list(
        by=ME, status=None, thread=thread, before=None, limit=10
    )
    return start, found[::-1]


async def test_a_pause_is_repeatable_and_fences_its_attempt(desk: Desk, thread: str) -> None:
    start, requests = await pause(desk, thread)
    again = await desk.work.pause(start, requests=[ASKED])
    assert again is not None
    found = await PostgresRequests(desk.database).list(
        by=ME, status="open", thread=thread, before=None, limit=10
    )
    assert found == requests
    with pytest.raises(ClaimLost):
        await desk.work.record(start, rec_no=2, facts=[])
    with pytest.raises(ClaimLost):
        await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert await desk.claim(thread) is None


async def test_a_pause_after_a_stop_writes_nothing(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    start = await desk.begin(thread)
    await desk.runs.stop(run=receipt.run, thread=None, by=ME, key=None)
    before = await desk.kinds(thread)
    assert await desk.work.pause(start, requests=[ASKED]) is None
    assert await desk.kinds(thread) == before
    ended, _ = await desk.work.end(start, status=RunStatus.STOPPED, data={})
    assert ended.status == RunStatus.STOPPED


async def test_a_zombie_cannot_pause_hand_over_or_keep_a_partial(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.lapse()
    for act in (
        lambda: desk.work.pause(start, requests=[ASKED]),
        lambda: desk.work.hand_over(start),
        lambda: desk.work.partial(start, {"kind": "response"}),
    ):
        with pytest.raises(ClaimLost):
            await act()
    assert (await desk.kinds(thread)).count("run_ended") == 1


async def test_the_last_answer_makes_the_run_pending_and_goes_along_with_the_start(
    desk: Desk, thread: str
) -> None:
    other = NewRequest(kind="question", call_id="c2", tool="ask", args={})
    _, [first, second] = await pause(desk, thread, ASKED, other)
    answers = PostgresRequests(desk.database)
    outcome, nudge = await answers.answer(first.id, Decision.edit({"amount": 1}), by=ME, args_hash=None)
    assert isinstance(outcome, Outcome)
    assert (outcome.open, outcome.status, nudge.run) == (1, RunStatus.PAUSED, None)
    assert await desk.claim(thread) is None
    outcome, nudge = await answers.answer(second.id, Decision.reply("bob"), by=ME, args_hash=None)
    assert isinstance(outcome, Outcome)
    assert (outcome.open, outcome.status, nudge.run) == (0, RunStatus.PENDING, first.run)
    start = await desk.claim(thread)
    assert start is not None
    assert (start.run, start.attempt, start.fresh) == (first.run, 2, False)
    facts = await desk.work.call_facts(thread, calls=["c1", "c2"])
    answered = [fact for fact in facts if fact["fact"] == "request_answered"]
    assert [(each["call_id"], each["decision"]) for each in answered] == [("c1", "edit"), ("c2", "reply")]
    assert (answered[0]["args"], answered[1]["value"]) == ({"amount": 1}, "bob")


async def test_a_start_that_fails_after_the_answer_leaves_it_standing(desk: Desk, thread: str) -> None:
    start, [request] = await pause(desk, thread)
    await PostgresRequests(desk.database).answer(request.id, Decision.approve(), by=ME, args_hash=None)
    assert await desk.claim(thread) is not None
    await desk.lapse()
    again = await desk.claim(thread, work=desk.other)
    assert again is not None
    assert (again.run, again.attempt) == (start.run, 3)
    assert (await PostgresRequests(desk.database).get(request.id, by=ME)).answer == {"kind": "approve"}


async def test_an_answer_of_another_workspace_finds_nothing(desk: Desk, thread: str) -> None:
    _, [request] = await pause(desk, thread)
    answers = PostgresRequests(desk.database)
    with pytest.raises(NotFound):
        await answers.answer(request.id, Decision.approve(), by=STRANGER, args_hash=None)
    with pytest.raises(NotFound):
        await answers.get(request.id, by=STRANGER)
    assert await answers.list(by=STRANGER, status=None, thread=None, before=None, limit=10) == []


async def test_who_could_have_answered_still_finds_it_when_it_is_decided(desk: Desk, thread: str) -> None:
    _, [request] = await pause(desk, thread)
    answers = PostgresRequests(desk.database)
    boss = Principal(id="boss", workspace="home", roles=frozenset({"approver"}))
    await answers.answer(request.id, Decision.reject(), by=boss, args_hash=None)
    listed = await answers.list(by=boss, status=None, thread=None, before=None, limit=10)
    assert [each.id for each in listed] == [request.id]
    with pytest.raises(NotFound):
        await desk.threads.get(thread, by=boss)


async def test_a_question_may_be_stopped_whatever_its_terms(desk: Desk, thread: str) -> None:
    asked = NewRequest(kind="question", call_id="c1", tool="ask", args={}, terms=Terms(other_only=True))
    start, _ = await pause(desk, thread, asked)
    stopped, _ = await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert stopped.status == RunStatus.STOPPED


async def test_expiry_is_noticed_by_a_late_answer_as_by_the_sweep(desk: Desk, thread: str) -> None:
    soon = NewRequest(
        kind="approval", call_id="c1", tool="pay", args={}, terms=Terms(expires_in=timedelta(microseconds=1))
    )
    start, [request] = await pause(desk, thread, soon)
    answers = PostgresRequests(desk.database)
    closed, nudge = await answers.answer(request.id, Decision.approve(), by=ME, args_hash=None)
    assert isinstance(closed, RequestClosed)
    assert closed.data["why"] == "its time is over"
    # The run may go on now, and whoever waits for that is told so.
    assert nudge.run == start.run
    with pytest.raises(AlreadyAnswered, match="'system'"):
        await answers.answer(request.id, Decision.approve(), by=ME, args_hash=None)
    assert (await desk.runs.get(start.run, by=ME)).status == RunStatus.PENDING
    assert await desk.work.sweep(limit=10) == []


async def test_a_thread_stop_cannot_take_the_decision_away_from_others(desk: Desk, thread: str) -> None:
    separate = NewRequest(kind="approval", call_id="c1", tool="pay", args={}, terms=Terms(other_only=True))
    start, [request] = await pause(desk, thread, separate)
    for by in (ME, OPERATOR):
        with pytest.raises(DecideFirst):
            await desk.runs.stop(run=start.run, thread=None, by=by, key=None)
    await PostgresRequests(desk.database).answer(request.id, Decision.reject("no"), by=ME, args_hash=None)
    stopped, _ = await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert stopped.status == RunStatus.STOPPED


async def test_a_hand_over_is_repeatable_and_uses_up_no_retry(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    first, nudge = await desk.work.hand_over(start, history=[{"kind": "request"}])
    again, _ = await desk.work.hand_over(start, history=[{"kind": "request"}])
    assert (first.outcome, again.outcome, nudge.run) == ("handed_over", "handed_over", start.run)
    following = await desk.claim(thread, work=desk.other)
    assert following is not None
    assert (following.attempt, following.history_head) == (2, start.history_head + 2)
    assert following.fence > start.fence


async def test_what_was_being_said_is_kept_by_a_lapse_and_dropped_by_a_hand_over(
    desk: Desk, thread: str
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    for text in ("once", "once upon"):
        await desk.work.partial(start, {"kind": "response", "text": text})
    await desk.work.hand_over(start)
    following = await desk.begin(thread, work=desk.other)
    said = {"kind": "response", "text": "once more", "parts": [{"content": "once "}, {"content": "more"}]}
    await desk.other.partial(following, said)
    await desk.other.release(following, cause="drain")
    kept = [message for message in await desk.work.history(thread, head=99) if "text" in message]
    assert kept == [said]
    facts = await desk.facts.facts(thread, after=0, limit=100)
    [told] = [frame.data for frame in facts if frame.data["fact"] == "model_called"]
    assert (told["text"], told["state"]) == ("once more", "interrupted")


async def test_what_was_being_said_counts_only_until_more_is_recorded(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.partial(start, {"kind": "response", "text": "half"})
    await desk.work.record(start, rec_no=2, facts=[], history=[{"kind": "response", "text": "whole"}])
    await desk.lapse()
    kept = [message for message in await desk.work.history(thread, head=99) if "text" in message]
    assert kept == [{"kind": "response", "text": "whole"}]


async def test_a_lapsed_run_is_retried_as_often_as_its_agent_allows(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    for attempt in (1, 2, 3):
        start, _ = await desk.work.claim(thread, agents={"a": 2}, start_key=f"{attempt:032x}")
        assert start is not None
        assert start.attempt == attempt
        seqs = [message.seq for message in start.inbox]
        await desk.work.record(start, rec_no=1, facts=[], delivered=seqs, shown=[{"kind": "request"}])
        await desk.lapse()
    run = await desk.runs.get(str(receipt.run), by=ME)
    assert (run.status, run.reason, run.attempt) == (RunStatus.FAILED, "abandoned", 3)
    assert run.error is not None
    assert run.error["retried"] == 2


async def test_records_that_a_failover_lost_fence_what_follows_them(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    with pytest.raises(ClaimLost):
        await desk.work.record(start, rec_no=3, facts=[])
