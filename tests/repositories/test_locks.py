"""Writes of records wait for each other, and decide by what they find then: a spoiled lock is noticed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.model.mutants import LOCK, body_of, load, source
from tests.support.servers import TestServers
from tests.support.waiting import until
from threadhold.runner.errors import ThreadArchived
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Principal
from threadhold.runner.repositories import OtherProgram, Run, RunChanged
from threadhold.storage.migrate import migrate
from threadhold.storage.pool import Database
from threadhold.storage.repositories import PostgresRepository

SCHEMA: Final = "mutant"
FILE: Final = "12_records.sql"
LATE: Final = (
    r"    \1 FROM threads WHERE id = \2;"
    r" PERFORM 1 FROM threads WHERE id = \2 FOR NO KEY UPDATE\3; IF NOT FOUND THEN t := NULL; END IF;"
)
MISSING: Final = r"    \1 FROM threads WHERE id = \2;"


@dataclass
class Lane:
    """A connection that holds its transaction open, one that looks, and a store."""

    first: Any
    aside: Any
    store: PostgresRepository

    async def overlapped(self, statement: str, args: tuple[Any, ...], second: Awaitable[Any]) -> Any:
        """Hold a statement open before its commit until the second call waits or is done; return what that gave."""
        transaction = self.first.transaction()
        await transaction.start()
        await self.first.execute(statement, *args)
        task: asyncio.Future[Any] = asyncio.ensure_future(second)

        async def waits_or_is_done() -> bool:
            waiting: int = await self.aside.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return task.done() or waiting > 0

        await until(waits_or_is_done, what="the second call neither waits nor is done")
        await transaction.commit()
        return (await asyncio.gather(task, return_exceptions=True))[0]


@pytest.fixture
async def lane(servers: TestServers) -> AsyncIterator[Lane]:
    """A database in which functions may be spoiled."""
    url = await servers.new_database()
    await migrate(url, schema=SCHEMA)
    database = Database(url, schema=SCHEMA, size=2)
    await database.open()
    me = Principal(id="me", workspace="home")
    store = PostgresRepository(database, by=me, holder="h", ttl=timedelta(minutes=5), announce=lambda _: None)
    made = Lane(await asyncpg.connect(url), await asyncpg.connect(url), store)
    yield made
    await database.close()
    await made.first.close()
    await made.aside.close()


def new(**fields: Any) -> Run:
    return Run(**{"run_id": str(uuid4()), "agent": "a", **fields})


async def stopped_meanwhile(lane: Lane) -> bool:
    """Tell whether a run that is stopped meanwhile is not started."""
    run = await lane.store.create(new())
    stop = f"SELECT {SCHEMA}.stop_v1('home', 'me', '{{}}', NULL, $1, NULL, gen_random_uuid())"
    started = run.model_copy(update={"status": RunStatus.RUNNING})
    told = await lane.overlapped(
        stop, (UUID(run.run_id),), lane.store.put_if_status(started, RunStatus.PENDING)
    )
    return isinstance(told, RunChanged) and told.status is RunStatus.STOPPED


async def archive(lane: Lane, thread: str, second: Awaitable[Any]) -> Any:
    """Archive a thread while something else is asked."""
    statement = f"SELECT {SCHEMA}.update_thread_v2('home', 'me', '{{}}', $1, NULL, NULL, 'archived', NULL)"
    return await lane.overlapped(statement, (UUID(thread),), second)


async def archived_meanwhile(lane: Lane) -> bool:
    """Tell whether nothing begins on a thread that is archived meanwhile."""
    thread = (await lane.store.resolve(None, agent="a")).thread_id
    return isinstance(await archive(lane, thread, lane.store.create(new(thread_id=thread))), ThreadArchived)


async def closed_meanwhile(lane: Lane) -> bool:
    """Tell whether nothing is noted of a thread that is archived meanwhile."""
    thread = (await lane.store.resolve(None, agent="a")).thread_id
    told = await archive(lane, thread, lane.store.resolve(thread, agent="a", graph_version_ref="v1"))
    return told.graph_version_ref is None and told.status == "archived"


async def named_meanwhile(lane: Lane) -> bool:
    """Tell whether a thread that becomes another version's meanwhile is refused."""
    thread = (await lane.store.resolve(None, agent="a")).thread_id
    nothing: list[str] = []
    lists = {key: nothing for key in ("participants", "states", "checkpoints", "memory")}
    ask = json.dumps({"agent": "a", "version": "v1", **lists})
    statement = f"SELECT {SCHEMA}.resolve_thread_v1('home', 'me', '{{}}', $1, $2, 9)"
    second = lane.store.resolve(thread, agent="a", graph_version_ref="v2")
    return isinstance(await lane.overlapped(statement, (UUID(thread), ask), second), OtherProgram)


Race = Callable[[Lane], Awaitable[bool]]
RACES: Final[list[tuple[Race, str, str]]] = [
    (stopped_meanwhile, "save_record_v1", MISSING),
    (archived_meanwhile, "save_record_v1", LATE),
    (named_meanwhile, "resolve_thread_v1", MISSING),
    (closed_meanwhile, "resolve_thread_v1", LATE),
]


async def test_writes_wait_for_each_other_and_a_spoiled_lock_is_noticed(lane: Lane) -> None:
    for race, function, spoiled in RACES:
        assert await race(lane), race.__name__
        body = body_of(function, FILE)
        assert len(LOCK.findall(body)) == 2
        await load(lane.aside, SCHEMA, LOCK.sub(spoiled, body))
        assert not await race(lane), f"{race.__name__} does not need the lock of {function}"
        await load(lane.aside, SCHEMA, source(FILE))
