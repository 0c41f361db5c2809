"""What a message means is decided once, under the thread's lock, and a key makes it repeatable."""

import asyncio
from uuid import uuid4

import pytest

from tests.storage.conftest import FRIEND, ME, OPERATOR, STRANGER, Desk
from threadhold.runner.errors import (
    Forbidden,
    InboxFull,
    InvalidInput,
    KeyConflict,
    NotFound,
    ThreadArchived,
    ThreadBusy,
    ThreadExists,
    Unavailable,
)
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import INBOX_MAX


async def test_first_message_makes_thread_and_run(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    assert (receipt.disposition, receipt.duplicate, receipt.no_worker) == ("started", False, True)
    assert receipt.run is not None
    assert await desk.kinds(thread) == ["message_accepted"]
    run = await desk.runs.get(receipt.run, by=ME)
    assert (run.status, run.first_seq) == (RunStatus.PENDING, 0)


async def test_busy_thread_is_steered_and_no_second_run_starts(desk: Desk, thread: str) -> None:
    first = await desk.send(thread)
    second = await desk.send(thread, "and this")
    assert (second.disposition, second.run) == ("steered", first.run)


async def test_queued_message_waits_for_the_next_run(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    queued = await desk.send(thread, "later", on_busy="queue")
    assert (queued.disposition, queued.run) == ("queued", None)
    ended, _ = await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert ended.outcome == "ended"
    assert ended.next_run is not None
    following = await desk.begin(thread)
    assert [message.content for message in following.inbox] == ["later"]


async def test_rejecting_send_records_nothing(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    before = await desk.kinds(thread)
    with pytest.raises(ThreadBusy) as refused:
        await desk.send(thread, on_busy="reject")
    assert refused.value.data["run"] == receipt.run
    assert await desk.kinds(thread) == before


async def test_interrupting_send_stops_a_pending_run_and_starts_the_next(desk: Desk, thread: str) -> None:
    first = await desk.send(thread, "one")
    second = await desk.send(thread, "two", on_busy="interrupt")
    assert second.disposition == "queued"
    assert first.run is not None
    run = await desk.runs.get(first.run, by=ME)
    assert (run.status, run.reason) == (RunStatus.STOPPED, "interrupted_by_message")
    following = await desk.begin(thread)
    assert [message.content for message in following.inbox] == ["two"]
    assert (await desk.messages.get(first.message, by=ME)).state == "returned"


async def test_same_key_gives_the_same_receipt(desk: Desk, thread: str) -> None:
    first = await desk.send(thread, key="k")
    again = await desk.send(thread, key="k")
    assert again.duplicate
    assert (again.message, again.run, again.seq) == (first.message, first.run, first.seq)
    with pytest.raises(KeyConflict):
        await desk.send(thread, "other words", key="k")


async def test_concurrent_sends_with_one_key_accept_one(desk: Desk, thread: str) -> None:
    receipts = await asyncio.gather(*(desk.send(thread, key="k") for _ in range(8)))
    assert len({receipt.message for receipt in receipts}) == 1
    assert sum(not receipt.duplicate for receipt in receipts) == 1


async def test_concurrent_sends_start_one_run(desk: Desk, thread: str) -> None:
    receipts = await asyncio.gather(*(desk.send(thread, f"m{n}") for n in range(8)))
    assert len({receipt.run for receipt in receipts}) == 1
    assert sorted(receipt.disposition for receipt in receipts) == ["started"] + ["steered"] * 7


async def test_full_inbox_refuses(desk: Desk, thread: str) -> None:
    for _ in range(INBOX_MAX):
        await desk.send(thread)
    with pytest.raises(InboxFull) as refused:
        await desk.send(thread)
    assert refused.value.retryable


async def test_nul_is_refused_whole(desk: Desk, thread: str) -> None:
    with pytest.raises(InvalidInput):
        await desk.send(thread, "a\x00b")
    with pytest.raises(NotFound):
        await desk.threads.get(thread, by=ME)


async def test_archived_thread_takes_no_messages(desk: Desk, thread: str) -> None:
    await desk.threads.create(thread, agent="a", title=None, metadata={}, by=ME)
    await desk.database._pool.execute("UPDATE threadhold.threads SET status = 'archived'")
    with pytest.raises(ThreadArchived):
        await desk.send(thread)


async def test_foreign_threads_are_not_found_for_every_verb(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    assert receipt.run is not None
    for foreign in (FRIEND, STRANGER):
        for verb in (
            desk.send(thread, by=foreign, create_with=None),
            desk.threads.get(thread, by=foreign),
            desk.threads.start_of_watch(thread, by=foreign, after=None),
            desk.messages.get(receipt.message, by=foreign),
            desk.runs.get(receipt.run, by=foreign),
            desk.runs.stop(run=receipt.run, thread=None, by=foreign, key=None),
            desk.runs.stop(run=None, thread=thread, by=foreign, key=None),
        ):
            with pytest.raises(NotFound):
                await verb
    assert await desk.threads.list(by=FRIEND, before=None, limit=10) == []


async def test_reader_may_look_but_not_write(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    await desk.database._pool.execute("INSERT INTO threadhold.members VALUES ($1, 'friend', 'read')", thread)
    assert (await desk.threads.get(thread, by=FRIEND)).id == thread
    assert [found.id for found in await desk.threads.list(by=FRIEND, before=None, limit=10)] == [thread]
    with pytest.raises(Forbidden):
        await desk.send(thread, by=FRIEND, create_with=None)
    with pytest.raises(Forbidden):
        await desk.runs.stop(run=receipt.run, thread=None, by=FRIEND, key=None)


async def test_operator_reaches_all_threads_of_the_workspace(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    await desk.runs.stop(run=receipt.run, thread=None, by=OPERATOR, key=None)
    assert receipt.run is not None
    assert (await desk.runs.get(receipt.run, by=ME)).reason == "operator"


async def test_taken_id_is_refused_without_telling_whose(desk: Desk, thread: str) -> None:
    await desk.threads.create(thread, agent="a", title="t", metadata={"x": 1}, by=ME)
    again = await desk.threads.create(thread, agent="a", title="ignored", metadata={}, by=ME)
    assert (again.title, again.metadata) == ("t", {"x": 1})
    with pytest.raises(ThreadExists):
        await desk.threads.create(thread, agent="b", title=None, metadata={}, by=ME)
    with pytest.raises(ThreadExists):
        await desk.threads.create(thread, agent="a", title=None, metadata={}, by=FRIEND)
    with pytest.raises(ThreadExists):
        await desk.send(thread, create_with="b")


async def test_key_names_the_thread_of_a_first_message(desk: Desk) -> None:
    first = desk.threads.new_thread_id(by=ME, key="k")
    assert first == desk.threads.new_thread_id(by=ME, key="k")
    assert first != desk.threads.new_thread_id(by=FRIEND, key="k")
    assert desk.threads.new_thread_id(by=ME, key=None) != desk.threads.new_thread_id(by=ME, key=None)


async def test_ids_that_are_no_ids_name_nothing(desk: Desk) -> None:
    with pytest.raises(NotFound):
        await desk.send("not-an-id")
    with pytest.raises(NotFound):
        await desk.runs.get("'; drop table runs", by=ME)


async def test_worker_with_the_agent_clears_no_worker(desk: Desk, thread: str) -> None:
    await desk.work.register(agents=["b"], capacity=1)
    assert (await desk.send(thread)).no_worker
    await desk.other.register(agents=["a"], capacity=1)
    assert not (await desk.send(str(uuid4()))).no_worker
    await desk.other.unregister()
    assert (await desk.send(str(uuid4()))).no_worker


async def test_database_away_is_unavailable(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    from threadhold.storage.messages import PostgresMessages
    from threadhold.storage.pool import Database

    closed = Database(desk.database.url)
    with pytest.raises(Unavailable):
        await PostgresMessages(closed).send(thread, "x", by=ME, key=None, on_busy="steer", create_with=None)
    nowhere = Database("postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(Unavailable):
        await nowhere.open()
