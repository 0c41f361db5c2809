"""Calls that executors carry out: each is asked for under a claim, taken once at most, and ends once."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.storage.conftest import ME, W1, Desk
from tests.support.waiting import until
from threadhold.runner.errors import ClaimLost
from threadhold.runner.records import Start
from threadhold.runner.remote_records import LOST, RemoteAsk, RemoteEnd
from threadhold.storage.pool import Database, connect
from threadhold.storage.remote import PostgresLent, PostgresRemote

X1, X2 = "x1-000000000001", "x2-000000000002"
OK = RemoteEnd(outcome="ok", result={"tool_return": False, "value": 5})


def an_ask(**changes: Any) -> RemoteAsk:
    options = {
        "id": str(uuid4()),
        "call_id": "c1",
        "tool": "add",
        "queue": "lab",
        "args": {"a": 2},
        "context": {"run": {}, "memory": []},
        "timeout": 60.0,
    }
    return RemoteAsk(**{**options, **changes})


def an_executor(database: Database, id: str = X1, queue: str = "lab") -> PostgresLent:
    return PostgresLent(database, executor=id, queue=queue, capacity=4)


@pytest.fixture
def remote(database: Database) -> PostgresRemote:
    return PostgresRemote(database, worker=W1)


@pytest.fixture
async def start(desk: Desk, thread: str) -> Start:
    await desk.send(thread)
    return await desk.begin(thread)


async def status(database: Database, id: str) -> Any:
    connection: Any = await connect(database.url)
    try:
        return await connection.fetchrow(
            "SELECT * FROM threadhold.remote_calls WHERE id = $1::text::uuid", id
        )
    finally:
        await connection.close()


async def alter(database: Database, statement: str, *args: Any) -> None:
    connection: Any = await connect(database.url)
    try:
        await connection.execute(statement, *args)
    finally:
        await connection.close()


async def test_a_call_goes_there_and_back(database: Database, remote: PostgresRemote, start: Start) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    [call] = await executor.take(limit=3)
    assert (call.id, call.workspace, call.principal, call.roles) == (ask.id, "home", ME.id, ME.roles)
    assert (call.thread, call.run, call.attempt, call.fence) == (start.thread, start.run, 1, start.fence)
    assert (call.agent, call.tool, call.call_id, call.asked_by) == ("a", "add", "c1", W1)
    assert (call.args, call.context) == (ask.args, ask.context)
    assert 0 < call.left_s <= ask.timeout
    assert await remote.ended([ask.id], silent=None) == {}
    assert await executor.finish(ask.id, OK)
    assert await remote.ended([ask.id], silent=None) == {ask.id: OK}
    row = await status(database, ask.id)
    assert (row["status"], row["executor"], row["args"], row["context"]) == ("done", X1, None, None)


async def test_of_many_who_take_at_once_each_call_is_taken_once(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    asks = [an_ask(call_id=f"c{number}") for number in range(20)]
    for ask in asks:
        await remote.ask(start, ask)
    crew = [an_executor(database, f"x{number}-{number:012}") for number in range(8)]
    by_id = [executor.take(limit=1, id=ask.id) for ask in asks for executor in crew[:3]]
    taken = await asyncio.gather(*by_id, *(executor.take(limit=9) for executor in crew))
    ids = [call.id for calls in taken for call in calls]
    assert sorted(ids) == sorted(ask.id for ask in asks)
    assert await crew[0].take(limit=20) == []


async def test_a_call_waits_for_its_own_queue_and_the_oldest_is_first(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    first, second, other = an_ask(), an_ask(), an_ask(queue="shop")
    for ask in (first, second, other):
        await remote.ask(start, ask)
    assert [call.id for call in await an_executor(database).take(limit=1)] == [first.id]
    assert await an_executor(database, queue="shop").take(limit=5, id=second.id) == []
    assert [call.id for call in await an_executor(database).take(limit=5)] == [second.id]


async def test_the_same_ask_again_is_the_same_call(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    await executor.take(limit=1)
    await remote.ask(start, ask)
    assert await executor.take(limit=1) == []


async def test_who_has_lost_the_claim_cannot_ask(
    desk: Desk, database: Database, remote: PostgresRemote, start: Start
) -> None:
    await desk.lapse()
    with pytest.raises(ClaimLost):
        await remote.ask(start, an_ask())
    assert await an_executor(database).take(limit=1) == []


async def test_nobody_takes_what_nobody_waits_for(
    desk: Desk, database: Database, remote: PostgresRemote, start: Start
) -> None:
    late, waiting, executor = an_ask(timeout=0.0), an_ask(), an_executor(database)
    await remote.ask(start, late)
    assert await executor.take(limit=1) == []
    await remote.ask(start, waiting)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert await executor.take(limit=1, id=waiting.id) == []
    await executor.tidy(silent=timedelta(minutes=1))
    assert (await status(database, waiting.id))["status"] == "given_up"


async def test_an_executor_hears_of_a_stop_and_of_a_lost_claim(
    desk: Desk, database: Database, remote: PostgresRemote, start: Start, thread: str
) -> None:
    executor, ask = an_executor(database), an_ask()
    await remote.ask(start, ask)
    await executor.take(limit=1)
    assert await executor.beat([ask.id]) == ([], False)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    assert await executor.beat([ask.id]) == ([ask.id], False)
    await desk.lapse()
    await desk.send(thread, "again")
    again = await desk.begin(thread)
    other = an_ask()
    await remote.ask(again, other)
    await executor.take(limit=1)
    assert await executor.beat([other.id]) == ([], False)
    await desk.lapse()
    assert await executor.beat([other.id]) == ([other.id], False)
    assert await desk.runs.drain(X1) == [X1]
    assert await executor.beat([]) == ([], True)


async def test_a_call_that_was_given_up_ends_no_more(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    executor = an_executor(database)
    queued, running, done = an_ask(), an_ask(), an_ask()
    for ask in (running, done):
        await remote.ask(start, ask)
        await executor.take(limit=1)
    await remote.ask(start, queued)
    await executor.finish(done.id, OK)
    assert await remote.give_up(start, queued.id, running=False) == (None, None)
    assert await remote.give_up(start, running.id, running=False) == (None, X1)
    assert await executor.beat([running.id]) == ([], False)
    assert await remote.give_up(start, running.id, running=True) == (None, X1)
    assert await remote.give_up(start, done.id, running=True) == (OK, X1)
    assert await executor.take(limit=5) == []
    assert await executor.beat([running.id]) == ([running.id], False)
    assert not await executor.finish(running.id, OK)
    assert (await status(database, running.id))["status"] == "given_up"


async def test_an_asking_that_comes_after_the_giving_up_is_in_vain(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    executor, early, late = an_executor(database), an_ask(), an_ask()
    assert await remote.give_up(start, early.id, running=False) == (None, None)
    await remote.ask(start, early)
    assert await executor.take(limit=1) == []
    # One whose asking is under way is waited for.
    asking: Any = await connect(database.url)
    try:
        async with asking.transaction():
            await asking.execute(
                "SELECT threadhold.remote_ask_v1($1::text::uuid, $2::text::uuid, $3::text::uuid, 'w', 'c', 't', 'lab',"
                " '{}', '{}', interval '1 min')",
                *(start.thread, start.claim_id, late.id),
            )
            giving_up = asyncio.create_task(remote.give_up(start, late.id, running=False))
            await _until_somebody_waits(database)
    finally:
        await asking.close()
    assert await giving_up == (None, None)
    assert await executor.take(limit=1) == []
    assert (await status(database, late.id))["status"] == "given_up"


async def _until_somebody_waits(database: Database) -> None:
    waiting: Any = await connect(database.url)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    try:
        await until(lambda: waiting.fetchval(waits))
    finally:
        await waiting.close()


async def test_calls_that_ended_long_ago_are_forgotten(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    executor, old, new, queued = an_executor(database), an_ask(), an_ask(), an_ask()
    for ask in (old, new):
        await remote.ask(start, ask)
        await executor.take(limit=1)
    await executor.finish(new.id, OK)
    ended = "status = 'done', outcome = 'ok', ended_at = clock_timestamp() - interval '25 h'"
    await alter(database, f"UPDATE threadhold.remote_calls SET {ended} WHERE id = $1::text::uuid", old.id)
    await remote.ask(start, queued)
    await executor.tidy(silent=timedelta(minutes=1))
    assert await status(database, old.id) is None
    assert (await status(database, new.id))["status"] == "done"
    assert (await status(database, queued.id))["status"] == "queued"


async def test_only_who_has_taken_a_call_ends_it_and_once(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    await executor.take(limit=1)
    assert not await an_executor(database, X2).finish(ask.id, OK)
    assert await executor.finish(ask.id, OK)
    assert await executor.finish(ask.id, OK)
    assert not await executor.finish(ask.id, LOST)
    assert await remote.ended([ask.id], silent=None) == {ask.id: OK}


async def test_a_call_of_a_silent_executor_is_lost_and_not_taken_again(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    await executor.beat([])
    await executor.take(limit=1)
    minute = timedelta(minutes=1)
    assert await remote.ended([ask.id], silent=minute) == {}
    await alter(database, "UPDATE threadhold.workers SET seen_at = seen_at - interval '2 min'")
    assert await remote.ended([ask.id], silent=None) == {}
    assert await remote.ended([ask.id], silent=minute) == {ask.id: LOST}
    assert await an_executor(database, X2).take(limit=1) == []
    assert not await executor.finish(ask.id, OK)
    assert await executor.beat([ask.id]) == ([ask.id], False)


async def test_a_call_whose_taking_was_never_answered_is_lost(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    await executor.take(limit=1)
    await executor.beat([])
    assert (await status(database, ask.id))["status"] == "running"
    back = "UPDATE threadhold.remote_calls SET started_at = started_at - interval '11 s' WHERE id = $1::text::uuid"
    await alter(database, back, ask.id)
    await executor.beat([ask.id])
    assert (await status(database, ask.id))["status"] == "running"
    await executor.beat([])
    assert await remote.ended([ask.id], silent=None) == {ask.id: LOST}


async def test_the_table_refuses_a_second_taking(
    database: Database, remote: PostgresRemote, start: Start
) -> None:
    ask, executor = an_ask(), an_executor(database)
    await remote.ask(start, ask)
    await executor.take(limit=1)
    change = "UPDATE threadhold.remote_calls SET {} WHERE id = $1::text::uuid"
    for what in (
        f"executor = '{X2}'",
        "status = 'queued', executor = NULL, started_at = NULL",
        "status = 'queued'",
    ):
        with pytest.raises(asyncpg.PostgresError):
            await alter(database, change.format(what), ask.id)
    await executor.finish(ask.id, OK)
    with pytest.raises(asyncpg.RaiseError, match="was taken by"):
        await alter(database, change.format("outcome = 'lost'"), ask.id)


async def test_executors_stand_among_the_workers(
    desk: Desk, database: Database, remote: PostgresRemote, start: Start
) -> None:
    executor = an_executor(database)
    await executor.beat([])
    await remote.ask(start, an_ask())
    await executor.take(limit=1)
    [seen] = await desk.runs.workers()
    assert (seen.id, seen.queue, seen.agents, seen.running, seen.capacity) == (X1, "lab", (), 1, 4)
    await executor.leave()
    assert await desk.runs.workers() == []
