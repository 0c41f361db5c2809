"""Tools that executors carry out: an executor is a process of its own, and so is each of its children."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.support.processes import Process, processes
from tests.support.servers import Stack, TestServers
from tests.support.truth import Truth, truth
from tests.support.waiting import until
from tests.system.conftest import ROOT
from tests.system.executor_app import APP, HANG_S, RESOLVED, SECRET, app
from threadhold import Decision, Principal, Runner, open_runner
from threadhold.runner.remote import SILENT

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

ADA = Principal(id="ada", workspace="home")
SHORT = {"claim_ttl": 5, "renew_every": 0.5, "trust_margin": 0.5}


@dataclass(frozen=True, slots=True)
class Lab:
    """A stack with an executor of the queue `lab`."""

    stack: Stack
    executor: Process
    start: Any


@pytest.fixture(scope="module")
def lab(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    stack = asyncio.run(servers.new_stack())
    with processes(stack.environment(PYTHONPATH=ROOT), tmp_path_factory.mktemp("lab")) as starter:

        def start(queue: str) -> Process:
            process = starter.start("executor", APP, "--queue", queue, "--capacity", "1")
            process.wait_for('"executor_ready"')
            return process

        yield Lab(stack, start("lab"), start)
        assert starter.errors() == []


@dataclass(slots=True)
class Bench:
    """Somebody who sends to a worker in this process, and what the log says."""

    runner: Runner
    judge: Truth

    async def run(self, script: str, thread: str | None = None) -> tuple[str, list[dict[str, Any]]]:
        """Send a script; return its thread and what its calls came to, once it rests."""
        sent = await self.runner.send(thread, script, by=ADA, agent=None if thread else "far")
        async for _ in self.runner.watch(sent.thread, by=ADA, until="idle"):
            pass
        return sent.thread, await self.judge.facts(sent.thread, "tool_returned")

    async def send(self, script: str) -> tuple[str, str]:
        """Send a script; return its thread and its run."""
        sent = await self.runner.send(None, script, by=ADA, agent="far")
        return sent.thread, sent.run or ""

    async def idle(self, thread: str) -> list[dict[str, Any]]:
        """Return what a thread's calls came to, once it rests."""
        async for _ in self.runner.watch(thread, by=ADA, until="idle"):
            pass
        return await self.judge.facts(thread, "tool_returned")

    async def end(self, thread: str) -> dict[str, Any]:
        """Return how the thread's newest run ended."""
        return (await self.judge.facts(thread, "run_ended"))[-1]


@pytest.fixture
async def bench(lab: Lab) -> AsyncIterator[Bench]:
    async with (
        open_runner(app, lab.stack.settings(**SHORT), capacity=4) as runner,
        truth(lab.stack.database_url) as judge,
    ):
        yield Bench(runner, judge)
        assert await judge.broken() == []


def call(tool: str, **args: object) -> str:
    return f"call {tool} {json.dumps(args)}"


async def pids_of(path: Path) -> list[int]:
    """Return the processes of a call that hangs, once it does."""

    async def look() -> str:
        return await asyncio.to_thread(path.read_text) if await asyncio.to_thread(path.exists) else ""

    return [int(pid) for pid in (await until(look, within=60)).split()]


async def gone(pids: list[int]) -> None:
    """Return when none of these processes runs any more."""

    async def look() -> bool:
        return not any(map(_runs, pids))

    await until(look, within=30, what=f"{pids} still run")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # One that nobody has waited for is dead all the same.
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_tool_is_carried_out_in_a_child_of_an_executor(bench: Bench, lab: Lab) -> None:
    once = call("whereabouts", day="2026-02-03", points=[{"x": 1, "y": 2}, {"x": 4}])
    thread, [returned] = await bench.run(f"{once} ;; say seen")
    found = returned["result"]
    [called] = await bench.judge.facts(thread, "tool_called")
    assert (returned["outcome"], called["executor"], found["call"]) == ("ok", "lab", called["call_id"])
    assert (found["who"], found["tool"], found["retry"]) == ("ada in home", "whereabouts", 0)
    assert (found["day"], found["sum"]) == ("03 February", 7)
    assert found["pid"] not in (os.getpid(), lab.executor.pid)
    assert (await bench.end(thread))["output"] == "seen"
    _, [again] = await bench.run(once)
    assert again["result"]["pid"] == found["pid"]
    os.kill(found["pid"], signal.SIGKILL)
    await lab.executor.says('"child_died"')
    _, [other] = await bench.run(once)
    assert other["result"]["pid"] != found["pid"]


async def test_secrets_stay_where_the_tool_is_and_nudges_hold_ids(bench: Bench, lab: Lab) -> None:
    client: Any = Redis.from_url(lab.stack.redis_url)
    said: list[str] = []
    async with client, client.monitor() as monitor:

        async def listen() -> None:
            async for command in monitor.listen():
                said.append(command["command"])

        listening = asyncio.create_task(listen())
        thread, [returned] = await bench.run(f"{call('unlock', door='green-door-77')} ;; say open")

        ours = tuple(f"{lab.stack.settings().redis_prefix}{name}:" for name in ("tools", "c"))

        async def look() -> list[str]:
            found = [line for line in said if any(name in line for name in ours)]
            return found if any("PUBLISH" in line for line in found) else []

        nudges = await until(look, what=f"no nudge under {ours}")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert RESOLVED == []
    assert (returned["outcome"], returned["result"]) == ("ok", "green-door-77 opened with [secret]")
    assert "and so is green-door-772" in str(await bench.judge.history(thread))
    assert any("attend" in line for line in nudges)
    assert "green-door" not in str(nudges)
    assert SECRET not in str(said)


