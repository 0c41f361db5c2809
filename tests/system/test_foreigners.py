"""Who may see and decide what: everybody else is told that there is no such thing."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.support.agents import app
from tests.support.servers import TestServers
from tests.support.waiting import until
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.runner.records import Principal, Role

ROLES: dict[str, frozenset[Role]] = {
    "bob": frozenset({"user", "approver"}),
    "root": frozenset({"user", "operator"}),
}
STRANGER = "eve"
OWNER = "ada"
APPROVER = "bob"


def by_header(headers: Mapping[str, str]) -> Principal:
    """Return who a header says it is, which is enough among friends."""
    id = headers.get("x-who", OWNER)
    workspace = "elsewhere" if id == "mallory" else "home"
    return Principal(id=id, workspace=workspace, roles=ROLES.get(id, frozenset({"user"})))


class Office:
    """An API that believes who one says one is, with a worker behind it."""

    def __init__(self, client: httpx.AsyncClient, port: int) -> None:
        self._client = client
        self._port = port

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call as somebody and return the status and the body."""
        answer = await self._client.request(method, f"/v1/{path}", json=body, headers={"x-who": who})
        return answer.status_code, answer.json()

    async def code(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, str | None]:
        """Call as somebody and return the status and the code of the problem."""
        status, told = await self.ask(who, method, path, body)
        return status, told.get("code")

    async def over_websocket(self, who: str, **op: Any) -> dict[str, Any]:
        """Do one operation over a WebSocket as somebody."""
        url = f"ws://127.0.0.1:{self._port}/v1/ws"
        async with connect(url, additional_headers={"x-who": who}, proxy=None) as socket, asyncio.timeout(10):
            await socket.send(json.dumps({"id": 1, **op}))
            told: dict[str, Any] = json.loads(await socket.recv())
        return told

    async def executed(self, mission: str) -> dict[str, Any]:
        """Let the owner start an execution, and return its receipt once its run has ended."""
        _, receipt = await self.ask(OWNER, "POST", "executions", {"agent": "scripted", "mission": mission})
        await self.ended(receipt["run"])
        told: dict[str, Any] = receipt
        return told

    async def ended(self, run: str) -> None:
        """Wait until a run that the owner may see has completed."""

        async def look() -> bool:
            return bool((await self.ask(OWNER, "GET", f"runs/{run}"))[1]["status"] == "completed")

        await until(look, what="the run did not complete")

    async def paused(self, script: str) -> tuple[str, str]:
        """Let the owner start a run that asks for something; return the run and the request."""
        _, receipt = await self.ask(OWNER, "POST", "messages", {"agent": "scripted", "content": script})

        async def look() -> list[Any]:
            _, page = await self.ask(OWNER, "GET", f"requests?thread={receipt['thread']}")
            items: list[Any] = page["items"]
            return items

        asked = await until(look, what="no request was opened")
        return receipt["run"], asked[0]["id"]


@asynccontextmanager
async def open_office(servers: TestServers) -> AsyncIterator[Office]:
    """Open an office for the length of a block."""
    stack = await servers.new_stack()
    async with (
        open_parts(stack.settings(grace=0)) as parts,
        running_worker(app, parts, id=worker_id("w"), capacity=5),
    ):
        runner = make_runner(app, parts)
        drain = asyncio.Event()
        api = create_api(runner, health=parts.health, drain=drain, authenticate=by_header)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            yield Office(client, server.port)
        server.should_exit = True
        await serving
        await runner.aclose()
    await servers.take_back(stack)


@pytest.fixture
async def office(servers: TestServers) -> AsyncIterator[Office]:
    """Open an office for one test."""
    async with open_office(servers) as opened:
        yield opened


async def test_to_foreigners_there_is_no_such_request_and_no_such_run(office: Office) -> None:
    run, request = await office.paused('call pay {"amount": 50}')
    approve = {"kind": "approve"}
    for who in (STRANGER, "mallory"):
        for path in (f"requests/{request}", f"runs/{run}", f"runs/{run}/why", f"runs/{run}/attempts"):
            assert await office.code(who, "GET", path) == (404, "not_found")
        assert await office.code(who, "POST", f"requests/{request}/answer", approve) == (404, "not_found")
        told = await office.over_websocket(who, op="answer", request=request, decision=approve)
        assert told["error"]["code"] == "not_found"
        for pages in ("requests?status=any", "runs"):
            assert await office.ask(who, "GET", pages) == (200, {"items": [], "next_cursor": None})
        assert await office.ask(who, "POST", "stop") == (200, {"items": []})
    assert (await office.ask(OWNER, "GET", f"requests/{request}"))[1]["status"] == "open"
    assert (await office.ask(OWNER, "GET", f"runs/{run}"))[1]["status"] == "paused"


async def test_an_approver_sees_what_is_to_be_approved_and_decides(office: Office) -> None:
    run, request = await office.paused("call guarded {}")
    own = {"kind": "approve"}
    assert await office.code(OWNER, "POST", f"requests/{request}/answer", own) == (403, "own_request")
    assert await office.code(OWNER, "POST", f"runs/{run}/stop", {"wait": 0}) == (409, "decide_first")
    _, page = await office.ask(APPROVER, "GET", "requests")
    assert [(item["id"], item["requested_by"]) for item in page["items"]] == [(request, OWNER)]
    wrong = {"kind": "approve", "args_hash": "00" * 32}
    assert await office.code(APPROVER, "POST", f"requests/{request}/answer", wrong) == (409, "args_changed")
    reply = {"kind": "reply", "value": "yes"}
    assert await office.code(APPROVER, "POST", f"requests/{request}/answer", reply) == (409, "wrong_decision")
    right = {"kind": "approve", "args_hash": page["items"][0]["args_hash"]}
    told = await office.over_websocket(APPROVER, op="answer", request=request, decision=right)
    assert (told["result"]["by"], told["result"]["open"]) == (APPROVER, 0)
    await office.ended(run)


