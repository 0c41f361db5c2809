"""The floor of the doors' calls: the same server, framework and libraries, and handlers that do the least.

Usage: python -m benchmarks.bare_calls

Prints the URL. Each handler decodes what it is asked, runs the very statements that ours runs, by a bare pool of as
many connections, and encodes as much of an answer. Nobody is asked who they are, and nobody is told over Redis.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg
import mcp.types as types
from fastapi import FastAPI, WebSocket
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel
from starlette.routing import Route
from starlette.websockets import WebSocketDisconnect

from benchmarks.stack import BY
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.mcp import schemas
from threadhold.adapters.processes import run
from threadhold.adapters.settings import Settings
from threadhold.runner.operating import REQUESTS_MAX
from threadhold.runner.records import INBOX_MAX, Receipt, Run
from threadhold.storage.ids import new_id
from threadhold.storage.sql import statements

ROLES: Final = sorted(BY.roles)
GIVEN: Final[dict[str, type[BaseModel]]] = {
    "get_run": schemas.GetRun,
    "list_threads": schemas.ListThreads,
}
TOLD: Final[dict[str, type[BaseModel]]] = {"get_run": schemas.RunInfo, "list_threads": schemas.ThreadList}


class NewMessage(BaseModel):
    """The body of a send."""

    content: str
    on_busy: str = "steer"


class Store:
    """The statements, by a bare pool."""

    def __init__(self, pool: Any, schema: str) -> None:
        self._pool = pool
        self._statements = statements(schema)

    async def rows(self, name: str, *args: Any) -> list[Any]:
        """Run a statement."""
        return list(await self._pool.fetch(self._statements[name], *args))

    async def send(self, thread: str, given: NewMessage) -> dict[str, Any]:
        """Accept a message."""
        id = new_id()
        digest = hashlib.sha256(given.content.encode()).digest()
        key = (BY.workspace, BY.id, ROLES, UUID(thread), None, str(id), digest)
        [row] = await self.rows("send", *key, given.content, id, new_id(), given.on_busy, INBOX_MAX)
        assert row["outcome"] == "ok", row
        return {
            "thread": thread,
            "disposition": row["disposition"],
            "message": str(row["message"]),
            "run": row["run"] and str(row["run"]),
            "seq": row["seq"],
            "duplicate": row["duplicate"],
            "no_worker": not row["has_worker"],
        }

    async def run(self, id: str) -> dict[str, Any]:
        """Return a run."""
        [row] = await self.rows("get_run", UUID(id), BY.workspace, BY.id, ROLES)
        names = ("agent", "principal", "status", "reason", "error", "attempt", "first_seq", "stop_requested")
        times = ("created_at", "started_at", "ended_at")
        found = {name: row[name] for name in (*names, *times)}
        return {"id": str(row["id"]), "thread": str(row["thread_id"]), **found}

    async def why(self, id: str) -> dict[str, Any]:
        """Return a run as the tool tells of it."""
        found, key = await self.run(id), UUID(id)
        thread = UUID(found["thread"])
        asked = (BY.workspace, BY.id, ROLES, None, thread, None, REQUESTS_MAX)
        answers = await asyncio.gather(
            self.rows("attempts", key),
            self.rows("tools_of_run", key),
            self.rows("explain", key),
            self.rows("list_requests", *asked),
        )
        more = {
            "attempts": len(answers[0]),
            "tools": {},
            "requests": [],
            "has_worker": answers[2][0]["has_worker"],
        }
        fields = {name: found[name] for name in schemas.RunInfo.model_fields if name in found}
        times = {name: found[name] and found[name].isoformat() for name in fields if name.endswith("_at")}
        return {**fields, **times, **more, "run": id, "uri": f"threadhold://runs/{id}"}

    async def threads(self, limit: int) -> list[dict[str, Any]]:
        """Return threads as the tool tells of them."""
        rows = await self.rows("list_threads", BY.workspace, BY.id, ROLES, None, limit)
        names = ("agent", "title", "state", "status", "owner")
        return [
            {name: row[name] for name in names}
            | {
                "thread": str(row["id"]),
                "current_run": row["current_run"] and str(row["current_run"]),
                "updated_at": row["updated_at"].isoformat(),
                "uri": f"threadhold://threads/{row['id']}",
            }
            for row in rows
        ]


def web(store: Store, mcp: Any) -> FastAPI:
    """Return the app with REST, WebSocket and MCP."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/threads/{thread}/messages", status_code=202, response_model=Receipt)
    async def send(thread: str, body: NewMessage) -> Any:
        return await store.send(thread, body)

    @app.get("/v1/runs/{run}", response_model=Run)
    async def get_run(run: str) -> Any:
        return await store.run(run)

    @app.websocket("/v1/ws")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        try:
            while True:
                asked = json.loads(await socket.receive_text())
                result = {} if asked["op"] == "ping" else await sent(asked)
                told = {"op": "result", "id": asked["id"], "ok": True, "result": result}
                await socket.send_text(json.dumps(told, separators=(",", ":")))
        except WebSocketDisconnect:
            return

    async def sent(asked: dict[str, Any]) -> dict[str, Any]:
        return await store.send(asked["thread"], NewMessage(content=asked["content"]))

    app.router.routes.append(Route("/mcp", endpoint=mcp, methods=["POST"]))
    return app


def tools(store: Store) -> Server[Any]:
    """Return an MCP server with two tools that tell what ours tell."""

    # Made once: the library looks at a tool's schema before each call.
    inputs = {name: given.model_json_schema() for name, given in GIVEN.items()}
    outputs = {name: told.model_json_schema() for name, told in TOLD.items()}

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        described = [
            types.Tool(name=name, input_schema=inputs[name], output_schema=outputs[name]) for name in GIVEN
        ]
        return types.ListToolsResult(tools=described)

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = GIVEN[params.name].model_validate(params.arguments or {})
        if isinstance(given, schemas.GetRun):
            values = await store.why(given.run)
        else:
            assert isinstance(given, schemas.ListThreads)
            values = {"threads": await store.threads(given.limit)}
        text = types.TextContent(type="text", text=json.dumps(values))
        return types.CallToolResult(content=[text], structured_content=values)

    return Server("bare", get_tool_input_schema=inputs.get, on_list_tools=list_tools, on_call_tool=call_tool)


async def _nothing_to_reset(_: Any) -> None:
    """Spare a round trip per statement, as ours does."""


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[FastAPI]:
    """Open the pool and the library's tasks."""
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    size = settings.pool_size
    async with asyncpg.create_pool(
        settings.database_url, min_size=size, max_size=size, reset=_nothing_to_reset
    ) as pool:
        store = Store(pool, settings.db_schema)
        manager = StreamableHTTPSessionManager(app=tools(store), stateless=True, security_settings=security)
        async with manager.run():
            yield web(store, manager.asgi_app)


async def main() -> None:
    """Serve until told to end."""
    async with opened(Settings()) as app:
        server = ApiServer(app, listening=listen("127.0.0.1", 0), drain=asyncio.Event(), own_signals=True)
        print(json.dumps({"event": "api_ready", "url": f"http://127.0.0.1:{server.port}"}), flush=True)
        await server.serve()


if __name__ == "__main__":
    run(main())
