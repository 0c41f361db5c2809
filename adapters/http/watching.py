"""A watch as the doors hold it: looked at again from time to time, and never ended without a reason."""

import time
from collections.abc import AsyncGenerator

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery
from threadhold.runner.errors import Closed, Unavailable
from threadhold.runner.records import Principal, Until
from threadhold.runner.service import Runner


async def frames_while_allowed(
    runner: Runner, thread: str, begin: Position, *, by: Principal, until: Until | None, recheck_s: float
) -> AsyncGenerator[Delivery, None]:
    """Yield a thread's frames for as long as the principal may see it.

    Heads arrive on a quiet thread as well, so that looking again before a frame is passed on is often enough.

    Raises:
        NotFound: the principal may not see the thread any more.
        WatchInterrupted, Closed: the watch ended without a terminal frame.
    """
    frames = runner.frames(thread, begin, until=until)
    due = time.monotonic() + recheck_s
    ended = False
    try:
        async for delivery in frames:
            if time.monotonic() >= due:
                due = time.monotonic() + await _next_look(runner, thread, by=by, recheck_s=recheck_s)
            ended = delivery.frame.kind == "end"
            yield delivery
    finally:
        await frames.aclose()  # type: ignore[attr-defined]
    if not ended:
        raise Closed


async def _next_look(runner: Runner, thread: str, *, by: Principal, recheck_s: float) -> float:
    """Look whether the principal may still see the thread; return in how many seconds to look again."""
    try:
        await runner.thread(thread, by=by)
    except Unavailable:
        return recheck_s / 10
    return recheck_s
