"""The live log and the subscriber in memory: the contract that Redis keeps as well."""

import asyncio
from contextlib import aclosing

from tests.fanout.support import THREAD, live
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, LivePage, Rung, Signal


async def drain(subscriber: MemorySubscriber, count: int) -> list[Signal]:
    """Take so many signals."""
    taken: list[Signal] = []
    async with asyncio.timeout(10), aclosing(subscriber.signals()) as signals:
        async for signal in signals:
            taken.append(signal)
            if len(taken) == count:
                break
    return taken


async def test_refuses_a_zombie_and_takes_a_repetition_as_accepted() -> None:
    log = MemoryLive()
    assert await log.append(THREAD, 7, [live(7, 1)]) is None
    assert await log.append(THREAD, 7, [live(7, 1), live(7, 2)]) is None
    assert await log.append(THREAD, 9, [live(9, 1)]) is None
    assert await log.append(THREAD, 7, [live(7, 3)]) == (9, 1)
    assert await log.live(THREAD, after=(7, 1), limit=9) == LivePage(
        frames=[live(7, 2), live(9, 1)], more=False
    )
    assert await log.live(THREAD, after=(0, 0), limit=1) == LivePage(frames=[live(7, 1)], more=True)


async def test_keeps_so_many_frames() -> None:
    log = MemoryLive(stream_frames_max=3)
    await log.append(THREAD, 7, [live(7, n) for n in range(1, 10)])
    assert [frame.n for frame in (await log.live(THREAD, after=(0, 0), limit=9)).frames] == [7, 8, 9]


async def test_subscribers_hear_their_threads_and_their_channels() -> None:
    log = MemoryLive()
    subscriber, nudges = MemorySubscriber(log), list[bytes]()
    await subscriber.wait_healthy()
    await subscriber.subscribe(THREAD)
    await subscriber.subscribe_channel("w:1", nudges.append)
    await log.ring(THREAD, 4)
    await log.ring("other", 5)
    await log.append(THREAD, 7, [live(7, 1)])
    await log.publish("w:1", b"look")
    await log.publish("w:2", b"look")
    assert nudges == [b"look"]
    heard = await drain(subscriber, 3)
    assert heard == [Confirmed(thread=THREAD), Rung(thread=THREAD, seq=4), LiveArrived(frame=live(7, 1))]
    await subscriber.unsubscribe(THREAD)
    await log.ring(THREAD, 6)
    await subscriber.aclose()
    assert not subscriber.healthy
    assert [signal async for signal in subscriber.signals()] == []


async def test_signals_that_nobody_takes_are_bounded() -> None:
    log = MemoryLive()
    subscriber = MemorySubscriber(log)
    await subscriber.subscribe(THREAD)
    for seq in range(10_000):
        await log.ring(THREAD, seq)
    assert (await drain(subscriber, 2)) == [Dropped(threads=frozenset({THREAD})), Confirmed(thread=THREAD)]
    await subscriber.aclose()
