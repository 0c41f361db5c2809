"""threads, show, facts, history, members: what is on record."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final, get_args

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.board import Seen, run_records
from threadhold.adapters.cli.connected import AsJson, AtMost, Limit, Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.listing import show_page
from threadhold.adapters.cli.looking import reasons, utc_now
from threadhold.adapters.cli.outline import (
    checkpoint_lines,
    execution_lines,
    heading,
    run_lines,
    thread_lines,
)
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.trace import fact_line
from threadhold.adapters.cli.transcript import transcript
from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.reviews import all_of
from threadhold.runner.records import Access, Member, Request

LAST_FACTS: Final = 10
_NOT_FOUND: Final = 404

TheThread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (threads, show, facts, history, members):
        app.command()(command)


def threads(
    before: Annotated[str | None, typer.Option(help="Go on below this thread.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the threads that you may see, by id, the highest first."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.threads(before=before, limit=limit)
        now = utc_now()
        show_page(
            terminal,
            found,
            kind="thread",
            columns=tables.THREAD_COLUMNS,
            row=lambda each: tables.thread_row(each, now),
            before=before,
            limit=limit,
        )
        return OK

    with_client(url, look)


def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="An execution, a thread, a run or a checkpoint.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show an execution, a thread, a run or a checkpoint, with what belongs to it.

    Of an execution: its threads with their runs; of a thread: its members, newest run and last facts; of a run: all it
    did and waits for.
    """
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        for shown in [_show_checkpoint] if _is_checkpoint(id) else [_show_thread, _show_run, _show_execution]:
            try:
                await shown(client, terminal, id)
            except ClientError as error:
                if error.status != _NOT_FOUND:
                    raise
            else:
                return OK
        text = f"there is no execution, thread, run or checkpoint {id!r} that you may see"
        raise ClientError("not_found", text, status=_NOT_FOUND)

    with_client(url, look)


def _is_checkpoint(id: str) -> bool:
    """Tell whether an id is one of a checkpoint: the run's, a dot, and a number."""
    return "." in id


async def _show_thread(client: Client, terminal: Terminal, id: str) -> None:
    thread = await client.thread(id)
    now = utc_now()
    terminal.record({"thread": asdict(thread)})
    for line in thread_lines(thread, now):
        terminal.line(*line)
    if people := await client.members(thread.id):
        terminal.line(*heading("members"))
        _list_members(terminal, people, now)
    if runs := await client.runs(thread=thread.id, limit=1):
        seen = Seen(runs=runs, known=await reasons(client, runs), at=now)
        for record in run_records(seen):
            terminal.record(record)
        terminal.line(*heading("newest run"))
        terminal.table(tables.RUN_COLUMNS, [tables.run_row(run, seen.known.get(run.id), now) for run in runs])
    terminal.line(*heading("last facts"))
    await _print_facts(client, terminal, thread.id, after=max(0, thread.seq - LAST_FACTS), most=LAST_FACTS)


async def _show_run(client: Client, terminal: Terminal, id: str) -> None:
    # In this order each has all that the one before belongs to, also while the run goes on.
    calls = [call async for call in all_of(lambda after, limit: client.calls(id, after=after, limit=limit))]
    steps = [step async for step in all_of(lambda after, limit: client.steps(id, after=after, limit=limit))]
    why = await client.why(id)
    now = utc_now()
    asked = [request for request in why.requests if request.status == "open"]
    for record in run_records(Seen(runs=[why.run], known={why.run.id: why}, at=now)):
        terminal.record(record)
    for name, items in (("attempt", why.attempts), ("step", steps), ("call", calls), ("request", asked)):
        for item in items:
            terminal.record({name: asdict(item)})
    for line in run_lines(why, steps, calls, now):
        terminal.line(*line)
    _list_requests(terminal, asked, now)


