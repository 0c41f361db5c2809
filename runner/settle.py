"""Waits for the end of a run, by the live stream where it works and by looking at Postgres where it does not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import aclosing
from typing import Any, Final

from threadhold.fanout.cursor import N_MAX, Position
from threadhold.fanout.frame import Delivery
from threadhold.fanout.hub import Hub
from threadhold.runner.machine import RunStatus, is_final
from threadhold.runner.ports import RunStore, ThreadStore
from threadhold.runner.records import Principal, Run, StopReceipt

LOOK_EVERY_S = 0.25
# Whoever waits for a rest may be one of many, and waits for longer.
LOOK_FOR_REST_EVERY_S = 1.0
_ENDS: Final = frozenset({"run_ended"})
_RESTS: Final = frozenset({"run_ended", "paused"})


def rests(status: RunStatus) -> bool:
    """Tell whether a run does nothing until somebody does something."""
    return is_final(status) or status is RunStatus.PAUSED


async def settled(hub: Hub, runs: RunStore, receipt: StopReceipt, *, by: Principal, wait: float) -> None:
    """Return when the run of a stop has ended, or after `wait` seconds."""
    run = receipt.run or ""

    async def ended() -> bool:
        return is_final((await runs.get(run, by=by)).status)

    heard = _heard(_behind(hub, receipt.thread, receipt.seq), run, _ENDS)
    await _wait(heard, ended, wait=wait, look_every=LOOK_EVERY_S)


async def at_rest(
    hub: Hub, runs: RunStore, threads: ThreadStore, run: Run, *, by: Principal, wait: float
) -> None:
    """Return when a run has ended or waits for people, or after `wait` seconds.

    Raises:
        NotFound: the principal may not see it any more.
    """

    async def resting() -> bool:
        return rests((await runs.get(run.id, by=by)).status)

    if rests(run.status) or wait <= 0:
        return
    # What happens from here on is heard; what happened before it is seen by the first look.
    head = await threads.start_of_watch(run.thread, by=by, after="head")
    if not await resting():
        heard = _heard(_behind(hub, run.thread, head.seq), run.id, _RESTS)
        await _wait(heard, resting, wait=wait, look_every=LOOK_FOR_REST_EVERY_S)


def _behind(hub: Hub, thread: str, seq: int) -> AsyncGenerator[Delivery, None]:
    return hub.watch(thread, Position(seq=seq, fence=2**62, n=N_MAX), own=True)


async def _wait(
    heard: Coroutine[Any, Any, None],
    seen: Callable[[], Awaitable[bool]],
    *,
    wait: float,
    look_every: float,
) -> None:
    """Return when something is heard or seen, or after `wait` seconds."""
    hearing = asyncio.ensure_future(heard)
    try:
        async with asyncio.timeout(wait):
            while True:
                await asyncio.wait({hearing}, timeout=look_every)
                if hearing.done() and hearing.exception() is None:
                    return
                if await seen():
                    return
                if hearing.done():
                    # The stream is broken; looking goes on.
                    await asyncio.sleep(look_every)
    except TimeoutError:
        return
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


async def _heard(watch: AsyncGenerator[Delivery, None], run: str, facts: Collection[str]) -> None:
    async with aclosing(watch) as deliveries:
        async for delivery in deliveries:
            frame = delivery.frame
            if frame.run == run and frame.data.get("fact") in facts:
                return
