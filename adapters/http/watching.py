"""A watch as the doors hold it: looked at again from time to time, and never ended without a reason."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery
from threadhold.runner.errors import Closed, Unavailable
from threadhold.runner.records import Principal, Until, WatchKind
from threadhold.runner.service import Runner


async def frames_while_allowed(
    runner: Runner,
    thread: str,
    begin: Position,
    *,
    by: Principal,
    until: Until | None,
    kinds: Collection[WatchKind] | None,
    recheck_s: float,
    look_again: Callable[[], Awaitable[Principal]] | None = None,
) -> AsyncGenerator[Delivery, None]:
    """Yield a thread's frames for as long as the principal may see it.

    Heads arrive on a quiet thread as well, so that looking again before a frame is passed on is often enough.

    Args:
        runner, thread, begin, until, kinds: what is watched, and from where on.
        by: who watches.
        recheck_s: how often it is looked again whether they may.
        look_again: returns who watches, as it is then; may raise that nobody does any more.

    Raises:
        NotFound: the principal may not see the thread any more.
        Unauthenticated: what they showed is not good any more.
        WatchInterrupted, Closed: the watch ended without a terminal frame.
    """
    frames = runner.frames(thread, begin, until=until, kinds=kinds)
    due = time.monotonic() + recheck_s
    ended = False
    try:
        async for delivery in frames:
            if time.monotonic() >= due:
                due = time.monotonic() + await _next_look(
                    runner, thread, by=by, recheck_s=recheck_s, look_again=look_again
                )
            ended = delivery.frame.kind == "end"
            yield delivery
    finally:
        await frames.aclose()  # type: ignore[attr-defined]
    if not ended:
        raise Closed


async def _next_look(
    runner: Runner,
    thread: str,
    *,
    by: Principal,
    recheck_s: float,
    look_again: Callable[[], Awaitable[Principal]] | None,
) -> float:
    """Look whether the principal may still see the thread; return in how many seconds to look again."""
    try:
        now = by if look_again is None else await look_again()
        await runner.thread(thread, by=now)
    except Unavailable:
        return recheck_s / 10
    return recheck_s
