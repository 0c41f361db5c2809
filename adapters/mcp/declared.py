"""What a host declares with a request, and what it may therefore be given."""

from collections.abc import Callable
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from threadhold.adapters.mcp.desk import Desk

TASKS: Final = "io.modelcontextprotocol/tasks"

Context = ServerRequestContext[Any, Any]
OpenDesk = Callable[[Context], Desk]


def is_modern(ctx: Context) -> bool:
    """Tell whether a request is of the era in which each stands alone."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def can_ask(ctx: Context) -> bool:
    """Tell whether the person at the other end can be asked by a form."""
    capabilities = ctx.session.client_capabilities
    asks = capabilities.elicitation if capabilities else None
    # A client of the older era shows no capabilities with a request over HTTP, where it could not be asked.
    return asks is not None and (asks.form is not None or asks.url is None)


def takes_tasks(ctx: Context) -> bool:
    """Tell whether the result may be a task; the older era has no such results."""
    capabilities = ctx.session.client_capabilities
    return is_modern(ctx) and capabilities is not None and TASKS in (capabilities.extensions or {})
