"""What is on record stands: the database itself refuses to change it."""

import asyncpg
import pytest

from tests.storage.conftest import ME, Desk
from threadhold.runner.machine import RunStatus


@pytest.mark.parametrize("table", ["facts", "history"])
@pytest.mark.parametrize("change", ["UPDATE threadhold.{} SET fence = 0", "DELETE FROM threadhold.{}"])
async def test_nothing_on_record_is_changed(desk: Desk, thread: str, table: str, change: str) -> None:
    await desk.send(thread)
    await desk.work.end(await desk.begin(thread), status=RunStatus.COMPLETED, data={})
    with pytest.raises(asyncpg.RaiseError, match=f"what is on record stands.*{table}"):
        await desk.database._pool.execute(change.format(table))


async def test_with_its_thread_it_may_go(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    await desk.work.end(await desk.begin(thread), status=RunStatus.COMPLETED, data={})
    assert await desk.kinds(thread) != []
    await desk.database._pool.execute("DELETE FROM threadhold.threads")
    assert await desk.database._pool.fetchval("SELECT count(*) FROM threadhold.facts") == 0
    assert await desk.threads.list(by=ME, before=None, limit=9) == []
