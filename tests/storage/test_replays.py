"""A replay is a new run that goes on from an earlier position of a history whose every branch stays on record."""

import asyncio
import json
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from tests.storage.conftest import FRIEND, ME, OPERATOR, STRANGER, Desk
from threadhold.runner.checkpoints import Checkpoint, parse_checkpoint
from threadhold.runner.decisions import NewRequest
from threadhold.runner.errors import (
    ActsForAnother,
    Forbidden,
    KeyConflict,
    NotFound,
    NotReplayable,
    ThreadArchived,
    ThreadBusy,
)
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import NewFact, Principal, Start
from threadhold.storage.log import PostgresLog
from threadhold.storage.pool import Database

APPROVER = Principal(id="boss", workspace="home", roles=frozenset({"approver"}))


@pytest.fixture
def log(database: Database) -> PostgresLog:
    """What is on record."""
    return PostgresLog(database)


async def ran(desk: Desk, thread: str, *words: str) -> Start:
    """Let a run say some words, each a chunk of the history behind that of its input, and end."""
    await desk.send(thread)
    return await go_on(desk, await desk.begin(thread), *words)


async def go_on(desk: Desk, start: Start, *words: str) -> Start:
    for number, word in enumerate(words, 2):
        await desk.work.record(start, rec_no=number, facts=[], history=[{"kind": "request", "said": word}])
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    return start


async def again(desk: Desk, run: str, chunk: int, *words: str, by: Principal = ME) -> Start:
    """Replay a run from a chunk and let it say some words."""
    replay, nudge = await desk.runs.replay(run, chunk=chunk, by=by, key=None)
    assert (nudge.run, nudge.agent) == (replay.run, "a")
    start = await desk.claim(replay.thread)
    assert start is not None
    assert (start.run, start.inbox, start.fresh) == (replay.run, (), True)
    await desk.work.record(start, rec_no=1, facts=[NewFact(kind="run_started", data={})])
    return await go_on(desk, start, *words)


def said(messages: list[Any]) -> list[str]:
    return [message.get("said", "?") for message in messages]


async def shown(log: PostgresLog, thread: str, head: int | None = None) -> list[str]:
    """Return what a thread's model is shown, page by page."""
    found: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = await log.history(thread, by=ME, after=after, limit=2, head=head)
        found, after = [*found, *page.items], page.next
    return said(found)


async def positions(log: PostgresLog, run: str) -> list[Checkpoint]:
    return list((await log.checkpoints(run, by=ME, after=0, limit=100)).items)


async def test_a_replay_goes_on_from_a_chunk_and_leaves_the_rest_out(
    desk: Desk, log: PostgresLog, thread: str
) -> None:
    first = await ran(desk, thread, "b", "c")
    before = (await desk.runs.get(first.run, by=ME), await desk.runs.attempts(first.run))
    second = await again(desk, first.run, 2, "x")
    assert await shown(log, thread) == ["?", "b", "x"]
    assert await shown(log, thread, 3) == ["?", "b", "c"]
    assert said(await desk.work.history(thread, head=4)) == ["?", "b", "x"]
    made = await desk.runs.get(second.run, by=ME)
    assert (made.replay_of, made.replay_from) == (first.run, f"{first.run}.2")
    assert (made.principal, made.status) == ("me", "completed")
    # The old one stays as it was.
    assert (await desk.runs.get(first.run, by=ME), await desk.runs.attempts(first.run)) == before
    kinds = await desk.kinds(thread)
    assert kinds[kinds.index("run_replayed") :][:2] == ["run_replayed", "run_started"]
    third = await ran(desk, thread, "y")
    assert await shown(log, thread) == ["?", "b", "x", "?", "y"]
    assert third.history_head == 4


async def test_any_branch_can_be_gone_back_to(desk: Desk, log: PostgresLog, thread: str) -> None:
    first = await ran(desk, thread, "b", "c")
    second = await again(desk, first.run, 1, "x", "y")
    # Onto a branch that was left, past where it was left.
    third = await again(desk, first.run, 3, "d")
    assert await shown(log, thread) == ["?", "b", "c", "d"]
    await again(desk, second.run, 4, "z")
    assert await shown(log, thread) == ["?", "x", "z"]
    assert await shown(log, thread, 6) == ["?", "b", "c", "d"]
    # From where a replay began itself, though another run wrote that.
    assert await desk.runs.begin(third.run, by=ME) == 3
    fifth = await again(desk, third.run, 3, "e")
    assert await shown(log, thread) == ["?", "b", "c", "e"]
    assert (await desk.runs.get(fifth.run, by=ME)).replay_from == f"{first.run}.3"


