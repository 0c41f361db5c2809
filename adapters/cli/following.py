"""Prints what becomes of something that was just sent or started, as it happens, until its thread rests."""

from contextlib import aclosing

from threadhold.adapters.cli.deciding import options
from threadhold.adapters.cli.failure import FAILED, OK
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.view import ChatView
from threadhold.adapters.client import Client, ClientError
from threadhold.fanout.cursor import N_MAX, Position


async def follow(
    client: Client,
    terminal: Terminal,
    thread: str,
    *,
    seq: int,
    kept: str,
    said: str | None = None,
    in_progress: bool = False,
) -> int:
    """Print a thread from a fact on until it is idle or paused, and return the exit code.

    Args:
        client: the API.
        terminal: where it goes.
        thread: which.
        seq: of the first fact that is printed.
        kept: what is not lost if the connection is, in words.
        said: a message that the reader has typed and need not see again.
        in_progress: a run goes on there already. If it is in the middle of an answer, all of that is printed.

    Raises:
        ClientError.
    """
    view = ChatView()
    if said is not None:
        view.expect(said)
    try:
        after = await _before(client, thread, seq, in_progress=in_progress)
        await _print(client, terminal, view, thread, after)
    except ClientError:
        terminal.end_line()
        terminal.note(f"{kept}; to go on: {program()} tail {thread}")
        raise
    for asked in view.open.values():
        terminal.note(f"to answer: {program()} answer {asked.id} {options(asked.kind)}")
    return FAILED if view.failed else OK


async def _before(client: Client, thread: str, seq: int, *, in_progress: bool) -> str:
    """Return where to watch from: just before a fact, and behind the live frames of attempts that were over by then."""
    if seq <= 1:
        return "start"
    last = (await client.facts(thread, after=seq - 2, limit=1)).items
    fence = last[0].fence if last else 0
    return Position(seq=seq - 1, fence=fence, n=0 if in_progress else N_MAX).cursor()


async def _print(client: Client, terminal: Terminal, view: ChatView, thread: str, after: str) -> None:
    begun = False
    async with aclosing(client.watch(thread, after=after, until="idle")) as frames:
        async for watched in frames:
            begun = begun or watched.frame.kind in ("fact", "end")
            if not begun:
                view.overhear(watched.frame)
                continue
            terminal.record(watched.fields)
            pieces = view.feed(watched.frame)
            for piece in [] if terminal.as_json else pieces:
                terminal.piece(piece)
