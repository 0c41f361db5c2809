"""MCP over stdio, for hosts that start their servers as processes: the same tools, on a replica over the network.

It is a client of that replica, not a Runner of its own: the person's machine needs no way into the database, the
replica decides who may do what, and no code of the app can write into the protocol on stdout.
"""

import asyncio
from contextlib import aclosing
from typing import Any, Final

import mcp.types as types
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from threadhold.adapters.client import Client
from threadhold.adapters.mcp import resources
from threadhold.adapters.mcp.declared import Context
from threadhold.adapters.mcp.remote import ClientDesk
from threadhold.adapters.mcp.server import Handlers, make_server
from threadhold.adapters.mcp.waiting import cancelled

SUBSCRIPTIONS_MAX: Final = 100


class Subscriptions:
    """Resources that a client of the handshake era follows; each has a task that tells of its changes."""

    def __init__(self, desk: ClientDesk) -> None:
        self._desk = desk
        self._telling: dict[str, asyncio.Task[None]] = {}

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Follow a resource."""
        topics = await resources.topics(self._desk, [params.uri])
        # Only now, and without a pause: others are served in between.
        earlier = self._telling.get(params.uri)
        if earlier is None and len(self._telling) >= SUBSCRIPTIONS_MAX:
            text = f"at most {SUBSCRIPTIONS_MAX} subscriptions; end one first"
            raise MCPError(types.INVALID_PARAMS, text, {"code": "overloaded"})
        self._telling[params.uri] = asyncio.create_task(self._tell(ctx, topics))
        if earlier is not None:
            await cancelled(earlier)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Follow it no more."""
        telling = self._telling.pop(params.uri, None)
        if telling is not None:
            await cancelled(telling)
        return types.EmptyResult()

    async def _tell(self, ctx: Context, topics: list[resources.Topic]) -> None:
        try:
            async with aclosing(resources.changes(self._desk, topics)) as changes:
                async for uri in changes:
                    await ctx.session.send_resource_updated(uri)
        except MCPError:
            # There is no message in which a server could say so; reading the resource will.
            return

    async def aclose(self) -> None:
        """End them all."""
        await cancelled(*self._telling.values())


async def serve_stdio(client: Client) -> None:
    """Serve on stdin and stdout until stdin ends.

    Args:
        client: talks to the replica; closing it is the caller's business.
    """
    desk, drain = ClientDesk(client), asyncio.Event()
    subscriptions = Subscriptions(desk)
    more: dict[str, Any] = {
        "on_subscribe_resource": subscriptions.subscribe,
        "on_unsubscribe_resource": subscriptions.unsubscribe,
    }
    server = make_server(Handlers(lambda ctx: desk, drain), **more)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        drain.set()
        await subscriptions.aclose()
