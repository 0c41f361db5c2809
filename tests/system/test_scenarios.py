"""What has gone wrong in systems of this kind: `docs/scenarios.md` lists it with the tests, of which some are here."""

import ast
import asyncio
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis

from tests.chaos.databases import faketime
from tests.support.processes import START_S_MAX
from tests.support.servers import TestServers
from tests.support.truth import Truth
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import ROOT, TTL_S, Gate, System
from threadhold import Decision
from threadhold.runner.machine import RunStatus

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
PAGE = Path(ROOT) / "docs" / "scenarios.md"


def named_tests() -> list[str]:
    """Return the tests that the page names, as `path::name`."""
    return re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE.read_text())


def test_every_row_of_the_page_names_a_test_or_says_why_not() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert len(cells) > 40
    unnamed = [row for row in cells if row[0] != "fault" and "`tests/" not in row[2] and "why" not in row[2]]
    assert unnamed == []


@pytest.mark.parametrize("named", sorted(set(named_tests())))
def test_a_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")
    nodes = ast.walk(ast.parse((Path(ROOT) / path).read_text()))
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert name in functions


async def test_a_stop_of_a_dead_workers_run_frees_its_thread_however_often_and_wherever_it_is_asked(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    clients = public.client(system.a), public.client(system.b)
    sent = await clients[0].send(None, f"words 3 0.01 | hold {gate('never')}", agent=AGENT)
    await judge.sees(sent.thread, "run_started")
    _, worker = await system.crew.holder(sent.run or "")
    worker.kill()
    receipts = await asyncio.gather(*(each.stop(run=sent.run, wait=30) for each in (*clients, clients[1])))
    assert {(receipt.settled, receipt.status) for receipt in receipts} == {(True, RunStatus.STOPPED)}
    assert (await clients[1].thread(sent.thread)).state == "idle"
    assert len(await judge.facts(sent.thread, "stop_requested")) == 1
    following = await clients[1].send(sent.thread, "say on we go")
    assert (await judge.sees(sent.thread, "run_ended", run=following.run))["output"] == "on we go"


async def test_what_was_queued_behind_a_dead_workers_run_runs_in_order_and_once_each(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.a)
    sent = await client.send(None, f"words 3 0.01 | hold {gate('never')}", agent=AGENT)
    thread = sent.thread
    await judge.sees(thread, "run_started")
    queued = [await client.send(thread, f"say number {n}", on_busy="queue") for n in range(3)]
    _, worker = await system.crew.holder(sent.run or "")
    worker.kill()
    watched = await public.listen(system.b, thread)
    await watched.sees(lambda seen: len(seen.facts("run_ended")) == 4)
    ends = watched.facts("run_ended")
    assert [end["status"] for end in ends] == ["failed", "completed", "completed", "completed"]
    assert [end["output"] for end in ends[1:]] == ["number 0", "number 1", "number 2"]
    messages = [await client.message(each.message) for each in queued]
    assert len({message.run for message in messages}) == 3
    assert {message.state for message in messages} == {"delivered"}
    watched.check_nothing_missing()


async def test_a_run_longer_than_several_ttl_keeps_its_one_owner_though_that_owners_clock_is_wrong(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    library = faketime()
    if library is None:
        # The library comes as a wheel for Linux on x86-64 only; elsewhere nothing shifts the clock of one process.
        pytest.skip("nothing here can shift the clock of a process")
    await system.crew.have(2)
    skewed = {"LD_PRELOAD": str(library), "FAKETIME": "+30s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    hired = [
        system.crew.begin(env={"AGENTS": "beta", **skewed}),
        system.crew.begin(env={"AGENTS": "beta", **skewed, "FAKETIME": "-30s"}),
    ]
    for _, worker in hired:
        await worker.says('"worker_ready"', within=START_S_MAX)
    client, finish = public.client(system.a), gate("finish")
    sent = await client.send(None, f"words 3 0.01 | hold {finish} | say done", agent="beta")
    await judge.sees(sent.thread, "run_started")
    looks: list[dict[str, Any]] = []
    while not looks or looks[-1]["acquired"] < 3 * TTL_S:
        why = await client.why(sent.run or "")
        assert why.claim is not None
        assert (why.run.status, why.claim["expires_in_s"] > 0) == (RunStatus.RUNNING, True)
        # The database's own clock tells how long it has been held.
        looks.append({"worker": why.claim["worker"], "acquired": _held_s(why.claim)})
        await asyncio.sleep(0.1)
    finish.touch()
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["status"], end["output"]) == ("completed", "w1 w2 w3 done")
    assert len({look["worker"] for look in looks}) == 1
    assert len(await judge.facts(sent.thread, "attempt_closed")) == 1
    for _, worker in hired:
        assert await asyncio.to_thread(worker.terminate) == 0


def _held_s(claim: dict[str, object]) -> float:
    """Return for how long a claim has been held: from when it was taken to when it lapses, less what is left of it."""
    taken, lapses = (datetime.fromisoformat(str(claim[name])) for name in ("acquired_at", "expires_at"))
    return (lapses - taken).total_seconds() - float(str(claim["expires_in_s"]))


async def test_a_stop_settles_while_every_subscription_is_cut_again_and_again(
    system: System, servers: TestServers, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.b)
    cut = Counter[str]()

    async def cutting() -> None:
        async with redis.Redis.from_url(servers.redis_url) as server:
            while True:
                cut["times"] += int(await server.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))
                await asyncio.sleep(0.02)

    sent = await client.send(None, f"words 3 0.01 | hold {gate('never')}", agent=AGENT)
    await judge.sees(sent.thread, "run_started")

    async def has_cut() -> bool:
        return cut["times"] > 0

    storm = asyncio.create_task(cutting())
    try:
        await until(has_cut, what="nothing was cut")
        stopped = await client.stop(run=sent.run, wait=30)
        assert not storm.done()
    finally:
        storm.cancel()
    assert (stopped.settled, stopped.status) == (True, RunStatus.STOPPED)


