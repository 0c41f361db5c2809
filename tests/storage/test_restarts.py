"""After its database came up again, a thread's claim is left alone for one ttl of its own."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from tests.storage.conftest import ME, W1, W2
from tests.storage.test_claims import EXPIRE, SINCE, change
from tests.support.servers import FAST
from tests.support.waiting import until
from threadhold.adapters.embedded import EmbeddedPostgres
from threadhold.runner.errors import Unavailable
from threadhold.runner.records import Nudge
from threadhold.storage.messages import PostgresMessages
from threadhold.storage.migrate import migrate
from threadhold.storage.pool import Database
from threadhold.storage.threads import PostgresFacts
from threadhold.storage.work import PostgresWork

TTL = timedelta(seconds=1.5)
NOW = "SELECT clock_timestamp()"
SESSION = "SELECT pg_backend_pid()"
TAKEN_AT = "SELECT at FROM threadhold.facts WHERE kind = 'run_ended'"
Harm = Callable[[EmbeddedPostgres, Database], Awaitable[None]]


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server that the test may harm."""
    server = EmbeddedPostgres(tmp_path, settings=FAST)
    server.start()
    yield server
    server.stop()


async def restart(postgres: EmbeddedPostgres, database: Database) -> None:
    """Stop the server in an orderly way, and start it."""
    await asyncio.to_thread(postgres.stop)
    await asyncio.to_thread(postgres.start)


async def crash(postgres: EmbeddedPostgres, database: Database) -> None:
    """Kill one session, as a system short of memory does: the server ends all others and recovers."""
    os.kill(await database._pool.fetchval(SESSION), signal.SIGKILL)


async def abandoned(database: Database) -> str:
    """Return a thread whose claim has lapsed, with nobody having noticed."""
    work, thread = PostgresWork(database, worker=W1, ttl=TTL), str(uuid4())
    await PostgresMessages(database).send(thread, "hello", by=ME, key=None, on_busy="steer", create_with="a")
    await PostgresWork(database, worker=W2, ttl=TTL).sweep(limit=10)
    start, _ = await work.claim(thread, agents={"a": 0}, start_key=str(uuid4()))
    assert start is not None
    await work.record(start, rec_no=1, facts=[])
    await change(database, EXPIRE, 60.0)
    return thread


@pytest.mark.parametrize("harm", [restart, crash], ids=lambda harm: harm.__name__)
async def test_claim_is_taken_one_ttl_after_the_database_is_back_and_no_sooner(
    postgres: EmbeddedPostgres, harm: Harm
) -> None:
    await migrate(postgres.url)
    database = Database(postgres.url, size=2)
    await database.open()
    thread = await abandoned(database)
    before = await database._pool.fetchval(NOW)
    await harm(postgres, database)
    await database.close()
    again = Database(postgres.url, size=2)

    async def is_open() -> bool:
        with suppress(Unavailable):
            await again.open()
        return again._pool is not None

    await until(is_open)
    sweeper = PostgresWork(again, worker=W2, ttl=TTL)

    async def swept() -> list[Nudge]:
        with suppress(Unavailable):
            return await sweeper.sweep(limit=10)
        return []

    await until(swept)
    since, taken = await again._pool.fetchval(SINCE), await again._pool.fetchval(TAKEN_AT)
    assert before < since
    assert taken - since >= TTL
    facts = await PostgresFacts(again).facts(thread, after=0, limit=100)
    assert [fact.data["cause"] for fact in facts if fact.data["fact"] == "attempt_closed"] == ["storage"]
    await again.close()
