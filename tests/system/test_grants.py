"""A grant of ten against two hundred calls at once on three worker processes."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import START_S_MAX, processes
from tests.support.servers import Stack
from tests.support.truth import truth
from tests.support.waiting import until
from tests.system.conftest import ROOT
from tests.system.fleet import END_S_MAX
from tests.system.grant_app import APP, DONE_ENV, done
from tests.system.test_spending import ended
from threadhold.adapters.client import Client

USES: Final = 10
CALLS: Final = 200
WORKERS: Final = 3


@pytest.mark.timeout(300)
async def test_ten_of_two_hundred_calls_on_three_workers_run(stack: Stack, tmp_path: Path) -> None:
    where = tmp_path / "done"
    environment = stack.environment(PYTHONPATH=ROOT, **{DONE_ENV: str(where)})
    with processes(environment, tmp_path) as starter:
        replica = starter.start("serve", APP, "--port", "0")
        capacity = str(CALLS // WORKERS + 1)
        workers = [starter.start("worker", APP, "--capacity", capacity) for _ in range(WORKERS)]
        async with Client(await asyncio.to_thread(replica.url)) as client, truth(stack.database_url):
            await asyncio.gather(*(each.says('"worker_ready"', within=START_S_MAX) for each in workers))
            grant = await client.create_grant("acting", uses=USES)
            sent = await asyncio.gather(*(client.send(None, "go", agent="actor") for _ in range(CALLS)))

            async def taken() -> bool:
                return sum(worker.running for worker in await client.workers()) == CALLS

            await until(taken, within=END_S_MAX)
            where.with_suffix(".gate").touch()
            runs = await ended(client, [str(each.run) for each in sent])
            used = (await client.grant(grant.id)).used
    assert {run.status for run in runs} == {"completed"}
    assert len(done(where)) == USES == used
