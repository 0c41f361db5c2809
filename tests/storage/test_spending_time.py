"""Time and money of runs at the edges: as an attempt closes beside others, over midnight, and after a worker died."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import pytest

from tests.storage.conftest import Desk
from tests.storage.test_members import waits_or_ends
from tests.storage.test_spending import asks, counted, spent
from tests.support.servers import Stack
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Start

DAY_S: Final = 86_400
DAILY: Final[dict[str, Any]] = {"principal": {"every": "day"}}
# What a run has spent and where it counts was written so long ago.
MONEY_BEFORE: Final = """
    UPDATE model_calls SET charged = (SELECT jsonb_agg(CASE WHEN x ->> 'every' = 'day'
        THEN x || jsonb_build_object('since', (x ->> 'since')::timestamptz - $1::interval) ELSE x END ORDER BY o)
        FROM jsonb_array_elements(charged) WITH ORDINALITY AS y (x, o))
"""
TIME_BEFORE: Final = (
    MONEY_BEFORE.replace("UPDATE model_calls", "UPDATE attempts") + " WHERE charged IS NOT NULL"
)
ROWS_BEFORE: Final = "UPDATE spend SET since = since - $1::interval WHERE every = 'day'"
WORK_BEFORE: Final = (
    "UPDATE attempts SET started_at = started_at - $1::interval, counted_at = counted_at - $1::interval"
)
CLAIMS_BEFORE: Final = (
    "UPDATE claims SET expires_at = expires_at - $1::interval, acquired_at = acquired_at - $1::interval"
)


@pytest.fixture
async def behind(stack: Stack) -> AsyncIterator[Any]:
    """A connection that changes the database behind the store's back."""
    connection: Any = await asyncpg.connect(stack.database_url, server_settings={"search_path": "threadhold"})
    yield connection
    await connection.close()


async def long_ago(behind: Any, days: int, *statements: str) -> None:
    """Move what was written back by days."""
    for statement in statements:
        await behind.execute(statement.replace("$1::interval", f"interval '{days} d'"))


def ends(desk: Desk, start: Start) -> "asyncio.Task[Any]":
    """End a run beside what the test does."""
    return asyncio.create_task(desk.work.end(start, status=RunStatus.COMPLETED, data={}))


async def test_an_attempt_with_many_open_calls_closes_while_one_of_them_is_settled(
    desk: Desk, thread: str, behind: Any
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    for rec_no in range(2, 14):
        await asks(desk, start, rec_no)
    last = (await behind.fetch("SELECT id FROM model_calls ORDER BY id"))[-1]["id"]
    async with behind.transaction():
        # The first lock that settling takes; the rest of it comes once the other one has begun.
        await behind.execute("SELECT 1 FROM model_calls WHERE id = $1 FOR UPDATE", last)
        ending = ends(desk, start)
        await waits_or_ends(behind, ending)
        await behind.execute("SELECT settle_v1($1, 1, 1, 0)", last)
    await ending
    assert await counted(desk) == (11 * 100 + 2, 110, 0, 0)


async def test_an_attempt_closes_over_midnight_while_others_spend_in_the_same_places(
    desk: Desk, thread: str, behind: Any
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await asks(desk, start, 2, **DAILY)
    await long_ago(behind, 1, MONEY_BEFORE, ROWS_BEFORE)
    await asks(desk, start, 3, **DAILY)
    today, place = await behind.fetch(
        "SELECT x FROM attempts, jsonb_array_elements(charged) AS x"
        " WHERE x ->> 'scope' IN ('principal', 'workspace') ORDER BY x ->> 'scope'"
    )
    async with behind.transaction():
        # What a call of another thread does, row by row.
        await behind.execute("SELECT _charge($1::jsonb, 0, 0, 0, 0, 0, 0, 0)", today["x"])
        ending = ends(desk, start)
        await waits_or_ends(behind, ending)
        await behind.execute("SELECT _charge($1::jsonb, 0, 0, 0, 0, 0, 0, 0)", place["x"])
    await ending
    assert await counted(desk) == (200, 20, 0, 0)


async def test_time_goes_to_the_day_in_which_it_was_counted_from(
    desk: Desk, thread: str, behind: Any
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await asks(desk, start, 2, **DAILY)
    # Two days ago the run began with something that has lasted until now.
    await long_ago(behind, 2, MONEY_BEFORE, TIME_BEFORE, ROWS_BEFORE, WORK_BEFORE)
    await asks(desk, start, 3, **DAILY)
    rows = await behind.fetch("SELECT seconds FROM spend WHERE scope = 'principal' ORDER BY since")
    then, today = (row["seconds"] for row in rows)
    assert then >= 2 * DAY_S
    assert today == 0
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert (await behind.fetchval("SELECT max(seconds) FROM spend WHERE scope = 'run'")) >= 2 * DAY_S


async def test_time_after_a_worker_died_is_none_that_its_run_has_worked(
    desk: Desk, thread: str, behind: Any
) -> None:
    await desk.send(thread)
    await asks(desk, await desk.begin(thread), 2)
    # The only worker was killed yesterday; another one comes now.
    await long_ago(behind, 1, WORK_BEFORE, CLAIMS_BEFORE)
    await behind.execute("UPDATE claims SET ttl = '0'")
    await desk.other.sweep(limit=10)
    assert await desk.state(thread) == "idle"
    assert (await spent(desk, "principal"))["seconds"] < DAY_S / 2
