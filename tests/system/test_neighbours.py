"""Two stacks on one Postgres and one Valkey, as `THREADHOLD_DB_SCHEMA` and `THREADHOLD_PREFIX` set them apart.

With a schema of their own they see nothing of each other. With the same schema they are one stack, and a test says what
holds where only the prefix differs.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from tests.support.processes import AGENTS, Process, Processes, processes
from tests.support.servers import Stack, TestServers
from tests.support.truth import Truth
from tests.support.watching import People
from tests.system.conftest import ROOT
from threadhold.adapters.client import ClientError
from threadhold.storage.pool import Database

AGENT = "scripted"
# The starts of processes count as well, and other things may run on this machine.
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class House:
    """One stack: its names in the shared servers, its process, and where it listens."""

    schema: str
    prefix: str
    process: Process
    url: str


@dataclass(frozen=True, slots=True)
class Street:
    """The servers that stacks share, and the first of them."""

    starter: Processes
    database_url: str
    redis_url: str
    first: House

    def gate(self, word: str) -> Path:
        """Return a gate, which scripts name by its one word."""
        return self.starter.folder / word

    async def move_in(self, *, schema: str, prefix: str, command: str = "dev") -> House:
        """Start another stack; `dev` is a replica and a worker, and gives its worker the same name each time."""
        return await asyncio.to_thread(start, self.starter, schema, prefix, command)


def start(starter: Processes, schema: str, prefix: str, command: str) -> House:
    """Start a process of a stack."""
    env = {"THREADHOLD_DB_SCHEMA": schema, "THREADHOLD_PREFIX": prefix}
    process = starter.start(command, AGENTS, "--port", "0", env=env)
    return House(schema, prefix, process, process.url())


def fresh_prefix() -> str:
    """Return a prefix that nobody else has."""
    return f"{uuid4().hex[:8]}:"


@pytest.fixture(scope="module")
def street(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    """Start the first stack, on a database that others will share."""
    database_url = asyncio.run(servers.new_database())
    stack = Stack(database_url, servers.redis_url, "")
    with processes(stack.environment(PYTHONPATH=ROOT), tmp_path_factory.mktemp("street")) as starter:
        first = start(starter, "here", fresh_prefix(), "dev")
        yield Street(starter, database_url, servers.redis_url, first)


@asynccontextmanager
async def judged(street: Street, house: House) -> AsyncIterator[Truth]:
    """Yield the judge of one stack; in the end no invariant of it is broken."""
    database = Database(street.database_url, schema=house.schema, size=2)
    await database.open()
    try:
        judge = Truth(database)
        yield judge
        assert await judge.broken() == []
    finally:
        await database.close()


async def in_redis(street: Street, thread: str) -> tuple[set[str], set[str]]:
    """Return the keys and the channels that are named after a thread."""
    async with Redis.from_url(street.redis_url, decode_responses=True) as redis:
        return set(await redis.keys(f"*{thread}*")), set(await redis.pubsub_channels(f"*{thread}*"))


@pytest.mark.parametrize("prefix", ["its own", "the same"])
async def test_two_stacks_see_nothing_of_each_other(street: Street, public: People, prefix: str) -> None:
    left, thread = street.first, str(uuid4())
    on_left = public.client(left.url)
    script, gate = "spell [{}] | hold {} | say done", f"left-{thread}"
    mine = await on_left.send(thread, script.format('"left "', gate), agent=AGENT, key="same")
    left_seen = await public.listen(left.url, thread)
    await left_seen.sees(lambda seen: seen.text(mine.run or ""))
    # It comes while the other one runs, and neither its start nor the name of its worker does anything to that.
    apart = prefix == "its own"
    right = await street.move_in(
        schema="there" if apart else "user", prefix=fresh_prefix() if apart else left.prefix
    )
    on_right = public.client(right.url)
    theirs = await on_right.send(thread, script.format('"right "', "right"), agent=AGENT, key="same")
    right_seen = await public.listen(right.url, thread)
    await right_seen.sees(lambda seen: seen.text(theirs.run or ""))

    assert (theirs.disposition, theirs.duplicate, theirs.seq) == ("started", False, 1)
    on_the_left = [run.id for run in await on_left.runs()]
    assert on_the_left[0] == mine.run
    assert theirs.run not in on_the_left
    assert [run.id for run in await on_right.runs()] == [theirs.run]
    workers = [[each.id for each in await client.workers()] for client in (on_left, on_right)]
    assert [len(each) for each in workers] == [1, 1]
    assert workers[0] != workers[1]
    for unseen in (on_right.run(mine.run or ""), on_right.stop(run=mine.run), on_right.message(mine.message)):
        with pytest.raises(ClientError) as refused:
            await unseen
        assert refused.value.code == "not_found"
    with pytest.raises(ClientError) as refused:
        await on_right.drain(workers[0][0])
    assert refused.value.code == "not_found"
    assert await in_redis(street, thread) == (
        {f"{house.prefix}{house.schema}:live:{thread}" for house in (left, right)},
        {f"{house.prefix}{house.schema}:ch:{thread}" for house in (left, right)},
    )

    # A stop of "whatever runs on this thread" means one's own.
    stopped = await on_right.stop(thread=thread)
    assert (stopped.run, stopped.status) == (theirs.run, "stopped")
    assert (await right_seen.sees_end(theirs.run or ""))["reason"] == "person"
    assert (await on_left.run(mine.run or "")).status == "running"
    street.gate(gate).touch()
    assert (await left_seen.sees_end(mine.run or ""))["output"] == "left done"

    async with judged(street, left) as left_judge, judged(street, right) as right_judge:
        for seen, judge, sent in ((left_seen, left_judge, mine), (right_seen, right_judge, theirs)):
            seen.check_nothing_missing()
            assert {frame["run"] for frame in seen.frames if frame["kind"] != "head"} == {sent.run}
            assert [fact["fact"] for fact in await judge.facts(thread)] == [
                frame["data"]["fact"] for frame in seen.frames if frame["kind"] == "fact"
            ]
    await check_queues_apart(street, right, public)
    assert street.starter.errors() == []


async def check_queues_apart(street: Street, right: House, public: People) -> None:
    """Drain the worker of one stack: the other one's keeps its own, and takes none of what is left."""
    on_left, on_right = public.client(street.first.url), public.client(right.url)
    (drained,) = await on_right.drain("dev")
    await right.process.says('"no_worker_here"')
    waiting = await on_right.send(None, "say never", agent=AGENT)
    assert waiting.no_worker
    assert drained not in [each.id for each in await on_left.workers()]
    # Longer than a worker needs to find what has been left behind.
    ours = await on_left.send(None, 'call nap {"seconds": 1.5} ;; say rested', agent=AGENT)
    seen = await public.listen(street.first.url, ours.thread)
    assert (await seen.sees_end(ours.run or ""))["output"] == "rested"
    assert (await on_right.run(waiting.run or "")).status == "pending"


