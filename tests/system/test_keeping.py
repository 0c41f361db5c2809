"""Claims are kept whatever a tool does to its process, and lost soon after the process has gone."""

import asyncio
import json
import os
import signal
import subprocess

import pytest

from tests.storage.test_claims import CUT, change
from tests.support.processes import START_S_MAX, Process
from tests.support.truth import Truth
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import TTL_S, Gate, System
from threadhold.storage.pool import Database

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
DEFAULT_TTL = {
    "THREADHOLD_CLAIM_TTL": "PT15S",
    "THREADHOLD_RENEW_EVERY": "PT1.5S",
    "THREADHOLD_TRUST_MARGIN": "PT2S",
}


def keepers_of(worker: Process) -> list[int]:
    """Return the processes that renew a worker's claims."""
    listed = subprocess.run(
        # As wide as it is: a checkout may lie deep.
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = (line.split(None, 2) for line in listed.splitlines())
    return [
        int(pid) for pid, ppid, command in rows if int(ppid) == worker.pid and "adapters.keeping" in command
    ]


def is_running(pid: int) -> bool:
    """Tell whether a process still runs."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.parametrize("tool", ["block", "grip", "clutch"])
async def test_a_tool_that_lets_nothing_else_run_for_twice_the_ttl_keeps_its_claim_and_is_named(
    system: System, judge: Truth, public: People, tool: str
) -> None:
    await system.crew.have(2)
    script = f'call {tool} {{"seconds": {2 * TTL_S}}} ;; say still here'
    sent = await public.client(system.a).send(None, script, agent=AGENT)
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["status"], end["output"]) == ("completed", "still here")
    assert len(await judge.facts(sent.thread, "attempt_closed")) == 1
    _, worker = await system.crew.holder(sent.run or "")
    # Its log may tell of others that blocked before this run.
    claimed = await worker.says('"run_claimed"', sent.run or "")
    blocked = await worker.says('"loop_blocked"', f'"tool": "{tool}"', after=claimed)
    told = json.loads(blocked)
    assert told["seconds"] >= 2.0
    assert told["function"] == tool
    assert "/tests/support/agents.py:" in told["where"]
    resumed = json.loads(await worker.says('"loop_resumed"', after=blocked))
    assert resumed["seconds"] >= 2 * TTL_S - 1


async def test_a_killed_worker_is_noticed_long_before_its_claims_lapse_and_its_keeper_goes_with_it(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(1)
    env = {"AGENTS": "alpha", **DEFAULT_TTL}
    _, worker = system.crew.begin(env=env)
    await worker.says('"worker_ready"', within=START_S_MAX)
    [keeper] = keepers_of(worker)
    # A claim of before its lock stands would be kept for a ttl.
    await worker.says('"keeper_ready"', '"hinted": true', within=START_S_MAX)
    sent = await public.client(system.a).send(None, f"words 3 0.01 | hold {gate('never')}", agent="alpha")
    await judge.sees(sent.thread, "run_started")
    worker.kill()
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["reason"], end["error"]["cause"]) == ("abandoned", "killed")

    async def gone() -> bool:
        return not is_running(keeper)

    await until(gone)


async def test_a_keeper_that_is_killed_alone_is_replaced_and_nothing_is_lost(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    _, worker = system.crew.begin(env={"AGENTS": "beta", **DEFAULT_TTL})
    await worker.says('"keeper_ready"', within=START_S_MAX)
    replaced = gate("replaced")
    sent = await public.client(system.a).send(None, f"hold {replaced} | say kept", agent="beta")
    await judge.sees(sent.thread, "run_started")
    [first] = keepers_of(worker)
    os.kill(first, signal.SIGKILL)
    await worker.says('"keeper_restarted"', '"exit_code": -9', within=START_S_MAX)

    async def ready_again() -> bool:
        # It says so after its first renewal, of all that it was told to keep.
        return worker.text().count('"keeper_ready"') == 2

    await until(ready_again, within=START_S_MAX)
    replaced.touch()
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["status"], end["output"]) == ("completed", "kept")
    assert '"claim_lost"' not in worker.text()
    assert await asyncio.to_thread(worker.terminate) == 0


async def test_a_worker_whose_lock_is_cut_takes_it_again_and_nothing_is_lost(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(1)
    _, worker = system.crew.begin(env={"AGENTS": "beta", **DEFAULT_TTL})
    id = json.loads(await worker.says('"worker_ready"', within=START_S_MAX))["worker"]
    await worker.says('"keeper_ready"', '"hinted": true', within=START_S_MAX)
    finish = gate("finish")
    sent = await public.client(system.a).send(None, f"hold {finish} | say kept", agent="beta")
    await judge.sees(sent.thread, "run_started")
    database = Database(system.database_url, size=1)
    await database.open()
    await change(database, CUT, id)
    await database.close()
    await worker.says('"renewal_failed"')
    await worker.says('"renewal_recovered"')
    finish.touch()
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["status"], end["output"]) == ("completed", "kept")
    assert '"claim_lost"' not in worker.text()
    assert await asyncio.to_thread(worker.terminate) == 0


async def test_a_worker_that_is_frozen_beyond_its_ttl_has_lost_its_claim_and_learns_it_when_it_thaws(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client, held = public.client(system.a), gate("held")
    sent = await client.send(None, f"words 3 0.01 | hold {held} | say too late", agent=AGENT)
    await judge.sees(sent.thread, "run_started")
    _, frozen = await system.crew.holder(sent.run or "")
    frozen.freeze()
    end = await judge.sees(sent.thread, "run_ended")
    assert (end["reason"], end["error"]["cause"]) == ("abandoned", "lost claim")
    held.touch()
    frozen.thaw()
    await frozen.says('"claim_lost"', sent.thread)
    following = await client.send(sent.thread, "say next")
    await judge.sees(sent.thread, "run_ended", run=following.run)
    statuses = [fact["status"] for fact in await judge.facts(sent.thread, "run_ended")]
    assert statuses == ["failed", "completed"]
