"""requests, answer, why, workers, drain: the commands of whoever is on call."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.connected import AsJson, Limit, Url, with_client
from threadhold.adapters.cli.deciding import arguments
from threadhold.adapters.cli.deciding import reply as reply_of
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.reasons import sentences
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client
from threadhold.runner.decisions import Decision
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Outcome

# Those of a request, and all of them together.
RequestStates = Literal["open", "answered", "denied", "cancelled", "any"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (requests, answer, why, workers, drain):
        app.command()(command)


def requests(
    status: Annotated[RequestStates, typer.Option(help="Only these.")] = "open",
    thread: Annotated[str | None, typer.Option(help="Only of this thread.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List what paused runs wait for."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.requests(status=status, thread=thread, limit=limit)
        for request in found:
            terminal.record({"request": asdict(request)})
        if found:
            now = datetime.now(UTC)
            terminal.table(tables.REQUEST_COLUMNS, [tables.request_row(each, now) for each in found])
        else:
            terminal.line("nothing waits for an answer" if status == "open" else "no such requests")
        return OK

    with_client(url, look)


def answer(
    request: Annotated[str, typer.Argument(help="The request.")],
    reason: Annotated[str | None, typer.Argument(help="With --reject: what the agent is told.")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Let the call be executed as it is.")] = False,
    edit: Annotated[
        str | None, typer.Option(metavar="JSON", help="Let it be executed with these arguments.")
    ] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Refuse; the agent goes on without it.")] = False,
    reply: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Answer a question; a JSON object, list or string is sent as that."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Answer a request, once: --approve, --edit JSON, --reject [REASON] or --reply TEXT."""
    if [approve, edit is not None, reject, reply is not None].count(True) != 1:
        raise typer.BadParameter("give one of --approve, --edit JSON, --reject [REASON], --reply TEXT")
    if reason is not None and not reject:
        raise typer.BadParameter("a REASON goes with --reject")
    decision = _decision(edit=edit, reject=reject, reason=reason, reply=reply)
    terminal = Terminal(as_json=as_json)

    async def decide(client: Client) -> int:
        outcome = await client.answer(request, decision)
        terminal.record({"answer": asdict(outcome)})
        terminal.line(_told(outcome))
        return OK

    with_client(url, decide)


def _decision(*, edit: str | None, reject: bool, reason: str | None, reply: str | None) -> Decision:
    if edit is not None:
        return Decision.edit(arguments(edit))
    if reject:
        return Decision.reject(reason)
    return Decision.approve() if reply is None else Decision.reply(reply_of(reply))


def _told(outcome: Outcome) -> str:
    words = {
        "approve": "approved",
        "edit": "approved with changes",
        "reject": "rejected",
        "reply": "answered",
    }
    said = words[outcome.decision["kind"]] + (" before, by you" if outcome.duplicate else "")
    if outcome.open:
        return f"{said}; run {outcome.run} waits for {outcome.open} more"
    going = outcome.status is RunStatus.PENDING
    return f"{said}; run {outcome.run} {'goes on' if going else f'is {outcome.status}'}"


def why(
    run: Annotated[str, typer.Argument(help="The run.")], as_json: AsJson = False, url: Url = None
) -> None:
    """Explain where a run stands: who holds it, what it waits for, how it ended, what was lost on the way."""
    terminal = Terminal(as_json=as_json)

    async def explain(client: Client) -> int:
        known = await client.why(run)
        terminal.record({"why": asdict(known)})
        for sentence in sentences(known, datetime.now(UTC)):
            terminal.line(sentence)
        return OK

    with_client(url, explain)


def workers(as_json: AsJson = False, url: Url = None) -> None:
    """List the workers that were seen in the last minute."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.workers()
        for worker in found:
            terminal.record({"worker": asdict(worker)})
        if found:
            now = datetime.now(UTC)
            terminal.table(tables.WORKER_COLUMNS, [tables.worker_row(each, now) for each in found])
        else:
            terminal.line("no worker was seen in the last minute; messages wait for one")
        return OK

    with_client(url, look)


def drain(
    worker: Annotated[str, typer.Argument(help="Its id, or its name for all that have it.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Let a worker hand its runs over and leave."""
    terminal = Terminal(as_json=as_json)

    async def ask(client: Client) -> int:
        asked = await client.drain(worker)
        terminal.record({"drain": asked})
        terminal.line(f"asked to hand over and leave: {', '.join(asked)}")
        return OK

    with_client(url, ask)
