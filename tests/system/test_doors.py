"""The same decisions through every door, who may take them, and what operators do from a terminal."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.mcp.replicas import call, host
from tests.support.processes import AGENTS, START_S_MAX, Process, processes
from tests.support.servers import TestServers
from tests.support.truth import Truth
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import ROOT, Gate, System
from threadhold.adapters.client import ClientError
from threadhold.runner.decisions import Decision

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
EDIT = {"kind": "edit", "args": {"amount": 5, "to": "bob"}}
Door = Callable[[System, People, str], Awaitable[dict[str, Any]]]


async def over_rest(system: System, public: People, request: str) -> dict[str, Any]:
    """Answer over REST, on one replica."""
    outcome = await public.client(system.a).answer(request, Decision.edit({"amount": 5, "to": "bob"}))
    return {"decision": outcome.decision, "duplicate": outcome.duplicate, "by": outcome.by}


async def over_websocket(system: System, public: People, request: str) -> dict[str, Any]:
    """Answer over a WebSocket, on the other one."""
    return await (await public.socket(system.b)).ask("answer", request=request, decision=EDIT)


async def over_cli(system: System, public: People, request: str) -> dict[str, Any]:
    """Answer from a terminal."""
    told = await run_cli(
        system, "answer", request, "--edit", json.dumps(EDIT["args"]), "--json", "--url", system.a
    )
    answer: dict[str, Any] = json.loads(told)["answer"]
    return answer


async def over_mcp(system: System, public: People, request: str) -> dict[str, Any]:
    """Answer as an MCP host, on the other replica."""
    async with host(system.b, "auto") as client:
        return await call(client, "answer", request=request, wait_s=0, **EDIT)


DOORS: list[Door] = [over_rest, over_websocket, over_cli, over_mcp]


async def run_cli(system: System, *args: str, code: int = 0) -> str:
    """Run a command to its end and return what it wrote."""
    process: Process = system.starter.start(*args)

    async def ended() -> bool:
        return process.ended() is not None

    await until(ended, within=START_S_MAX, what=f"{args} does not end")
    assert process.ended() == code, process.text()
    return process.text()


async def paused(system: System, judge: Truth, public: People, script: str) -> tuple[str, str, str]:
    """Start a run that asks for something; return its thread, the run and the request."""
    sent = await public.client(system.a).send(None, script, agent=AGENT)
    asked = await judge.sees(sent.thread, "request_opened")
    await judge.sees(sent.thread, "paused")
    return sent.thread, sent.run or "", str(asked["request"])


@pytest.mark.parametrize("first", DOORS, ids=lambda door: door.__name__)
async def test_an_approval_is_decided_once_through_whichever_door(
    system: System, judge: Truth, public: People, first: Door
) -> None:
    await system.crew.have(1)
    thread, run, request = await paused(system, judge, public, 'call pay {"amount": 50}')
    watched = await public.listen(system.b, thread)
    decided = await first(system, public, request)
    again = [await door(system, public, request) for door in DOORS if door is not first]
    assert [each["decision"] for each in (decided, *again)] == [EDIT] * 4
    assert [each["duplicate"] for each in (decided, *again)] == [False, True, True, True]
    assert {each["by"] for each in (decided, *again)} == {"local"}
    with pytest.raises(ClientError) as other:
        await public.client(system.b).answer(request, Decision.approve())
    assert (other.value.code, other.value.data["by"]) == ("already_answered", "local")

    assert (await watched.sees_end(run))["status"] == "completed"
    assert [fact["result"] for fact in watched.facts("tool_returned")][-1] == "paid 5 to bob"
    assert len(await judge.facts(thread, "request_answered")) == 1
    watched.check_nothing_missing()


async def test_a_question_is_listed_explained_and_answered_from_a_terminal(
    system: System, judge: Truth, public: People
) -> None:
    await system.crew.have(1)
    thread, run, request = await paused(system, judge, public, 'call ask {"question": "Which size?"}')
    listed, explained, active, refused = await asyncio.gather(
        run_cli(system, "requests", "--thread", thread, "--url", system.b),
        run_cli(system, "why", run, "--url", system.a),
        run_cli(system, "ps", "--status", "paused", "--url", system.a),
        run_cli(system, "answer", request, "--approve", "--url", system.a, code=1),
    )
    assert request in listed
    assert 'ask(question="Which size?")' in listed
    assert f"answer {request} --reply TEXT" in explained
    assert any(run in line and "waits for 1 question" in line for line in active.splitlines())
    assert "a request of kind 'question' takes reply, reject" in refused
    await run_cli(system, "answer", request, "--reply", "XL", "--url", system.b)
    watched = await public.listen(system.a, thread)
    assert (await watched.sees_end(run))["status"] == "completed"
    returned = [part for message in await judge.history(thread) for part in message["parts"]]
    assert [part["content"] for part in returned if part["part_kind"] == "tool-return"] == ["XL"]


async def test_an_audit_of_a_healthy_database_finds_nothing(system: System) -> None:
    assert await run_cli(system, "audit") == "no broken invariant\n"


async def test_an_operator_drains_a_worker_and_its_run_goes_on_elsewhere(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    finish = gate("finish")
    sent = await public.client(system.a).send(None, f"words 5 0.01 | hold {finish} | say done", agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    watched = await public.listen(system.b, thread)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    name, worker = await system.crew.holder(run)
    assert f"asked to hand over and leave: {name}-" in await run_cli(system, "drain", name, "--url", system.b)

    assert await asyncio.to_thread(worker.wait) == 0
    assert '"asked_by": "operator"' in worker.text()
    closed = await watched.sees(lambda seen: seen.facts("attempt_closed"))
    assert (closed[0]["outcome"], closed[0]["text"]) == ("handed_over", "withdrawn")
    finish.touch()
    assert (await watched.sees_end(run))["output"] == "w1 w2 w3 w4 w5 done"
    explained, listed = await asyncio.gather(
        run_cli(system, "why", run, "--url", system.a), run_cli(system, "workers", "--url", system.a)
    )
    assert "handed over to another worker (drain)" in explained
    assert await judge.worker(thread, run) != name
    assert f"{name}-" not in listed


async def test_in_dev_only_the_worker_leaves(servers: TestServers, tmp_path: Any, public: People) -> None:
    stack = await servers.new_stack()
    with processes(stack.environment(PYTHONPATH=ROOT), tmp_path) as starter:
        dev = starter.start("dev", AGENTS, "--port", "0")
        client = public.client(dev.url())
        assert [each.startswith("dev-") for each in await client.drain("dev")] == [True]
        await dev.says('"no_worker_here"')
        assert (await client.send(None, "say hi", agent=AGENT)).no_worker
        assert await client.workers() == []
        assert dev.terminate() == 0
        assert starter.errors() == []
    await servers.take_back(stack)
