"""execute, executions, checkpoints, replay: what somebody wants to be achieved, and going on from where a run was."""

from dataclasses import asdict
from typing import Annotated

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.connected import AsJson, AtMost, Limit, Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.following import follow
from threadhold.adapters.cli.lines import stdin_text
from threadhold.adapters.cli.listing import show_page
from threadhold.adapters.cli.looking import utc_now
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client
from threadhold.adapters.reviews import all_of
from threadhold.runner.checkpoints import Replay
from threadhold.runner.executions import ExecutionReceipt

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer and print it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (execute, executions, checkpoints, replay):
        app.command()(command)


def execute(
    agent: Annotated[str, typer.Argument(help="Who is to achieve it.")],
    mission: Annotated[str, typer.Argument(help="What; '-' reads stdin.")],
    key: Annotated[
        str | None, typer.Option(help="The same key again is the same execution, started once.")
    ] = None,
    wait: Wait = True,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Start an execution: a thread of its own, whose first message is the mission. Prints the answer."""
    content = stdin_text() if mission == "-" else mission
    terminal = Terminal(as_json=as_json)

    async def begin(client: Client) -> int:
        receipt = await client.execute(agent, content, key=key)
        terminal.record({"receipt": asdict(receipt)})
        text = f"started: execution {receipt.execution}, thread {receipt.thread}, run {receipt.run}"
        _explain(terminal, text, receipt, wait=wait)
        if not wait:
            return OK
        return await follow(
            client, terminal, receipt.thread, seq=receipt.seq, kept="the execution goes on", said=content
        )

    with_client(url, begin)


def _explain(terminal: Terminal, text: str, receipt: ExecutionReceipt | Replay, *, wait: bool) -> None:
    """Say what has begun; on stderr when stdout carries the answer."""
    text += " (started before)" if receipt.duplicate else ""
    (terminal.note if wait else terminal.line)(text)
    if receipt.no_worker:
        terminal.note("no worker has this agent now; the run waits for one")


def executions(
    before: Annotated[str | None, typer.Option(help="Go on below this execution.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the executions that you may see, by id, the highest first."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.executions(before=before, limit=limit)
        now = utc_now()
        show_page(
            terminal,
            found,
            kind="execution",
            columns=tables.EXECUTION_COLUMNS,
            row=lambda each: tables.execution_row(each, now),
            before=before,
            limit=limit,
            cut=True,
        )
        return OK

    with_client(url, look)


def checkpoints(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    limit: AtMost = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the positions that a run has reached in its thread's history, oldest first."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        pages = all_of(lambda after, size: client.checkpoints(run, after=after, limit=size), most=limit)
        found = [each async for each in pages]
        for each in found:
            terminal.record({"checkpoint": asdict(each)})
        if found:
            now = utc_now()
            terminal.table(tables.CHECKPOINT_COLUMNS, [tables.checkpoint_row(each, now) for each in found])
        else:
            terminal.line("no checkpoints")
        return OK

    with_client(url, look)


def replay(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run that has ended.")],
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="CHECKPOINT", help="Go on from there; default the run's beginning."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The same key again is the same replay, started once.")
    ] = None,
    wait: Wait = True,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Run an ended run again, as a new run on its thread; the old one stays as it is. Prints the answer."""
    terminal = Terminal(as_json=as_json)

    async def begin(client: Client) -> int:
        receipt = await client.replay(run, checkpoint=start, key=key)
        terminal.record({"replay": asdict(receipt)})
        text = f"started: run {receipt.run} on thread {receipt.thread}, from {receipt.checkpoint}"
        _explain(terminal, text, receipt, wait=wait)
        if not wait:
            return OK
        # Its first fact says that it is a replay, as the receipt has.
        return await follow(client, terminal, receipt.thread, seq=receipt.seq + 1, kept="the run goes on")

    with_client(url, begin)