async def test_workers_are_for_operators(office: Office) -> None:
    for who in (STRANGER, OWNER, APPROVER):
        assert await office.code(who, "GET", "workers") == (403, "forbidden")
        assert await office.code(who, "POST", "workers/w/drain") == (403, "forbidden")
    status, listed = await office.ask("root", "GET", "workers")
    assert (status, [each["draining"] for each in listed["items"]]) == (200, [False])
    assert await office.code("root", "POST", "workers/nobody/drain") == (404, "not_found")
    assert (await office.ask("root", "POST", "workers/w/drain"))[1]["items"] == [listed["items"][0]["id"]]


async def test_a_closed_request_says_so(office: Office) -> None:
    run, request = await office.paused('call pay {"amount": 50}')
    assert (await office.ask(OWNER, "POST", f"runs/{run}/stop", {"wait": 0}))[1]["status"] == "stopped"
    late = {"kind": "approve"}
    assert await office.code(OWNER, "POST", f"requests/{request}/answer", late) == (409, "request_closed")


async def test_to_foreigners_there_is_no_such_execution_and_no_such_checkpoint(office: Office) -> None:
    made = await office.executed("say one")
    execution, run = made["execution"], made["run"]
    _, page = await office.ask(OWNER, "GET", f"runs/{run}/checkpoints")
    begin = page["items"][0]["id"]
    paths = [
        f"executions/{execution}",
        f"executions/{execution}/threads",
        f"runs/{run}/checkpoints",
        f"checkpoints/{begin}",
        f"checkpoints/{begin}/history",
    ]
    joining = {"agent": "scripted", "execution": execution}
    for who in (STRANGER, APPROVER, "mallory"):
        for path in paths:
            assert await office.code(who, "GET", path) == (404, "not_found"), path
        for body in (None, {"checkpoint": begin}):
            assert await office.code(who, "POST", f"runs/{run}/replay", body) == (404, "not_found")
        assert await office.code(who, "POST", "threads", joining) == (404, "not_found")
        assert await office.ask(who, "GET", "executions") == (200, {"items": [], "next_cursor": None})
    for who in (OWNER, "root"):
        for path in paths:
            assert (await office.ask(who, "GET", path))[0] == 200, path
        _, page = await office.ask(who, "GET", "executions")
        assert [each["id"] for each in page["items"]] == [execution]
    _, page = await office.ask(OWNER, "GET", f"runs?thread={made['thread']}")
    assert [each["id"] for each in page["items"]] == [run]


async def test_a_checkpoint_of_another_run_is_none_of_this_one(office: Office) -> None:
    mine, other = await office.executed("say one"), await office.executed("say two")
    _, page = await office.ask(OWNER, "GET", f"runs/{other['run']}/checkpoints")
    foreign = {"checkpoint": page["items"][0]["id"]}
    assert await office.code(OWNER, "POST", f"runs/{mine['run']}/replay", foreign) == (404, "not_found")
    named = {"checkpoint": f"{mine['run']}.9"}
    assert await office.code(OWNER, "POST", f"runs/{mine['run']}/replay", named) == (404, "not_found")
    assert await office.code(OWNER, "GET", f"checkpoints/{named['checkpoint']}") == (404, "not_found")


async def test_members_see_a_thread_and_not_its_execution(office: Office) -> None:
    made = await office.executed("say one")
    for who, access in (("cleo", "read"), ("dan", "write")):
        member = f"threads/{made['thread']}/members/{who}"
        assert (await office.ask(OWNER, "PUT", member, {"access": access}))[0] == 200
        assert (await office.ask(who, "GET", f"threads/{made['thread']}"))[0] == 200
        assert (await office.ask(who, "GET", f"runs/{made['run']}/checkpoints"))[0] == 200
        for path in (f"executions/{made['execution']}", f"executions/{made['execution']}/threads"):
            assert await office.code(who, "GET", path) == (404, "not_found")


async def test_a_run_is_replayed_for_whom_it_acts(office: Office) -> None:
    """Whoever else may write has an identity of their own, and sends with it."""
    made = await office.executed("say one")
    thread, replay = made["thread"], "runs/{}/replay"
    for who, access in (("cleo", "read"), ("dan", "write")):
        await office.ask(OWNER, "PUT", f"threads/{thread}/members/{who}", {"access": access})
    _, problem = await office.ask("cleo", "POST", replay.format(made["run"]))
    assert (problem["code"], problem["title"]) == ("forbidden", "Not allowed")
    _, problem = await office.ask("dan", "POST", replay.format(made["run"]))
    assert (problem["code"], problem["title"]) == ("forbidden", "The run acts for somebody else")

    _, sent = await office.ask("dan", "POST", f"threads/{thread}/messages", {"content": "say two"})
    await office.ended(sent["run"])
    assert await office.code(OWNER, "POST", replay.format(sent["run"])) == (403, "forbidden")
    for who, run, principal in (("dan", sent["run"], "dan"), ("root", made["run"], OWNER)):
        status, again = await office.ask(who, "POST", replay.format(run))
        assert status == 202, again
        await office.ended(again["run"])
        _, told = await office.ask(OWNER, "GET", f"runs/{again['run']}")
        assert (told["principal"], told["replay_of"]) == (principal, run)
    _, page = await office.ask(OWNER, "GET", f"threads/{thread}/facts?limit=100")
    replayed = [
        (each["data"]["origin"], each["data"]["by"])
        for each in page["items"]
        if each["kind"] == "run_replayed"
    ]
    assert replayed == [(sent["run"], "dan"), (made["run"], "root")]