async def test_what_a_tool_raises_there_is_what_the_model_would_get_here(bench: Bench) -> None:
    thread, told = await bench.run(
        " ;; ".join(call("trouble", kind=kind) for kind in ("rejection", "retry", "retry", "failed"))
        + " ;; say so"
    )
    assert [fact["outcome"] for fact in told] == ["retry", "ok", "retry", "failed"]
    assert told[0]["error"] == "not on Sundays"
    assert (told[1]["result"], told[2]["error"]) == ("no trouble after 1", "once more")
    assert told[3]["error"] == "out of order"
    assert (await bench.end(thread))["output"] == "so"


@pytest.mark.parametrize(
    ("kind", "type", "message"),
    [("crash", "LookupError", "no such shelf"), ("run", "out_of_stock", "no more bolts")],
)
async def test_other_errors_fail_the_run_with_their_type(
    bench: Bench, kind: str, type: str, message: str
) -> None:
    thread, [returned] = await bench.run(call("trouble", kind=kind))
    assert (returned["outcome"], returned["error"]) == ("failed", message)
    end = await bench.end(thread)
    assert (end["status"], end["error"]) == ("failed", {"type": type, "message": message})


async def test_what_is_not_there_of_the_context_is_refused_by_name(bench: Bench) -> None:
    _, [returned] = await bench.run(call("trouble", kind="context"))
    assert "'messages' of the run's context is not there in an executor" in returned["error"]


async def test_a_tool_may_ask_for_an_approval_there(bench: Bench) -> None:
    thread, [deferred] = await bench.run(f"{call('trouble', kind='approval')} ;; say allowed")
    assert deferred["outcome"] == "deferred"
    [request] = await bench.runner.requests(by=ADA, thread=thread)
    assert (request.metadata["note"], request.metadata["by"]) == ("think twice", ["2026-02-03"])
    await bench.runner.answer(request.id, Decision.approve(), by=ADA)
    _, returned = await bench.idle(thread)
    assert (returned["outcome"], returned["result"]) == ("ok", "no trouble after 0")


async def test_a_child_that_dies_leaves_its_call_unknown_and_the_run_goes_on(bench: Bench) -> None:
    thread, [returned] = await bench.run(f"{call('trouble', kind='die')} ;; say on")
    assert (returned["outcome"], returned["type"]) == ("failed", "executor_lost")
    assert "Outcome unknown" in returned["error"]
    assert (await bench.end(thread))["output"] == "on"


async def test_a_call_that_takes_too_long_is_killed_with_what_it_has_started(
    bench: Bench, tmp_path: Path
) -> None:
    thread, _ = await bench.send(f"{call('hang', pids=str(tmp_path / 'pids'))} ;; say next")
    pids = await pids_of(tmp_path / "pids")
    assert all(map(_runs, pids))
    await gone(pids)
    [returned] = await bench.idle(thread)
    assert (returned["outcome"], returned["type"]) == ("failed", "tool_timeout")
    assert f"timed out after {HANG_S:g} s" in returned["error"]
    assert (await bench.end(thread))["output"] == "next"


async def test_a_stop_kills_what_carries_out_the_call(bench: Bench, tmp_path: Path) -> None:
    thread, run = await bench.send(call("hang_long", pids=str(tmp_path / "pids")))
    pids = await pids_of(tmp_path / "pids")
    await bench.runner.stop(run=run, by=ADA, wait=10)
    await gone(pids)
    assert (await bench.end(thread))["status"] == "stopped"
    # The slot is free again.
    _, returned = await bench.run(f"{call('trouble', kind='none')} ;; say back", thread)
    assert [fact["result"] for fact in returned] == ["no trouble after 0"]


async def test_without_an_executor_the_model_learns_that_nothing_has_happened(bench: Bench) -> None:
    _, [returned] = await bench.run(f"{call('nobody', pids='unused')} ;; say well")
    assert (returned["outcome"], returned["type"]) == ("failed", "executor_missing")
    assert "No executor of the queue 'nowhere' took this call" in returned["error"]


async def test_an_executor_that_is_killed_takes_its_child_along_and_the_call_is_not_repeated(
    bench: Bench, lab: Lab, tmp_path: Path
) -> None:
    doomed = lab.start("doomed")
    thread, _ = await bench.send(f"{call('doomed', pids=str(tmp_path / 'pids'))} ;; say survived")
    pids = await pids_of(tmp_path / "pids")
    (tmp_path / "pids").unlink()
    doomed.kill()
    await gone(pids)
    lab.start("doomed")
    async with asyncio.timeout(SILENT.total_seconds() + 30):
        [returned] = await bench.idle(thread)
    assert (returned["outcome"], returned["type"]) == ("failed", "executor_lost")
    assert (await bench.end(thread))["output"] == "survived"
    assert not (tmp_path / "pids").exists()
