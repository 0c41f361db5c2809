"""Stops: by run or by thread, before, during and after, and what becomes of the messages."""

import pytest

from tests.storage.conftest import ME, W1, Desk
from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import NewFact

DONE = RunStatus.COMPLETED


async def test_stop_of_a_running_run_cuts_off_and_ends_stopped(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    unseen = await desk.send(thread, "unseen")
    receipt, nudge = await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert (receipt.settled, nudge.holder) == (False, W1)
    after = await desk.send(thread, "after")
    assert (after.disposition, after.run) == ("queued", None)
    again, _ = await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert not again.settled
    assert (await desk.kinds(thread)).count("stop_requested") == 1
    ended, _ = await desk.work.end(start, status=DONE, data={})
    assert ended.status == RunStatus.STOPPED
    message = await desk.messages.get(unseen.message, by=ME)
    assert (message.state, message.reason) == ("returned", "stopped")
    following = await desk.begin(thread)
    assert [message.id for message in following.inbox] == [after.message]


async def test_stop_before_the_start_ends_at_once(desk: Desk, thread: str) -> None:
    sent = await desk.send(thread)
    receipt, _ = await desk.runs.stop(run=None, thread=thread, by=ME, key="s")
    assert (receipt.settled, receipt.status, receipt.run) == (True, RunStatus.STOPPED, sent.run)
    assert await desk.state(thread) == "idle"
    assert (await desk.messages.get(sent.message, by=ME)).state == "returned"
    assert await desk.claim(thread) is None


async def test_repeated_thread_stop_never_hits_a_later_run(desk: Desk, thread: str) -> None:
    first = await desk.send(thread)
    await desk.runs.stop(run=None, thread=thread, by=ME, key="s")
    second = await desk.send(thread)
    receipt, _ = await desk.runs.stop(run=None, thread=thread, by=ME, key="s")
    assert receipt.run == first.run
    assert second.run is not None
    assert (await desk.runs.get(second.run, by=ME)).status == RunStatus.PENDING


async def test_thread_stop_returns_queued_messages_too(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    queued = await desk.send(thread, "later", on_busy="queue")
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    await desk.runs.stop(run=None, thread=thread, by=ME, key="s")
    await desk.work.end(start, status=RunStatus.STOPPED, data={})
    assert (await desk.messages.get(queued.message, by=ME)).state == "returned"
    assert await desk.state(thread) == "idle"


async def test_stop_of_an_idle_thread_and_of_an_ended_run(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.end(start, status=DONE, data={})
    idle, _ = await desk.runs.stop(run=None, thread=thread, by=ME, key=None)
    assert (idle.settled, idle.run) == (True, None)
    late, _ = await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert (late.settled, late.status) == (True, DONE)


async def test_lapse_after_a_stop_is_stopped(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    await desk.lapse()
    assert (await desk.runs.get(start.run, by=ME)).status == RunStatus.STOPPED


async def test_run_that_was_stopped_consumes_nothing_more(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    unseen = await desk.send(thread, "unseen")
    (message,) = await desk.work.inbox(start)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    recorded = await desk.work.record(
        start,
        rec_no=2,
        facts=[NewFact(kind="tool_called", data={})],
        history=[{"n": 1}],
        delivered=[message.seq],
        shown=[{"n": 2}],
    )
    assert recorded.stop_requested
    assert await desk.work.history(thread, head=9) == [{"kind": "request"}, {"n": 1}]
    await desk.work.end(start, status=DONE, data={})
    assert (await desk.messages.get(unseen.message, by=ME)).state == "returned"


async def test_end_after_a_lapse_that_recorded_the_stop_is_fenced(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    await desk.lapse()
    with pytest.raises(ClaimLost):
        await desk.work.end(start, status=DONE, data={})


async def test_each_scope_of_a_stop_is_on_record(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    await desk.runs.stop(run=None, thread=thread, by=ME, key=None)
    await desk.runs.stop(run=None, thread=thread, by=ME, key=None)
    facts = await desk.facts.facts(thread, after=0, limit=100)
    assert [frame.data["scope"] for frame in facts if frame.data["fact"] == "stop_requested"] == [
        "run",
        "thread",
    ]
    await desk.work.end(start, status=DONE, data={})
