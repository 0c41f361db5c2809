"""spend: what was spent, and by whom."""

from dataclasses import asdict
from typing import Annotated

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.connected import AsJson, Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(spend)


def spend(
    principal: Annotated[
        str | None, typer.Option(help="Only what this one has spent; others than yourself are for operators.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="The newest and largest so many.")] = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List what agents with a budget have spent for you; to operators, for the workspace and each principal."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.spend(principal=principal, limit=limit)
        for each in found:
            terminal.record({"spend": asdict(each)})
        if found:
            terminal.table(tables.SPEND_COLUMNS, [tables.spend_row(each) for each in found])
        else:
            terminal.line("nothing was spent under a budget")
        if len(found) == limit:
            terminal.note(f"these are the newest and largest {limit}; --principal or --limit show others")
        return OK

    with_client(url, look)
