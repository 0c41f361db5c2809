"""Many who watch, and many that run: what a crowd costs, and whom it holds up."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis

from tests.support.agents import app
from tests.support.processes import START_S_MAX
from tests.support.servers import Stack
from tests.support.truth import Truth
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import Gate, System
from threadhold import Principal, Runner, open_runner
from threadhold.adapters.embedded import EmbeddedValkey
from threadhold.fanout.wire import Names
from threadhold.runner.machine import RunStatus

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

ME = Principal(id="me", workspace="home")
WATCHERS = 200
# More than a worker of the queue library reads of its queue at once.
RUNS = 110


async def watched_to_the_end(runner: Runner, thread: str, arrived: asyncio.Queue[None]) -> str:
    """Watch a thread until it is idle, and return how its run ended."""
    status = ""
    async for delivery in runner.watch(thread, by=ME, after="start", until="idle"):
        if delivery.frame.data.get("fact") == "run_started":
            arrived.put_nowait(None)
        status = str(delivery.frame.data.get("status", status))
    return status


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """Yield a server whose connections may be cut, since nobody else uses it."""
    server = EmbeddedValkey(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_crowd_of_watchers_costs_one_subscription_and_no_connection_to_the_database(
    stack: Stack, valkey: EmbeddedValkey, gate: Gate
) -> None:
    finish = gate("finish")
    # Were a connection of the pool held by each watcher, nobody else would get one.
    settings = stack.settings(pool_size=2, redis_url=valkey.url)
    async with (
        open_runner(app, settings, capacity=2) as runner,
        redis.Redis.from_url(valkey.url) as server,
    ):
        sent = await runner.send(None, f"hold {finish} | say done", by=ME, agent="scripted")
        channel = Names(settings.redis_prefix).channel(sent.thread)
        arrived: asyncio.Queue[None] = asyncio.Queue()
        watching = [
            asyncio.create_task(watched_to_the_end(runner, sent.thread, arrived)) for _ in range(WATCHERS)
        ]
        for _ in range(WATCHERS):
            await arrived.get()
        assert await subscribers(server, channel) == 1
        # What was idle all the while is cut as well: the next message runs all the same.
        await server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        other = await runner.send(None, "say hello", by=ME, agent="scripted")
        assert await watched_to_the_end(runner, other.thread, arrived) == "completed"
        finish.touch()
        assert await asyncio.gather(*watching) == ["completed"] * WATCHERS

        async def given_up() -> bool:
            return await subscribers(server, channel) == 0

        await until(given_up, what="the subscription is kept though nobody watches")


async def subscribers(server: Any, channel: str) -> int:
    """Return how many connections have subscribed to a channel."""
    [(_, count)] = await server.pubsub_numsub(channel)
    return int(count)


async def test_a_free_worker_takes_a_run_however_many_run_elsewhere(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    held = {"AGENTS": "gamma", "THREADHOLD_CAPACITY": str(RUNS)}
    name, full = system.crew.begin(env=held)
    await full.says('"worker_ready"', within=START_S_MAX)
    client, finish = public.client(system.a), gate("finish")
    sent = [await client.send(None, f"hold {finish} | say done", agent="gamma") for _ in range(RUNS)]
    for each in sent:
        await judge.sees(each.thread, "run_started")
    other, free = system.crew.begin(env={"AGENTS": "gamma"})
    await free.says('"worker_ready"', within=START_S_MAX)
    last = await client.send(None, "say at once", agent="gamma")
    await judge.sees(last.thread, "run_ended")
    assert await judge.worker(last.thread, last.run or "") == other
    assert {run.status for run in await client.runs(agent="gamma", limit=100)} >= {RunStatus.RUNNING}
    finish.touch()
    for each in sent:
        await judge.sees(each.thread, "run_ended")
    assert {await judge.worker(each.thread, each.run or "") for each in sent} == {name}
    for worker in (full, free):
        assert await asyncio.to_thread(worker.terminate) == 0
