"""chat, send, tail, stop: the commands that talk to an API replica."""

import os
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final

import typer

from threadhold.adapters.cli.chat import Chat, agent_or_only
from threadhold.adapters.cli.connected import AsJson, Url, with_client
from threadhold.adapters.cli.failure import FAILED, OK
from threadhold.adapters.cli.following import follow
from threadhold.adapters.cli.lines import Lines, stdin_text
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.trace import trace_line
from threadhold.adapters.client import Client
from threadhold.runner.content import checked_kinds
from threadhold.runner.errors import InvalidInput
from threadhold.runner.records import OnBusy, Receipt, StopReceipt, Until, WatchKind

STOP_WAIT_S: Final = 5.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(chat)
    app.command()(send)
    app.command()(tail)
    app.command()(stop)


def chat(
    agent: Annotated[
        str | None, typer.Argument(help="Whom to talk to; may be left out if there is only one.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Go on with this thread.")] = None,
    url: Url = None,
) -> None:
    """Talk to an agent. With piped input, each line is a message and the next waits for the answer."""
    terminal = Terminal()

    async def talk(client: Client) -> int:
        name = None if thread is not None else await agent_or_only(client, agent)
        conversation = Chat(client, terminal, Lines(0), agent=name or agent, thread=thread)
        return await conversation.run(interactive=os.isatty(0))

    with_client(url, talk)


def send(
    words: Annotated[list[str], typer.Argument(metavar="[THREAD] TEXT", help="TEXT '-' reads stdin.")],
    agent: Annotated[str | None, typer.Option(help="Starts a thread with this agent.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The same key again is the same message, sent once.")
    ] = None,
    on_busy: Annotated[OnBusy | None, typer.Option(help="What it means to a thread that is busy.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer and print it.")] = True,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Send a message, and print the answer."""
    if len(words) > 2:
        raise typer.BadParameter("give one TEXT, or a THREAD and a TEXT; quote a text that has spaces")
    thread, text = (words[0], words[1]) if len(words) == 2 else (None, words[0])
    content = stdin_text() if text == "-" else text
    terminal = Terminal(as_json=as_json)

    async def deliver(client: Client) -> int:
        whom = agent if thread is not None else await agent_or_only(client, agent)
        receipt = await client.send(thread, content, agent=whom, key=key, on_busy=on_busy)
        terminal.record({"receipt": asdict(receipt)})
        _explain(terminal, receipt, wait=wait)
        return await _answer(client, terminal, receipt, content) if wait else OK

    with_client(url, deliver)


def _explain(terminal: Terminal, receipt: Receipt, *, wait: bool) -> None:
    """Say what became of the message; on stderr when stdout carries the answer."""
    text = f"{receipt.disposition}: thread {receipt.thread}" + (f", run {receipt.run}" if receipt.run else "")
    text += " (sent before)" if receipt.duplicate else ""
    (terminal.note if wait else terminal.line)(text)
    if receipt.no_worker:
        terminal.note("no worker has this agent now; the message is kept and waits for one")


async def _answer(client: Client, terminal: Terminal, receipt: Receipt, content: str) -> int:
    """Print the thread from the message on."""
    return await follow(
        client,
        terminal,
        receipt.thread,
        seq=receipt.seq,
        kept="the message is kept",
        said=content,
        in_progress=receipt.disposition in ("steered", "queued"),
    )


def tail(
    thread: Annotated[str, typer.Argument(help="The thread.")],
    after: Annotated[
        str | None,
        typer.Option(help="A cursor, 'start' or 'head'; default the start of the current or last run."),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when the thread is idle or paused.")
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="fact|event|draft",
            help="Only these frames, and what says where the watch stands; may be given again.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Print what happens on a thread, one line per frame."""
    kinds = _checked(kind)
    terminal = Terminal(as_json=as_json)

    async def follow(client: Client) -> int:
        until: Until | None = "idle" if until_idle else None
        frames = client.watch(thread, after=after, until=until, kinds=kinds)
        async with aclosing(frames):
            async for watched in frames:
                terminal.record(watched.fields)
                line = trace_line(watched.frame)
                if line is not None:
                    terminal.line(*line)
        return OK

    with_client(url, follow)


def _checked(kind: list[str] | None) -> frozenset[WatchKind] | None:
    try:
        return checked_kinds(kind or None)
    except InvalidInput as error:
        raise typer.BadParameter(error.message, param_hint="--kind") from None


def stop(
    thread: Annotated[str | None, typer.Argument(help="Whatever runs there now.")] = None,
    run: Annotated[str | None, typer.Option(help="This run, and never a later one.")] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="All runs in progress, at most 10,000, newest first; does not wait.")
    ] = False,
    agent: Annotated[str | None, typer.Option(help="All runs of this agent, as --all with its name.")] = None,
    principal: Annotated[
        str | None, typer.Option(help="All runs for this principal; somebody else is for operators to name.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(min=0, max=60, help="Seconds to wait for the end.", show_default=f"{STOP_WAIT_S:g}"),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The same key again stops nothing new.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Stop a run. Exits with 1 if it has not ended after --wait seconds; the stop is recorded anyway."""
    many = all_runs or agent is not None or principal is not None
    if [thread is not None, run is not None, many].count(True) != 1:
        raise typer.BadParameter("name either a THREAD, a --run, or many by --agent, --principal or --all")
    if many and (key is not None or wait is not None):
        raise typer.BadParameter("--key and --wait go with a THREAD or a --run")
    seconds = STOP_WAIT_S if wait is None else wait
    terminal = Terminal(as_json=as_json)

    async def halt(client: Client) -> int:
        receipt = await client.stop(run=run, thread=thread, key=key, wait=seconds)
        terminal.record({"stop": asdict(receipt)})
        terminal.line(_stopped(receipt))
        return OK if receipt.settled or seconds == 0 else FAILED

    async def halt_all(client: Client) -> int:
        receipts = await client.stop_all(agent=agent, principal=principal)
        for receipt in receipts:
            terminal.record({"stop": asdict(receipt)})
            terminal.line(_stopped(receipt))
        if not receipts:
            terminal.line("nothing runs")
        return OK

    with_client(url, halt_all if many else halt)


def _stopped(receipt: StopReceipt) -> str:
    if receipt.run is None:
        return f"nothing runs on thread {receipt.thread}"
    tools = "".join(f"\n  tool call {call}: {what.replace('_', ' ')}" for call, what in receipt.tools.items())
    if not receipt.settled:
        return f"run {receipt.run}: the stop is recorded, the run has not ended yet{tools}"
    return f"run {receipt.run}: {receipt.status or 'ended'}{tools}"
