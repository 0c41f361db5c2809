"""Waits for a thread, bounded, with signs of life on the way; whoever stops waiting stops nothing else."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.view import View
from threadhold.fanout.cursor import Position
from threadhold.runner.errors import Unavailable
from threadhold.runner.records import Run, WatchKind

TELL_EVERY_S: Final = 0.25
LOOK_EVERY_S: Final = 0.02
# What has happened already is told also to those who do not want to wait for more.
CATCH_UP_S: Final = 5.0

T = TypeVar("T")
_accepted: Final[set[asyncio.Future[Any]]] = set()


async def finished(doing: Coroutine[Any, Any, T]) -> T:
    """Return what a call returns; once begun it is done, also if whoever asked for it goes away meanwhile."""
    task = asyncio.ensure_future(doing)
    _accepted.add(task)
    task.add_done_callback(_accepted.discard)
    # Where nobody is left to be told of an error, nobody needs a line in the log about it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


async def wait(
    desk: Desk, view: View, *, seconds: float, drain: asyncio.Event, tell: Callable[[View], Awaitable[None]]
) -> None:
    """Follow a thread until it rests, its run has ended, the view is full, the time is over or this process drains.

    Args:
        desk: where to look.
        view: what has been seen; it is advanced.
        seconds: how long at most.
        drain: set when this process shuts down; another one goes on from the view's cursor.
        tell: is called about four times a second while there is news, and after the last of it.

    Raises:
        What the desk raises.
    """
    following = asyncio.create_task(_follow(desk, view))
    draining = asyncio.create_task(drain.wait())
    end, shown = time.monotonic() + seconds, view.frames
    try:
        while True:
            left = end - time.monotonic()
            pause = min(TELL_EVERY_S, left) if left > 0 else LOOK_EVERY_S
            await asyncio.wait({following, draining}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            late = left <= 0 and (view.is_current or left <= -CATCH_UP_S)
            over = following.done() or draining.done() or late
            # What is caught up with after the time is told once.
            if view.frames > shown and (over or left > 0):
                shown = view.frames
                await tell(view)
            if over:
                return following.result() if following.done() else None
    finally:
        await cancelled(following, draining)


async def _follow(desk: Desk, view: View, *, kinds: Collection[WatchKind] | None = None) -> None:
    frames = desk.watch(view.thread, after=view.cursor, until="idle", kinds=kinds)
    async with aclosing(frames):
        async for seen in frames:
            view.feed(seen.frame, seen.cursor)
            if view.settled:
                return


def start_of(run: Run) -> str:
    """Return the cursor before a run's first fact."""
    return Position(seq=max(0, run.first_seq - 1)).cursor()


async def read_through(desk: Desk, view: View) -> None:
    """Let a view take in the facts of a run that has ended.

    Raises:
        Unavailable: they could not be read in time.
        What the desk raises.
    """
    try:
        async with asyncio.timeout(CATCH_UP_S):
            await _follow(desk, view, kinds={"fact"})
    except TimeoutError:
        raise Unavailable("the output of the run could not be read in time; ask again") from None


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
