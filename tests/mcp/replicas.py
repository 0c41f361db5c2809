"""Two replicas in this process that believe who one says one is, a worker, and MCP clients for them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import mcp.types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.agents import app
from tests.support.servers import TestServers
from tests.support.waiting import until
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.runner.machine import is_final
from threadhold.runner.records import Principal, Role, Run
from threadhold.runner.service import Runner

OWNER: Final = "ada"
NOBODY: Final = "nobody"
ROLES: dict[str, frozenset[Role]] = {"bob": frozenset({"user", "approver"})}
# Whose tokens are good no more.
withdrawn: Final = {NOBODY}
# The era that begins with a handshake, and the one in which every request stands alone.
ERAS: Final = ("legacy", "auto")
VERSIONS: Final = {"legacy": "2025-11-25", "auto": "2026-07-28"}


def principal(who: str) -> Principal:
    """Return who somebody is; mallory is of another workspace."""
    workspace = "elsewhere" if who == "mallory" else "home"
    return Principal(id=who, workspace=workspace, roles=ROLES.get(who, frozenset({"user"})))


def by_header(headers: Mapping[str, str]) -> Principal:
    """Return who a header says it is."""
    if headers.get("x-who") in withdrawn:
        raise Unauthenticated("say who you are", reason="unknown")
    return principal(headers.get("x-who", OWNER))


_servers: Final[dict[str, ApiServer]] = {}


@dataclass(frozen=True, slots=True)
class Replicas:
    """Two replicas' URLs, and a Runner to see what really happened."""

    a: str
    b: str
    runner: Runner
    environment: dict[str, str]

    @staticmethod
    def drain(url: str) -> None:
        """Let a replica begin to shut down."""
        _servers[url].should_exit = True

    async def run(self, id: str) -> Run:
        """Return a run as it is in the database."""
        return await self.runner.run(id, by=principal(OWNER))

    async def ended(self, id: str) -> Run:
        """Return a run when it has ended."""

        async def look() -> Run | None:
            run = await self.run(id)
            return run if is_final(run.status) else None

        found = await until(look, what=f"run {id} does not end")
        assert found is not None
        return found


@asynccontextmanager
async def replicas(servers: TestServers) -> AsyncIterator[Replicas]:
    """Start two replicas and a worker for the length of a block."""
    stack = await servers.new_stack()
    async with AsyncExitStack() as opened:
        urls: list[str] = []
        runner: Runner | None = None
        for _ in range(2):
            parts = await opened.enter_async_context(open_parts(stack.settings(grace=0)))
            runner = make_runner(app, parts)
            opened.push_async_callback(runner.aclose)
            urls.append(await opened.enter_async_context(replica(runner)))
        parts = await opened.enter_async_context(open_parts(stack.settings(grace=0)))
        await opened.enter_async_context(running_worker(app, parts, id=worker_id("w"), capacity=20))
        assert runner is not None
        yield Replicas(urls[0], urls[1], runner, stack.environment())
    await servers.take_back(stack)


@asynccontextmanager
async def replica(runner: Runner, **options: Any) -> AsyncIterator[str]:
    """Serve a Runner for the length of a block and yield the server's URL."""
    drain = asyncio.Event()
    api = create_api(runner, health=Health, drain=drain, authenticate=by_header, **options)
    server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
    serving = asyncio.create_task(server.serve())
    url = f"http://127.0.0.1:{server.port}"
    _servers[url] = server
    try:
        yield url
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def host(url: str, era: str, *, who: str = OWNER, **options: Any) -> AsyncIterator[Client]:
    """Connect the official client to a replica's `/mcp` as somebody."""
    async with httpx2.AsyncClient(headers={"x-who": who}, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era, **options) as client:
            yield client


async def call(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """Call a tool and return its values."""
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    values: dict[str, Any] = result.structured_content
    return values


async def code(client: Client, tool: str, **given: Any) -> str:
    """Call a tool that refuses and return the code of the error."""
    result = await client.call_tool(tool, given)
    assert result.is_error, result.structured_content
    told = (result.meta or {})["threadhold/error"]
    assert text(result).startswith(f"{told['code']}: ")
    return str(told["code"])


def text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def read(client: Client, uri: str) -> dict[str, Any]:
    """Read a resource, as it is now."""
    (content,) = (await client.read_resource(uri, cache_mode="bypass")).contents
    assert isinstance(content, types.TextResourceContents)
    values: dict[str, Any] = json.loads(content.text)
    return values
