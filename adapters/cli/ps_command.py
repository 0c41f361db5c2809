"""ps: the runs in progress, once or as a table that lives."""

from typing import Annotated

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.board import Board, Seen, run_records
from threadhold.adapters.cli.connected import AsJson, Limit, Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.looking import Wanted, look, utc_now
from threadhold.adapters.cli.looking import watch as watch_runs
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client
from threadhold.runner.machine import RunStatus
from threadhold.runner.operating import ACTIVE


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ps)


def ps(
    all_runs: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    status: Annotated[list[RunStatus] | None, typer.Option(help="Only these; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only the runs of this agent.")] = None,
    principal: Annotated[str | None, typer.Option(help="Only the runs for this principal.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the runs in progress: with which worker, or what they wait for."""
    if all_runs and status:
        raise typer.BadParameter("give either --all or --status")
    chosen = () if all_runs else tuple(status or ACTIVE)
    wanted = Wanted(status=chosen, agent=agent, principal=principal, limit=limit)
    terminal = Terminal(as_json=as_json)

    async def once(client: Client) -> int:
        _print(terminal, await look(client, wanted), wanted)
        return OK

    async def live(client: Client) -> int:
        with terminal.live(tables.RUN_COLUMNS) as show:

            def shown(board: Board) -> None:
                for record in board.records() if as_json else ():
                    terminal.record(record)
                show(board.rows(), board.caption, board.style)

            await watch_runs(lambda: look(client, wanted), shown, limit=limit)

    with_client(url, live if watch else once)


def _print(terminal: Terminal, seen: Seen, wanted: Wanted) -> None:
    for record in run_records(seen):
        terminal.record(record)
    if seen.runs:
        now = utc_now()
        terminal.table(
            tables.RUN_COLUMNS, [tables.run_row(run, seen.known.get(run.id), now) for run in seen.runs]
        )
    else:
        filtered = wanted.status != ACTIVE or wanted.agent is not None or wanted.principal is not None
        terminal.line("no such runs" if filtered else "nothing runs")
