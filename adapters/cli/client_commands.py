"""chat, send, tail, stop: the commands that talk to an API replica."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from threadhold.adapters.cli.chat import Chat, agent_or_only
from threadhold.adapters.cli.failure import FAILED, OK
from threadhold.adapters.cli.lines import Lines, stdin_text
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.trace import trace_line
from threadhold.adapters.cli.view import ChatView
from threadhold.adapters.client import Client
from threadhold.adapters.settings import Settings
from threadhold.runner.records import Receipt, StopReceipt

Url = Annotated[str | None, typer.Option(help="The API; default THREADHOLD_URL or http://127.0.0.1:8000.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object per line on stdout, errors as JSON on stderr.")
]
Busy = Literal["steer", "reject", "queue", "interrupt"]


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

    _with_client(url, talk)


def send(
    words: Annotated[list[str], typer.Argument(metavar="[THREAD] TEXT", help="TEXT '-' reads stdin.")],
    agent: Annotated[str | None, typer.Option(help="Starts a thread with this agent.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The same key again is the same message, sent once.")
    ] = None,
    on_busy: Annotated[Busy | None, typer.Option(help="What it means to a thread that is busy.")] = None,
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
        return await _answer(client, terminal, receipt.thread, content) if wait else OK

    _with_client(url, deliver)


def _explain(terminal: Terminal, receipt: Receipt, *, wait: bool) -> None:
    """Say what became of the message; on stderr when stdout carries the answer."""
    text = f"{receipt.disposition}: thread {receipt.thread}" + (f", run {receipt.run}" if receipt.run else "")
    text += " (sent before)" if receipt.duplicate else ""
    (terminal.note if wait else terminal.line)(text)
    if receipt.no_worker:
        terminal.note("no worker has this agent now; the message is kept and waits for one")


async def _answer(client: Client, terminal: Terminal, thread: str, content: str) -> int:
    """Print the thread until it is idle, and return the exit code."""
    view = ChatView()
    view.expect(content)
    async with aclosing(client.watch(thread, until="idle")) as frames:
        async for watched in frames:
            terminal.record(watched.fields)
            pieces = view.feed(watched.frame)
            for piece in [] if terminal.as_json else pieces:
                terminal.piece(piece)
    return FAILED if view.failed else OK


def tail(
    thread: Annotated[str, typer.Argument(help="The thread.")],
    after: Annotated[
        str | None,
        typer.Option(help="A cursor, 'start' or 'head'; default the start of the current or last run."),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when the thread is idle or paused.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Print what happens on a thread, one line per frame."""
    terminal = Terminal(as_json=as_json)

    async def follow(client: Client) -> int:
        frames = client.watch(thread, after=after, until="idle" if until_idle else None)
        async with aclosing(frames):
            async for watched in frames:
                terminal.record(watched.fields)
                line = trace_line(watched.frame)
                if line is not None:
                    terminal.line(*line)
        return OK

    _with_client(url, follow)


def stop(
    thread: Annotated[str | None, typer.Argument(help="Whatever runs there now.")] = None,
    run: Annotated[str | None, typer.Option(help="This run, and never a later one.")] = None,
    wait: Annotated[float, typer.Option(min=0, max=60, help="Seconds to wait for the end.")] = 5.0,
    key: Annotated[str | None, typer.Option(help="The same key again stops nothing new.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Stop a run. Exits with 1 if it has not ended after --wait seconds; the stop is recorded anyway."""
    if (thread is None) == (run is None):
        raise typer.BadParameter("name either a THREAD or a --run")
    terminal = Terminal(as_json=as_json)

    async def halt(client: Client) -> int:
        receipt = await client.stop(run=run, thread=thread, key=key, wait=wait)
        terminal.record({"stop": asdict(receipt)})
        terminal.line(_stopped(receipt))
        return OK if receipt.settled or wait == 0 else FAILED

    _with_client(url, halt)


def _stopped(receipt: StopReceipt) -> str:
    if receipt.run is None:
        return f"nothing runs on thread {receipt.thread}"
    tools = "".join(f"\n  tool call {call}: {what.replace('_', ' ')}" for call, what in receipt.tools.items())
    if not receipt.settled:
        return f"run {receipt.run}: the stop is recorded, the run has not ended yet{tools}"
    return f"run {receipt.run}: {receipt.status or 'ended'}{tools}"


def _with_client(url: str | None, use: Callable[[Client], Coroutine[Any, Any, int]]) -> None:
    """Run a command with a client and exit with its code."""

    async def main() -> int:
        async with Client(url or Settings().url) as client:
            return await use(client)

    raise typer.Exit(asyncio.run(main()))
