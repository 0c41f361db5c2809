"""Waits for the end of a run, by the live stream where it works and by looking at Postgres where it does not."""

import asyncio
from collections.abc import AsyncIterator

from threadhold.fanout.cursor import N_MAX, Position
from threadhold.fanout.frame import Delivery
from threadhold.fanout.hub import Hub
from threadhold.runner.machine import is_final
from threadhold.runner.ports import RunStore
from threadhold.runner.records import Principal, StopReceipt

LOOK_EVERY_S = 0.25


async def settled(hub: Hub, runs: RunStore, receipt: StopReceipt, *, by: Principal, wait: float) -> None:
    """Return when the run of a stop has ended, or after `wait` seconds."""
    frames = hub.watch(receipt.thread, Position(seq=receipt.seq, fence=2**62, n=N_MAX))
    heard = asyncio.ensure_future(_end_heard(frames, receipt.run))
    try:
        async with asyncio.timeout(wait):
            while True:
                await asyncio.wait({heard}, timeout=LOOK_EVERY_S)
                if heard.done() and heard.exception() is None:
                    return
                if is_final((await runs.get(receipt.run or "", by=by)).status):
                    return
                if heard.done():
                    # The stream is broken; looking goes on.
                    await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        return
    finally:
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)


async def _end_heard(frames: AsyncIterator[Delivery], run: str | None) -> None:
    async for delivery in frames:
        frame = delivery.frame
        if frame.run == run and frame.data.get("fact") == "run_ended":
            return
