"""The command that a desktop host starts."""

import typer

from threadhold.adapters.cli.connected import Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.client import Client
from threadhold.adapters.logs import configure_logs


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(mcp)


def mcp(url: Url = None) -> None:
    """Serve MCP on stdin and stdout, for hosts that start their servers; the work is done by the API at --url."""
    configure_logs()

    async def serve(client: Client) -> int:
        from threadhold.adapters.mcp.stdio import serve_stdio

        await serve_stdio(client)
        return OK

    with_client(url, serve)
