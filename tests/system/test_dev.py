"""`threadhold dev` is killed and started again, or its servers are: nobody has to repair anything."""

import json
import os
import random
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.embedded.probes import recorded_pids
from tests.support.processes import AGENTS, START_S_MAX, Process, processes
from tests.support.sending import surely
from tests.support.servers import Stack
from tests.support.truth import truth
from tests.support.waiting import until
from tests.support.watching import People, Watched
from tests.system.conftest import ROOT, Gate
from threadhold.adapters.client import Client
from threadhold.adapters.embedded import EmbeddedPostgres, EmbeddedValkey
from threadhold.adapters.embedded.locks import FileLock
from threadhold.adapters.embedded.loopback import accepts, is_free
from threadhold.runner.records import Receipt

# They start up to four processes, and the servers twice, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
# Below those that systems hand out to whoever asks for any port: nobody gets one while its server is down.
KEPT_PORTS = range(20_000, 32_768)


def ports(state: Path) -> list[int]:
    """Return the ports of the embedded servers that the owner of a state folder has announced."""
    told = json.loads((state / "servers.json").read_text())
    return [urlsplit(told[name]).port or 0 for name in ("database_url", "redis_url")]


def choose_ports(state: Path) -> list[int]:
    """Let the embedded servers in a state folder have had ports that they will find free again."""
    chosen = random.sample([port for port in random.sample(KEPT_PORTS, 50) if is_free(port)], 2)
    for server, port in zip((EmbeddedPostgres(state), EmbeddedValkey(state)), chosen, strict=True):
        server.folder.mkdir(parents=True)
        (server.folder / "port").write_text(f"{port}\n")
    return chosen


def of_dev(state: Path) -> dict[str, str]:
    """Return the environment of processes that share the embedded servers in a state folder."""
    return Stack("", "", "th:").environment(PYTHONPATH=ROOT, THREADHOLD_STATE=str(state))


def left_over(state: Path) -> list[Path]:
    """Return the locks that a server of this folder, or a child of one, still holds."""
    found = sorted(state.glob("*/server.lock"))
    assert len(found) == 2
    locks = [FileLock(path) for path in found]
    held = [path for path, lock in zip(found, locks, strict=True) if not lock.try_acquire()]
    for lock in locks:
        lock.close()
    return held


async def ready(dev: Process) -> str:
    """Return where `dev` listens; the first start makes a database."""
    return str(json.loads(await dev.says('"api_ready"', within=90.0))["url"])


async def test_dev_goes_on_after_kill_9(tmp_path: Path, public: People, gate: Gate) -> None:
    state = tmp_path / "state of dev"
    with processes(of_dev(state), tmp_path, forked=False) as starter:
        first = starter.start("dev", AGENTS, "--port", "0")
        url = await ready(first)
        sent = await public.client(url).send(None, f"words 5 0.01 | hold {gate('never')}", agent=AGENT)
        watched = await public.listen(url, sent.thread)
        await watched.sees(lambda seen: "w5 " in seen.text(sent.run or ""))
        old_ports = ports(state)
        first.kill()
        await gone(old_ports)

        second = starter.start("dev", AGENTS, "--port", "0")
        client = public.client(await ready(second))
        following = await client.send(sent.thread, "say I am back")
        again = await public.listen(client.url, sent.thread)
        answer = await again.sees(lambda seen: seen.facts("run_ended")[1:])
        assert [end["output"] for end in answer] == ["I am back"]
        assert (await client.message(following.message)).state == "delivered"
        old = await client.run(sent.run or "")
        assert (old.status, old.reason) == ("failed", "abandoned")
        new_ports = ports(state)
        async with truth(json.loads((state / "servers.json").read_text())["database_url"]) as judge:
            assert await judge.broken() == []
        assert second.terminate() == 0
        assert starter.errors() == []
    await gone(new_ports)
    assert left_over(state) == []


async def say(
    client: Client, public: People, text: str, thread: str | None = None
) -> tuple[Receipt, Watched]:
    """Let the agent say something, and watch; both again while the servers are away."""
    agent = AGENT if thread is None else None
    sent = await surely(lambda: client.send(thread, f"say {text}", agent=agent, key=text))
    return sent, await surely(lambda: public.listen(client.url, sent.thread))


async def test_attached_processes_come_back_with_dev(tmp_path: Path, public: People) -> None:
    state = tmp_path / "state"
    old_ports = choose_ports(state)
    # `dev` does not have the agent: what the replica takes is done by the attached worker, or not at all.
    theirs, ours = {"AGENTS": "alpha"}, {"AGENTS": AGENT}
    with processes(of_dev(state), tmp_path, forked=False) as starter:
        first = starter.start("dev", AGENTS, "--port", "0", env=theirs)
        await ready(first)
        worker = starter.start("worker", AGENTS, env=ours)
        replica = starter.start("serve", AGENTS, "--port", "0", env=ours)
        for attached in (worker, replica):
            await attached.says('"embedded_attached"', f'"owner_pid": {first.pid}', within=START_S_MAX)
        await worker.says('"worker_ready"', within=START_S_MAX)
        client = public.client(await ready(replica))
        before, watched = await say(client, public, "before")
        assert (await watched.sees_end(before.run or ""))["output"] == "before"
        assert ports(state) == old_ports
        first.kill()
        await gone(old_ports)

        await ready(starter.start("dev", AGENTS, "--port", "0", env=theirs))
        assert ports(state) == old_ports
        after, watched = await say(client, public, "after")
        assert (await watched.sees_end(after.run or "", within=START_S_MAX))["output"] == "after"
        assert [process.ended() for process in (worker, replica)] == [None, None]
        assert starter.errors() == []


async def test_dev_restarts_servers_that_died(tmp_path: Path, public: People) -> None:
    state = tmp_path / "state"
    old_ports = choose_ports(state)
    with processes(of_dev(state), tmp_path, forked=False) as starter:
        dev = starter.start("dev", AGENTS, "--port", "0")
        client = public.client(await ready(dev))
        before, watched = await say(client, public, "before")
        await watched.sees_end(before.run or "")
        assert ports(state) == old_ports
        for pid in recorded_pids(state):
            os.kill(pid, signal.SIGKILL)
        for server in ("Postgres", "Valkey"):
            await dev.says('"embedded_restarted"', f'"server": "{server}"', within=START_S_MAX)
        after, again = await say(client, public, "after", before.thread)
        assert (await again.sees_end(after.run or "", within=START_S_MAX))["output"] == "after"
        assert ports(state) == old_ports
        assert starter.errors() == []
        dev.kill()  # Servers that were started again die with their owner as the first ones would.
        await gone(old_ports)


async def gone(old: list[int]) -> None:
    """Wait until nobody listens on these ports any more."""

    async def look() -> bool:
        return not any(accepts(port) for port in old)

    await until(look, within=10.0, what=f"a server still listens on one of {old}")