async def test_a_replay_that_wrote_nothing_is_followed_by_what_it_began_with(
    desk: Desk, log: PostgresLog, thread: str
) -> None:
    first = await ran(desk, thread, "b")
    replay, _ = await desk.runs.replay(first.run, chunk=1, by=ME, key=None)
    await desk.runs.stop(run=replay.run, thread=None, by=ME, key=None)
    assert await shown(log, thread) == ["?"]
    await ran(desk, thread, "x")
    assert await shown(log, thread) == ["?", "?", "x"]
    assert await desk.runs.begin(replay.run, by=ME) == 1


async def test_a_run_begins_with_all_that_its_model_was_first_asked_over(
    desk: Desk, log: PostgresLog, thread: str
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.send(thread, "just in time")
    await desk.work.record(
        start, rec_no=2, facts=[], delivered=[2], shown=[{"kind": "request", "said": "too"}]
    )
    await desk.work.record(start, rec_no=3, facts=[], history=[{"kind": "response"}, {"kind": "request"}])
    await go_on(desk, start)
    begun = await desk.runs.begin(start.run, by=ME)
    assert begun == 2
    await again(desk, start.run, begun, "x")
    assert await shown(log, thread) == ["?", "too", "x"]


async def test_a_key_makes_a_replay_repeatable(desk: Desk, thread: str) -> None:
    first = await ran(desk, thread, "b")
    replays = await asyncio.gather(*(desk.runs.replay(first.run, chunk=2, by=ME, key="k") for _ in range(5)))
    assert Counter(replay.duplicate for replay, _ in replays) == {False: 1, True: 4}
    assert len({replay.run for replay, _ in replays}) == 1
    assert {replay.checkpoint for replay, _ in replays} == {f"{first.run}.2"}
    assert sum(nudge.run is not None for _, nudge in replays) == 1
    with pytest.raises(KeyConflict):
        await desk.runs.replay(first.run, chunk=1, by=ME, key="k")
    # Somebody else's key is another one.
    with pytest.raises(ThreadBusy):
        await desk.runs.replay(first.run, chunk=2, by=OPERATOR, key="k")


async def test_only_who_it_acts_for_and_operators_may_replay(desk: Desk, thread: str) -> None:
    first = await ran(desk, thread, "b")
    for stranger in (STRANGER, FRIEND, APPROVER):
        with pytest.raises(NotFound):
            await desk.runs.replay(first.run, chunk=1, by=stranger, key=None)
    await desk.threads.set_member(thread, FRIEND.id, "read", by=ME)
    with pytest.raises(Forbidden):
        await desk.runs.replay(first.run, chunk=1, by=FRIEND, key=None)
    await desk.threads.set_member(thread, FRIEND.id, "write", by=ME)
    with pytest.raises(ActsForAnother):
        await desk.runs.replay(first.run, chunk=1, by=FRIEND, key=None)
    second = await again(desk, first.run, 1, by=OPERATOR)
    # An operator lends nobody an identity: the run acts for whom the first one acted.
    assert (second.principal, second.roles) == (ME.id, ME.roles)
    with pytest.raises(NotFound):
        await desk.runs.replay(str(uuid4()), chunk=1, by=OPERATOR, key=None)


async def test_what_cannot_be_replayed_is_refused_and_changes_nothing(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    assert receipt.run is not None
    assert await desk.runs.begin(receipt.run, by=ME) is None
    with pytest.raises(NotReplayable, match="not ended"):
        await desk.runs.replay(receipt.run, chunk=1, by=ME, key=None)
    start = await go_on(desk, await desk.begin(thread), "b")
    other = await ran(desk, thread, "c")
    for run, chunk in [(start.run, 4), (other.run, 1), (start.run, 99), (start.run, 0)]:
        with pytest.raises(NotReplayable, match="no checkpoint"):
            await desk.runs.replay(run, chunk=chunk, by=ME, key=None)
    busy = await desk.send(thread)
    seq = (await desk.threads.get(thread, by=ME)).seq
    with pytest.raises(ThreadBusy) as refused:
        await desk.runs.replay(start.run, chunk=1, by=ME, key=None)
    assert refused.value.data["run"] == busy.run
    assert (await desk.threads.get(thread, by=ME)).seq == seq
    await go_on(desk, await desk.begin(thread))
    await desk.threads.update(
        thread, title=None, metadata=None, status="archived", unchanged_since=None, by=ME
    )
    with pytest.raises(ThreadArchived):
        await desk.runs.replay(start.run, chunk=1, by=ME, key=None)


async def test_what_is_known_of_calls_on_a_branch_that_was_left_is_left_with_it(
    desk: Desk, thread: str
) -> None:
    def call(kind: str, note: str) -> NewFact:
        return NewFact(kind=kind, data={"call_id": "c1", "note": note})

    async def notes() -> list[str]:
        found = await desk.work.call_facts(thread, calls=["c1"])
        return [fact["note"] for fact in found]

    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.record(start, rec_no=2, facts=[call("tool_called", "left")], history=[{"said": "b"}])
    await desk.work.end(start, status=RunStatus.FAILED, reason="error", data={})
    assert await notes() == ["left"]
    replay, _ = await desk.runs.replay(start.run, chunk=1, by=ME, key=None)
    assert await notes() == []
    second = await desk.claim(thread)
    assert second is not None
    await desk.work.record(second, rec_no=1, facts=[call("tool_called", "kept")])
    assert await notes() == ["kept"]
    await desk.work.record(
        second, rec_no=2, facts=[call("tool_returned", "kept too")], history=[{"said": "x"}]
    )
    await desk.work.end(second, status=RunStatus.COMPLETED, data={})
    await ran(desk, thread)
    assert await notes() == ["kept", "kept too"]
    # Back to the branch that was left: now its own count, and not those of the other.
    await again(desk, start.run, 2, "z")
    assert await notes() == ["left"]
    assert replay.origin == start.run


async def test_checkpoints_tell_what_a_run_had_reached(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.record(start, rec_no=2, facts=[], history=[{"kind": "response"}, {"kind": "request"}])
    asked = [NewRequest(kind="approval", call_id=f"c{n}", tool="pay", args={}) for n in range(2)]
    await desk.work.pause(start, requests=asked, history=[{"kind": "response"}])
    first, second, third = await positions(log, start.run)
    assert [each.messages for each in (first, second, third)] == [1, 2, 1]
    assert [each.ends_in for each in (first, second, third)] == ["request", "request", "response"]
    assert (first.parent, second.parent, third.parent) == (None, first.id, second.id)
    assert first.seq < second.seq <= third.seq <= (await desk.threads.get(thread, by=ME)).seq
    # What the run waits for hangs off the last position of the attempt that asked.
    assert [len(each.requests) for each in (first, second, third)] == [0, 0, 2]
    assert parse_checkpoint(third.id) == (start.run, 3)
    assert await log.checkpoint(start.run, 3, by=ME) == third
    page = await log.checkpoints(start.run, by=ME, after=1, limit=1)
    assert (list(page.items), page.next) == ([second], 2)
    for principal in (STRANGER, FRIEND):
        with pytest.raises(NotFound):
            await log.checkpoint(start.run, 3, by=principal)
        with pytest.raises(NotFound):
            await log.checkpoints(start.run, by=principal, after=0, limit=9)
    with pytest.raises(NotFound):
        await log.checkpoint(start.run, 4, by=ME)


async def test_the_log_tells_who_replayed_what(desk: Desk, thread: str) -> None:
    first = await ran(desk, thread, "b")
    second = await again(desk, first.run, 2, by=OPERATOR)
    [told] = [
        frame
        for frame in await desk.facts.facts(thread, after=0, limit=100)
        if frame.data["fact"] == "run_replayed"
    ]
    assert told.run == second.run
    assert {name: told.data[name] for name in ("origin", "checkpoint", "by")} == {
        "origin": first.run,
        "checkpoint": f"{first.run}.2",
        "by": OPERATOR.id,
    }
    assert (await desk.runs.get(second.run, by=ME)).first_seq == told.seq - 1
    assert json.dumps(told.data)


def test_what_is_no_checkpoint_id_names_nothing() -> None:
    run = str(uuid4())
    assert parse_checkpoint(f"{run.upper()}.7") == (run, 7)
    for text in (
        "",
        run,
        f"{run}.",
        f"{run}.0",
        f"{run}.07",
        f"{run}.-1",
        f"{run}.1.1",
        "x.1",
        f"{run}.{2**63}",
    ):
        with pytest.raises(NotFound):
            parse_checkpoint(text)
