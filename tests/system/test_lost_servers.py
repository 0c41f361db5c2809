"""Redis and Postgres go away and come back: what was accepted runs, and whoever watches learns the end."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import redis

from tests.support.ports import KeptPort
from tests.support.processes import AGENTS, START_S_MAX, Process, Processes, processes
from tests.support.servers import FAST, Stack
from tests.support.truth import Truth, truth
from tests.support.watching import People
from tests.system.conftest import ROOT, SLACK_S, Gate
from threadhold.adapters.client import ClientError
from threadhold.adapters.embedded import EmbeddedPostgres, EmbeddedValkey
from threadhold.storage.migrate import migrate

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
RUNS_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Shaky:
    """A stack whose servers a test may stop and start."""

    postgres: EmbeddedPostgres
    valkey: EmbeddedValkey
    starter: Processes
    api: Process
    url: str
    worker: Process


@pytest.fixture(scope="module")
def shaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shaky]:
    """Start servers on ports that they keep, an API replica and a worker."""
    state = tmp_path_factory.mktemp("shaky")
    kept = KeptPort(), KeptPort()
    postgres = EmbeddedPostgres(state, port=kept[0].number, settings=FAST)
    valkey = EmbeddedValkey(state, port=kept[1].number)
    try:
        postgres.start()
        valkey.start()
        asyncio.run(migrate(postgres.url))
        stack = Stack(postgres.url, valkey.url, "shaky:")
        with processes(stack.environment(PYTHONPATH=ROOT), state) as starter:
            yield started(starter, postgres, valkey)
    finally:
        valkey.stop()
        postgres.stop()


@contextmanager
def hanging(valkey: EmbeddedValkey) -> Iterator[None]:
    """Keep a server from answering, while it still holds its connections."""
    with redis.Redis.from_url(valkey.url) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def started(starter: Processes, postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> Shaky:
    """Start both processes at once."""
    api, worker = starter.start("serve", AGENTS, "--port", "0"), starter.start("worker", AGENTS)
    worker.wait_for('"worker_ready"')
    return Shaky(postgres, valkey, starter, api, api.url(), worker)


@pytest.fixture
async def judge(shaky: Shaky) -> AsyncIterator[Truth]:
    """Ask the database of the shaky stack; in the end all servers are up again and nothing is broken."""
    try:
        async with truth(shaky.postgres.url) as asked:
            yield asked
            assert await asked.broken() == []
        assert shaky.starter.errors() == []
    finally:
        await asyncio.to_thread(shaky.postgres.start)
        await asyncio.to_thread(shaky.valkey.start)


async def test_a_message_that_was_accepted_without_redis_runs_when_it_is_back(
    shaky: Shaky, judge: Truth, public: People
) -> None:
    client = public.client(shaky.url)
    first = await client.send(None, "say warm", agent=AGENT)
    await judge.sees(first.thread, "run_ended")
    await asyncio.to_thread(shaky.valkey.stop)
    sent = await client.send(None, "say after all", agent=AGENT)
    assert sent.disposition == "started"
    await asyncio.to_thread(shaky.valkey.start)
    back_at = time.monotonic()
    await judge.sees(sent.thread, "run_started")
    assert time.monotonic() - back_at < RUNS_AGAIN_S + SLACK_S
    assert (await judge.sees(sent.thread, "run_ended"))["output"] == "after all"


async def test_a_run_outlives_redis_and_its_watcher_learns_the_end_meanwhile(
    shaky: Shaky, judge: Truth, public: People, gate: Gate
) -> None:
    client, without, finish = public.client(shaky.url), gate("without"), gate("finish")
    script = f"words 5 0.01 | hold {without} | words 5 0.01 | hold {finish} | say end"
    sent = await client.send(None, script, agent=AGENT)
    run = sent.run or ""
    watched = await public.listen(shaky.url, sent.thread)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    await asyncio.to_thread(shaky.valkey.stop)
    without.touch()
    await shaky.worker.says("outbox_stalled", sent.thread)
    await shaky.worker.says("dispatch_interrupted")
    # Steering needs no Redis either.
    steered = await client.send(sent.thread, "and you?")
    assert steered.disposition == "steered"
    finish.touch()
    end = await watched.sees_end(run)
    assert (end["status"], end["output"]) == ("completed", "heard: and you?")
    assert not shaky.valkey.running

    await asyncio.to_thread(shaky.valkey.start)
    # The same connection is live again: the next run's deltas arrive on it.
    await shaky.api.says('"subscriber_reconnected"')
    following = await client.send(sent.thread, "words 5 0.01")
    await watched.sees_end(following.run or "")
    seqs = [frame["seq"] for frame in watched.frames if frame["kind"] == "fact"]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_stop_works_without_redis(shaky: Shaky, judge: Truth, public: People, gate: Gate) -> None:
    client = public.client(shaky.url)
    sent = await client.send(None, f"words 5 0.01 | hold {gate('never')}", agent=AGENT)
    watched = await public.listen(shaky.url, sent.thread)
    await watched.sees(lambda seen: "w5 " in seen.text(sent.run or ""))
    await asyncio.to_thread(shaky.valkey.stop)
    asked_at = time.monotonic()
    stopped = await client.stop(run=sent.run, wait=20)
    assert (stopped.settled, stopped.status) == (True, "stopped")
    assert time.monotonic() - asked_at < 2.0 + SLACK_S


async def test_a_redis_that_hangs_holds_up_neither_a_send_nor_a_run_nor_its_end(
    shaky: Shaky, judge: Truth, public: People, gate: Gate
) -> None:
    client, without, finish = public.client(shaky.url), gate("without"), gate("finish")
    script = f"words 5 0.01 | hold {without} | words 5 0.01 | hold {finish} | say end"
    sent = await client.send(None, script, agent=AGENT)
    run = sent.run or ""
    watched = await public.listen(shaky.url, sent.thread)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    with hanging(shaky.valkey):
        asked_at = time.monotonic()
        other = await client.send(None, "say meanwhile", agent=AGENT)
        assert time.monotonic() - asked_at < SLACK_S
        without.touch()
        await shaky.worker.says("outbox_stalled", sent.thread)
        finish.touch()
        assert (await watched.sees_end(run))["output"] == "w1 w2 w3 w4 w5 w1 w2 w3 w4 w5 end"
        assert (await judge.sees(other.thread, "run_ended"))["output"] == "meanwhile"
    # Afterwards the same connection goes on, and no fact is missing on it.
    following = await client.send(sent.thread, "words 5 0.01")
    await watched.sees_end(following.run or "")
    seqs = [frame["seq"] for frame in watched.frames if frame["kind"] == "fact"]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_processes_start_while_redis_is_away(shaky: Shaky, judge: Truth, public: People) -> None:
    await asyncio.to_thread(shaky.valkey.stop)
    env = {"AGENTS": "late"}
    api = shaky.starter.start("serve", AGENTS, "--port", "0", env=env)
    worker = shaky.starter.start("worker", AGENTS, env=env)
    await worker.says('"worker_ready"', within=START_S_MAX)
    client = public.client(json.loads(await api.says('"api_ready"', within=START_S_MAX))["url"])
    sent = await client.send(None, "say good morning", agent="late")
    assert (await judge.sees(sent.thread, "run_ended"))["output"] == "good morning"
    for process in (api, worker):
        process.ask_to_end()
    assert [await asyncio.to_thread(process.wait) for process in (api, worker)] == [0, 0]


async def test_a_run_outlives_a_restart_of_postgres(
    shaky: Shaky, judge: Truth, public: People, gate: Gate
) -> None:
    client, going, finish = public.client(shaky.url), gate("going"), gate("finish")
    script = f'words 5 0.01 | hold {going} | call add {{"a": 1, "b": 2}} ;; hold {finish} | say three'
    sent = await client.send(None, script, agent=AGENT)
    run = sent.run or ""
    watched = await public.listen(shaky.url, sent.thread)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    await asyncio.to_thread(shaky.postgres.stop)
    # The run goes on, until it has something to record; that waits.
    going.touch()
    await shaky.worker.says('"record_delayed"', run)
    with pytest.raises(ClientError) as refused:
        await client.send(None, "say unkept", agent=AGENT)
    assert refused.value.code == "unavailable"
    await asyncio.to_thread(shaky.postgres.start)
    finish.touch()

    end = await watched.sees_end(run)
    assert (end["status"], end["output"]) == ("completed", "three")
    watched.check_nothing_missing()
    assert (await client.run(run)).attempt == 1
