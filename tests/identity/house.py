"""An API on real servers that asks for tokens, with a worker behind it, and the people who call."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.http.message_rules import check_done, check_told
from tests.identity.issuer import AUDIENCE, ISSUER, SECRET, secret_token
from tests.support.agents import app
from tests.support.servers import TestServers
from tests.support.waiting import until
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.auth import bearer
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.identity.signed import SignedTokens

RECHECK_S: Final = 0.2
PEOPLE: Final[dict[str, dict[str, Any]]] = {
    "owner": {"sub": "owner"},
    "writer": {"sub": "writer"},
    "reader": {"sub": "reader"},
    "stranger": {"sub": "stranger"},
    "operator": {"sub": "operator", "roles": ["operator"]},
    "approver": {"sub": "approver", "roles": ["approver"]},
    # Of the same name as the owner, and an operator, but elsewhere.
    "namesake": {"sub": "owner", "workspace": "elsewhere", "roles": ["operator", "approver"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A thread of the owner with a writer and a reader; `run` and `request` where it is paused."""

    thread: str
    message: str = ""
    run: str = ""
    request: str = ""


@dataclass
class House:
    """The API, and what one asks it as somebody."""

    client: httpx.AsyncClient
    port: int
    exits: AsyncExitStack
    sockets: dict[str, ClientConnection] = field(default_factory=dict)

    async def rest(self, who: str, method: str, path: str, body: Any = None) -> tuple[str, Any]:
        """Call as somebody; return the code of the problem, or "ok", and the body."""
        headers = {"authorization": f"Bearer {secret_token(**PEOPLE[who])}"}
        answer = await self.client.request(method, f"/v1/{path}", json=body, headers=headers)
        if answer.is_success:
            told = answer.headers.get("content-type") == "application/json"
            return "ok", answer.json() if told else answer.text
        return answer.json()["code"], answer.json()

    async def socket(self, who: str) -> ClientConnection:
        """Return somebody's socket, the same one each time."""
        if who not in self.sockets:
            headers = {"authorization": f"Bearer {secret_token(**PEOPLE[who])}"}
            url = f"ws://127.0.0.1:{self.port}/v1/ws"
            opening = connect(url, additional_headers=headers, proxy=None)
            self.sockets[who] = await self.exits.enter_async_context(opening)
        return self.sockets[who]

    async def ws(self, who: str, **op: Any) -> tuple[str, Any]:
        """Do one operation as somebody; return the code of its refusal, or "ok", and the answer."""
        socket = await self.socket(who)
        await socket.send(json.dumps({"id": 1, **op}))
        async with asyncio.timeout(10):
            while (told := json.loads(await socket.recv()))["op"] != "result":
                check_told(told)
        check_told(told)
        if told["ok"]:
            check_done({"id": 1, **op}, told)
        return ("ok", told["result"]) if told["ok"] else (told["error"]["code"], told["error"])

    async def quiet(self) -> Scene:
        """Make a thread in which nothing runs and nothing is asked."""
        _, made = await self.rest("owner", "POST", "threads", {"agent": "scripted"})
        await self._share(made["id"])
        return Scene(thread=made["id"])

    async def paused(self) -> Scene:
        """Make a thread that waits for an approval."""
        script = {"agent": "scripted", "content": 'call pay {"amount": 50}'}
        _, receipt = await self.rest("owner", "POST", "messages", script)
        await self._share(receipt["thread"])

        async def look() -> Any:
            _, page = await self.rest("owner", "GET", f"requests?thread={receipt['thread']}")
            return page["items"]

        asked = await until(look, what="no request was opened")
        return Scene(
            thread=receipt["thread"],
            message=receipt["message"],
            run=receipt["run"],
            request=asked[0]["id"],
        )

    async def _share(self, thread: str) -> None:
        for member, access in (("writer", "write"), ("reader", "read")):
            told, _ = await self.rest(
                "owner", "PUT", f"threads/{thread}/members/{member}", {"access": access}
            )
            assert told == "ok"


@asynccontextmanager
async def open_house(servers: TestServers) -> AsyncIterator[House]:
    """Open it for the length of a block."""
    stack = await servers.new_stack()
    tokens = SignedTokens(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)
    async with (
        open_parts(stack.settings(grace=0)) as parts,
        running_worker(app, parts, id=worker_id("w"), capacity=100),
    ):
        runner, drain = make_runner(app, parts), asyncio.Event()
        api = create_api(
            runner,
            health=parts.health,
            drain=drain,
            authenticate=bearer(tokens),
            limits=Limits(recheck_s=RECHECK_S),
        )
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        url = f"http://127.0.0.1:{server.port}"
        async with (
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client,
            AsyncExitStack() as exits,
        ):
            yield House(client, server.port, exits)
        server.should_exit = True
        await serving
        await runner.aclose()
    await servers.take_back(stack)