async def test_another_prefix_alone_is_the_same_stack_that_hears_of_half_of_it_late(
    street: Street, public: People
) -> None:
    left, thread = street.first, str(uuid4())
    # No worker of its own: whatever it accepts is found by one that does not hear it.
    deaf = await street.move_in(schema=left.schema, prefix=fresh_prefix(), command="serve")
    on_deaf = public.client(deaf.url)
    sent = await on_deaf.send(thread, 'spell ["one ", "two "] | hold prefix | say three', agent=AGENT)
    far, near = await public.listen(deaf.url, thread), await public.listen(left.url, thread)
    await near.sees(lambda seen: seen.text(sent.run or "") == "one two ")
    steered = await on_deaf.send(thread, "and four", agent=AGENT)
    assert (steered.disposition, steered.run) == ("steered", sent.run)
    street.gate("prefix").touch()
    ends = await asyncio.gather(*(each.sees_end(sent.run or "") for each in (far, near)))
    assert [end["output"] for end in ends] == ["heard: and four"] * 2

    again = await on_deaf.send(thread, "say half | hold never", agent=AGENT)
    await near.sees(lambda seen: seen.text(again.run or "") == "half")
    stopped = await on_deaf.stop(thread=thread)
    assert (stopped.run, stopped.status) == (again.run, "stopped")
    await asyncio.gather(*(each.sees_end(again.run or "") for each in (far, near)))

    assert far.lasting[0] == near.lasting[0]
    assert near.lasting[1] != []
    assert far.lasting[1] == []
    async with judged(street, left) as judge:
        assert (await judge.story(thread)).count("run_started") == 2
    assert deaf.process.terminate() == 0
