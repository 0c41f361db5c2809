"""MCP over Streamable HTTP: one ASGI app at `/mcp`, which any replica answers.

Nothing is kept between requests. Clients of the handshake era get no session, so that every one of their requests
may go to another replica; what needs a channel back to them (forms, subscriptions) they cannot have here.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

import structlog
from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from threadhold.adapters.http.auth import Caller
from threadhold.adapters.http.doors import Doors, principal_of
from threadhold.adapters.http.errors import BODY_BYTES_MAX
from threadhold.adapters.mcp.local import RunnerDesk
from threadhold.runner.errors import Closed

log = structlog.get_logger(__name__)

PATH: Final = "/mcp"
GOODBYE_S: Final = 1.0
_CALLER: Final = "threadhold.caller"


class McpDoor:
    """Answers at `/mcp`. The library is loaded by the first request: most processes never need it.

    Args:
        doors: the Runner, who asks, and when this process shuts down: calls that wait then return, and new ones are
            refused.
    """

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._drain = doors.drain
        self._opening: asyncio.Future[ASGIApp] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._calls = 0
        self._quiet = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Closed: this process shuts down.
            What tells who asks raises.
        """
        connection = HTTPConnection(scope)
        by = await principal_of(connection)
        caller = Caller(self._doors.authenticate, connection.headers, by)
        app = await self._opened()
        if self._drain.is_set():
            raise Closed
        self._calls += 1
        try:
            await app({**scope, _CALLER: caller}, receive, send)
        finally:
            self._calls -= 1
            if not self._calls:
                self._quiet.set()

    async def _opened(self) -> ASGIApp:
        """Return the library's app, started once."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._opening), name="mcp")
        return await asyncio.shield(self._opening)

    async def _serve(self, opening: asyncio.Future[ASGIApp]) -> None:
        """Keep the library's tasks alive until this process drains and the calls in flight have been answered."""
        try:
            # In a thread, because it takes about a second, in which this process has other things to do.
            manager = await asyncio.to_thread(self._made)
            async with manager.run():
                opening.set_result(manager.asgi_app)
                await self._drain.wait()
                await self._become_quiet()
        except Exception as error:
            log.error("mcp_failed", exc_info=error)
            # The next request tries anew.
            self._opening = None
            if not opening.done():
                opening.set_exception(error)

    async def _become_quiet(self) -> None:
        """Give the calls in flight a moment to be answered."""
        if not self._calls:
            return
        self._quiet.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._quiet.wait()

    def _made(self) -> Any:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from threadhold.adapters.mcp.server import Handlers, make_server

        handlers = Handlers(self._desk, self._drain)
        # Who may call from which page is decided before, for all doors alike.
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        return StreamableHTTPSessionManager(
            app=make_server(handlers),
            stateless=True,
            security_settings=security,
            max_request_body_size=BODY_BYTES_MAX,
        )

    def _desk(self, ctx: Any) -> RunnerDesk:
        return RunnerDesk(self._doors, ctx.request.scope[_CALLER])


def mcp_route(doors: Doors) -> Route:
    """Return the route of the door. There is no stream to GET and no session to DELETE."""
    return Route(PATH, endpoint=McpDoor(doors), methods=["POST"])
