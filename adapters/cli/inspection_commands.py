"""threads, show, facts, history, members: what is on record."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final, get_args

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.board import Seen, run_records
from threadhold.adapters.cli.connected import AsJson, Limit, Url, with_client
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.looking import reasons, utc_now
from threadhold.adapters.cli.outline import heading, run_lines, thread_lines
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.trace import fact_line
from threadhold.adapters.cli.transcript import transcript
from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.reviews import all_of
from threadhold.runner.records import Access, Member, Request, Thread

LAST_FACTS: Final = 10
_NOT_FOUND: Final = 404

TheThread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; without it, all.")]


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
        for thread in found:
            terminal.record({"thread": asdict(thread)})
        if found:
            now = utc_now()
            terminal.table(tables.THREAD_COLUMNS, [tables.thread_row(each, now) for each in found])
        else:
            terminal.line("no threads" if before is None else "no more threads")
        if len(found) == limit:
            terminal.note(f"to go on: {program()} threads --before {found[-1].id} --limit {limit}")
        return OK

    with_client(url, look)


def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="A thread or a run.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show a thread with its members, its newest run and its last facts, or a run with all it did and waits for."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        try:
            thread = await client.thread(id)
        except ClientError as error:
            if error.status != _NOT_FOUND:
                raise
            await _show_run(client, terminal, id)
        else:
            await _show_thread(client, terminal, thread)
        return OK

    with_client(url, look)


async def _show_thread(client: Client, terminal: Terminal, thread: Thread) -> None:
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
    try:
        # In this order each has all that the one before belongs to, also while the run goes on.
        calls = [
            call async for call in all_of(lambda after, limit: client.calls(id, after=after, limit=limit))
        ]
        steps = [
            step async for step in all_of(lambda after, limit: client.steps(id, after=after, limit=limit))
        ]
        why = await client.why(id)
    except ClientError as error:
        if error.status != _NOT_FOUND:
            raise
        text = f"there is no thread and no run {id!r} that you may see"
        raise ClientError(error.code, text, status=error.status) from None
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


def history(thread: TheThread, limit: AtMost = None, as_json: AsJson = False, url: Url = None) -> None:
    """Print what the model of a thread was shown and has said."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        pages = all_of(lambda behind, size: client.history(thread, after=behind, limit=size), most=limit)
        async for message in pages:
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
