"""The pool: whoever gives up on a database that hangs does not wait for it again."""

import asyncio

import pytest

from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold.runner.errors import Unavailable
from threadhold.storage import pool as module
from threadhold.storage.pool import Database


@pytest.fixture
async def small(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A pool of two whose statements may take a moment only, with one that hangs."""
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "ACQUIRE_TIMEOUT_S", 0.2)
    database = Database(stack.database_url, size=2)
    await database.open()
    database._statements = {**database._statements, "hang": "SELECT pg_sleep(60)"}
    return database


async def answers(database: Database) -> None:
    """Return when the pool answers; a moment may be too short for a new connection, and what hangs goes on for long."""

    async def look() -> bool:
        try:
            await database.run("ping")
        except Unavailable:
            return False
        return True

    await until(look, what="the pool does not answer any more")


async def test_statement_that_hangs_is_given_up_and_its_connection_replaced(small: Database) -> None:
    for _ in range(3):
        with pytest.raises(Unavailable):
            await small.run("hang")
    await answers(small)
    await small.close()


async def test_waiting_for_a_connection_is_bounded(small: Database) -> None:
    results = await asyncio.gather(*(small.run("hang") for _ in range(20)), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    await answers(small)
    await small.close()


async def test_cancelled_statement_does_not_keep_its_caller(small: Database) -> None:
    running = asyncio.create_task(small.run("hang"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await answers(small)
    await small.close()


async def test_closed_pool_is_unavailable(small: Database) -> None:
    await small.close()
    await small.close()
    with pytest.raises(Unavailable):
        await small.run("ping")