async def _show_execution(client: Client, terminal: Terminal, id: str) -> None:
    tree = await client.execution(id)
    terminal.record({"execution": asdict(tree.execution), "cut_short": tree.cut_short})
    for each in tree.threads:
        terminal.record({"thread": asdict(each.thread)})
        for below in each.runs:
            terminal.record({"run": asdict(below.run)})
            asked = [request for request in below.requests if request.status == "open"]
            for name, items in (("attempt", below.attempts), ("request", asked)):
                for item in items:
                    terminal.record({name: asdict(item)})
    for line in execution_lines(tree, utc_now()):
        terminal.line(*line)
    if tree.cut_short:
        terminal.note("there is more than this; `show` a thread or a run of it")


async def _show_checkpoint(client: Client, terminal: Terminal, id: str) -> None:
    checkpoint = await client.checkpoint(id)
    terminal.record({"checkpoint": asdict(checkpoint)})
    for line in checkpoint_lines(checkpoint, utc_now()):
        terminal.line(*line)


def _list_requests(terminal: Terminal, asked: list[Request], now: datetime) -> None:
    if asked:
        terminal.line(*heading("open requests"))
        terminal.table(tables.REQUEST_COLUMNS, [tables.request_row(each, now) for each in asked])


def facts(
    thread: TheThread,
    after: Annotated[int, typer.Option(metavar="SEQ", min=0, help="Those behind this one.")] = 0,
    limit: AtMost = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Print a thread's log, one line per fact."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        await _print_facts(client, terminal, thread, after=after, most=limit)
        return OK

    with_client(url, look)


async def _print_facts(
    client: Client, terminal: Terminal, thread: str, *, after: int, most: int | None
) -> None:
    pages = all_of(
        lambda behind, limit: client.facts(thread, after=behind, limit=limit), after=after, most=most
    )
    async for fact in pages:
        terminal.record({"fact": asdict(fact)})
        terminal.line(fact_line(fact))


def history(
    id: Annotated[str, typer.Argument(metavar="THREAD|CHECKPOINT", help="The thread, or a position in it.")],
    limit: AtMost = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Print what the model of a thread was shown and has said, to the last, or as it stood at a checkpoint."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        page = client.history_at if _is_checkpoint(id) else client.history
        async for message in all_of(lambda behind, size: page(id, after=behind, limit=size), most=limit):
            terminal.record({"message": message})
            for piece in () if as_json else transcript(message):
                terminal.piece(piece)
        return OK

    with_client(url, look)


def members(
    thread: TheThread,
    add: Annotated[
        str | None, typer.Option(metavar="ID=read|write", help="Let somebody in, or change what they may do.")
    ] = None,
    remove: Annotated[str | None, typer.Option(metavar="ID", help="Let somebody out.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List who may see a thread beside its owner, or let somebody in or out."""
    if add is not None and remove is not None:
        raise typer.BadParameter("give either --add or --remove")
    let_in = None if add is None else _membership(add)
    terminal = Terminal(as_json=as_json)

    async def act(client: Client) -> int:
        if let_in is not None:
            _list_members(terminal, [await client.set_member(thread, *let_in)], utc_now())
        elif remove is not None:
            await client.remove_member(thread, remove)
            terminal.record({"removed": remove})
            terminal.line(f"{remove} is no member")
        elif people := await client.members(thread):
            _list_members(terminal, people, utc_now())
        else:
            terminal.line("no members")
        return OK

    with_client(url, act)


def _membership(text: str) -> tuple[str, Access]:
    """Return who is let in, whose id may have an equals sign itself, and to what."""
    who, _, access = text.rpartition("=")
    for known in get_args(Access):
        if access == known and who:
            return who, known
    raise typer.BadParameter("say who and what: ID=read or ID=write", param_hint="--add")


def _list_members(terminal: Terminal, people: list[Member], now: datetime) -> None:
    for member in people:
        terminal.record({"member": asdict(member)})
    terminal.table(tables.MEMBER_COLUMNS, [tables.member_row(member, now) for member in people])