async def test_who_came_back_with_a_cursor_may_stop_and_sees_nothing_after_the_end(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.a)
    sent = await client.send(None, f"words 5 0.01 | hold {gate('never')} | words 500 0.01", agent=AGENT)
    run = sent.run or ""
    socket = await public.socket(system.a)
    before = await socket.watch(sent.thread)
    await before.sees(lambda seen: "w5 " in seen.text(run))
    socket.drop()
    resumed = await public.socket(system.b)
    back = await resumed.watch(sent.thread, after=before.cursor)
    stopped = await resumed.ask("stop", thread=sent.thread, key="enough")
    assert (stopped["settled"], stopped["status"]) == (True, "stopped")
    await back.sees_end(run)
    # Whatever were still on its way would come before what comes next.
    following = await client.send(sent.thread, "say next")
    await back.sees_end(following.run or "")
    at = [frame["data"].get("fact") for frame in back.frames].index("run_ended")
    assert {frame["run"] for frame in back.frames[at + 1 :]} <= {following.run, None}
    assert back.text(run) == ""


async def test_an_answer_outlives_everything_that_was_there_at_the_pause_and_the_replica_that_took_it(
    system: System, judge: Truth, public: People
) -> None:
    only = {"AGENTS": "gamma"}
    _, worker = system.crew.begin(env=only)
    replica, url = await asyncio.to_thread(system.starter.api, env={"AGENTS": "gamma"})
    await worker.says('"worker_ready"', within=START_S_MAX)
    sent = await public.client(url).send(None, 'call pay {"amount": 5} ;; say paid', agent="gamma")
    opened = await judge.sees(sent.thread, "request_opened")
    await judge.sees(sent.thread, "paused")
    worker.kill()
    replica.kill()

    replica, url = await asyncio.to_thread(system.starter.api, env={"AGENTS": "gamma"})
    outcome = await public.client(url).answer(opened["request"], Decision.approve())
    replica.kill()
    assert (outcome.open, outcome.status) == (0, RunStatus.PENDING)
    _, worker = system.crew.begin(env=only)
    end = await judge.sees(sent.thread, "run_ended", within=START_S_MAX)
    assert (end["status"], end["output"]) == ("completed", "paid")
    [returned] = await judge.facts(sent.thread, "tool_returned")
    assert returned["result"] == "paid 5 to anybody"
    assert len(await judge.facts(sent.thread, "request_answered")) == 1
    assert await asyncio.to_thread(worker.terminate) == 0
