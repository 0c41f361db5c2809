"""The MCP server: which handler answers what, for every transport and both eras of the protocol."""

import asyncio
from contextlib import suppress
from typing import Any, Final

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from threadhold import __version__
from threadhold.adapters.mcp import resources
from threadhold.adapters.mcp.call import Call, failure
from threadhold.adapters.mcp.declared import TASKS, Context, OpenDesk
from threadhold.adapters.mcp.listening import Listening
from threadhold.adapters.mcp.task_methods import TaskMethods, TaskParams, UpdateParams
from threadhold.adapters.mcp.tools import TOOLS, ToolResult
from threadhold.adapters.mcp.waiting import cancelled

LISTENERS_MAX: Final = 1024
INSTRUCTIONS: Final = """\
Talk to agents that run elsewhere, durably. `send` starts or goes on with a conversation (a thread); each piece of work
is a run. A run goes on whether or not you wait: a result with status `running` names the thread and a cursor to
`watch` from. A `paused` run waits for an `answer`. Only `stop` stops a run."""


class Handlers:
    """Answers requests.

    Args:
        open_desk: returns the desk of whoever sent a request.
        drain: set when this process shuts down: waits and subscriptions then end.
    """

    def __init__(self, open_desk: OpenDesk, drain: asyncio.Event) -> None:
        self._open_desk = open_desk
        self._drain = drain
        self._listeners = 0
        self.tasks = TaskMethods(open_desk)

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Describe the tools, and whom messages may be sent to."""
        agents: list[str] = []
        with suppress(Exception):
            # Without the names the tools are still the same.
            agents = list(await self._open_desk(ctx).agents())
        return types.ListToolsResult(tools=[tool.described(name, agents) for name, tool in TOOLS.items()])

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> ToolResult:
        """Call a tool; what goes wrong in it is told as its result, for the model to read."""
        tool = TOOLS.get(params.name)
        if tool is None:
            known = ", ".join(TOOLS)
            text = f"there is no tool {params.name[:80]!r}; there are {known}"
            raise MCPError(types.INVALID_PARAMS, text, {"code": "unknown_tool"})
        try:
            given = tool.given.model_validate(params.arguments or {})
            call = Call(desk=self._open_desk(ctx), drain=self._drain, ctx=ctx, params=params)
            return await tool.call(call, given)
        except MCPError:
            raise
        except Exception as error:
            return failure(error)

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List threads, a page at a time."""
        cursor = params.cursor if params else None
        try:
            return await resources.listed(self._open_desk(ctx), cursor)
        except Exception as error:
            raise resources.refused(error, "resources/list") from error

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """List what resources there can be."""
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return a thread or a run."""
        return await resources.read(self._open_desk(ctx), params.uri)

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell of changes of resources until the client goes or this process drains."""
        if self._listeners >= LISTENERS_MAX:
            raise MCPError(types.INTERNAL_ERROR, "too many subscriptions here", {"code": "overloaded"})
        self._listeners += 1
        try:
            return await self._listen(ctx, params.notifications)
        finally:
            self._listeners -= 1

    async def _listen(self, ctx: Context, asked: types.SubscriptionFilter) -> types.SubscriptionsListenResult:
        listening = Listening(ctx, self._open_desk(ctx), asked)
        topics = await listening.topics()
        await listening.acknowledge()
        telling = asyncio.create_task(listening.tell(topics))
        draining = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait({telling, draining}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            await cancelled(telling, draining)
        return types.SubscriptionsListenResult(meta=listening.meta)


def make_server(handlers: Handlers, **more: Any) -> Server[Any]:
    """Return a server of these handlers; `more` are those that only some transports can have."""
    server: Server[Any] = Server(
        "threadhold",
        version=__version__,
        title="threadhold",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=_input_schema,
        on_list_tools=handlers.list_tools,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscriptions_listen=handlers.listen,
        **more,
    )
    # Not by the constructor, whose types know no results of extensions.
    server.add_request_handler("tools/call", types.CallToolRequestParams, handlers.call_tool)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, handlers.tasks.get)
    server.add_request_handler("tasks/update", UpdateParams, handlers.tasks.update)
    server.add_request_handler("tasks/cancel", TaskParams, handlers.tasks.cancel)
    return server


def _input_schema(name: str) -> dict[str, Any] | None:
    tool = TOOLS.get(name)
    return tool.given.model_json_schema() if tool else None
