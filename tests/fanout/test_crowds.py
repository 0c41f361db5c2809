"""Crowds at a hub over a real Valkey: what they leave behind, and what the slow ones cost the others."""

import asyncio
import gc
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.fanout.crowd import FENCE, START, hub_at, live_at
from tests.fanout.support import THREAD, FakeFacts, Watching, check_order, fact, until
from tests.fanout.support import live as frame
from tests.fanout.valkey import Valkey
from threadhold.fanout.frame import Delivery, Frame
from threadhold.fanout.hub import Hub
from threadhold.fanout.topic import Item, Topic, Watcher

CYCLES: Final = int(os.environ.get("CYCLES", "10000"))
AT_ONCE: Final = 50
THREADS: Final = [f"t{number}" for number in range(20)]
KINDS: Final = (asyncio.Task, Delivery, Item, Topic, Watcher)
# A client's pool keeps as many connections as were in use at once: eight readings, and what looks about.
POOLED_MAX: Final = 12
# Seconds between two heartbeats: a busy server is not given up, as a new subscription would be more than is counted.
SELDOM: Final = 60.0

WATCHERS: Final = 1000
STALLED: Final = 50
FRAMES: Final = 150
FRAME_CHARS: Final = 10_000
QUEUE_MAX: Final = 64
QUEUE_CHARS_MAX: Final = 64 * 1024


def count(kind: type) -> int:
    """Return how many objects of a class there are."""
    return sum(type(each) is kind for each in gc.get_objects())


def left(valkey: Valkey) -> dict[str, Any]:
    """Return what there is of subscriptions and of our objects."""
    gc.collect()
    objects = Counter(type(each) for each in gc.get_objects())
    channels = valkey.ask("PUBSUB", "CHANNELS", "*")
    return {
        "channels": channels,
        "listeners": valkey.ask("PUBSUB", "NUMSUB", *channels)[1::2],
        "subscribers": len(valkey.clients("pubsub")),
        "objects": {kind.__name__: objects[kind] for kind in KINDS},
    }


def at_rest(valkey: Valkey, hub: Hub) -> bool:
    """Tell whether nobody watches, and nothing is read any more for those who did."""
    idle = hub.stats().watchers == 0 and not hub._backlogs._running
    return idle and len(left(valkey)["channels"]) == 1


class Visits:
    """Watches that are opened and closed."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._random = random.Random(1)
        self.ended: Counter[str] = Counter()

    async def make(self, count: int) -> None:
        """Open and close so many, some at a time."""
        await asyncio.gather(*(self._some(count // AT_ONCE) for _ in range(AT_ONCE)))

    async def _some(self, count: int) -> None:
        for _ in range(count):
            task = asyncio.create_task(self._one())
            if self._random.random() < 0.3:
                for _ in range(self._random.randrange(20)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait({task})
            self.ended["early" if task.cancelled() else task.result()] += 1

    async def _one(self) -> str:
        """Watch until the thread's first fact has come."""
        async with aclosing(self._hub.watch(self._random.choice(THREADS), START)) as watch:
            async for delivery in watch:
                return delivery.frame.kind
        return "nothing"


@pytest.fixture
def only_ours() -> Iterator[None]:
    """Leave out of the collector's lists what other tests have left behind."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("only_ours")
async def test_watches_that_come_and_go_leave_nothing_behind(valkey: Valkey) -> None:
    facts = FakeFacts()
    facts.commit(*(replace(fact(1), thread=thread) for thread in THREADS))
    async with live_at(valkey.url) as live, hub_at(valkey.url, facts, live, beat_every=SELDOM) as hub:
        visits = Visits(hub)
        await visits.make(200)
        await until(lambda: at_rest(valkey, hub))
        before, alive = left(valkey), len(gc.get_objects())
        await visits.make(CYCLES)
        await until(lambda: left(valkey) == before)
        assert (before["listeners"], before["subscribers"]) == ([1], 1)
        assert before["objects"] == {kind.__name__: 0 for kind in KINDS} | {"Task": before["objects"]["Task"]}
        assert len(gc.get_objects()) - alive < CYCLES // 10
        assert len(valkey.clients("normal")) <= POOLED_MAX
        assert visits.ended.total() == CYCLES + 200
        assert min(visits.ended["early"], visits.ended["fact"]) > CYCLES // 10


class Reader:
    """A watcher that keeps only what it takes to know that it has seen every frame."""

    def __init__(self, hub: Hub) -> None:
        self.last = 0
        self.whole = True
        self.task = asyncio.create_task(self._read(hub.watch(THREAD, START)))

    async def _read(self, watch: AsyncGenerator[Delivery, None]) -> None:
        async with aclosing(watch):
            async for delivery in watch:
                if delivery.frame.is_live:
                    self.whole = self.whole and delivery.frame.n == self.last + 1
                    self.last = delivery.frame.n


def queued(hub: Hub) -> list[tuple[int, int]]:
    """Return how many frames, and characters of them, wait for each watcher that has some."""
    watchers = hub._topics[THREAD].watchers
    return [(len(each._queue) + len(each.ready), each._queue_chars) for each in watchers if each._queue]


# It takes seconds of computing, on a machine that may be slow.
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("only_ours")
async def test_watchers_that_stall_cost_the_others_nothing_and_little_memory(valkey: Valkey) -> None:
    facts = FakeFacts()
    facts.commit(fact(1))
    settings = {"queue_max": QUEUE_MAX, "queue_chars_max": QUEUE_CHARS_MAX, "head_every": 1.0}
    settings["beat_every"] = SELDOM
    async with live_at(valkey.url) as live, hub_at(valkey.url, facts, live, **settings) as hub:
        readers = [Reader(hub) for _ in range(WATCHERS - STALLED)]
        stalled = [Watching(hub.watch(THREAD, START)) for _ in range(STALLED)]
        await live.append(THREAD, FENCE, [frame(FENCE, 1, seq=1)])
        for each in stalled:
            await each.reach("f1", f"{FENCE}-1")
            each.gate.clear()
        largest = [(0, 0)]

        async def send(first: int, last: int) -> None:
            for n in range(first, last + 1):
                await live.append(THREAD, FENCE, [frame(FENCE, n, seq=1, text="x" * FRAME_CHARS)])
                live.appended.clear()
                largest.append(max(queued(hub), default=(0, 0)))
            await until(lambda: all(reader.last == last for reader in readers), within=40)

        await send(2, FRAMES)
        assert all(reader.whole for reader in readers)
        assert len(valkey.clients("pubsub")) == 1
        waiting = queued(hub)
        assert len(waiting) == STALLED
        frames, chars = zip(*largest, *waiting, strict=True)
        assert max(frames) <= QUEUE_MAX
        assert max(chars) <= QUEUE_CHARS_MAX
        # What is queued is the same few frames for all.
        assert count(Frame) < FRAMES // 4
        await catch_up(stalled[::2])
        valkey.ask("FLUSHALL")
        last = frame(FENCE, FRAMES + 1, seq=1)
        await live.append(THREAD, FENCE, [last])
        await be_told(stalled[1::2], last)
        for reader in readers:
            reader.task.cancel()
        await asyncio.wait([reader.task for reader in readers])


def whole(count: int) -> list[str]:
    return ["f1", *(f"{FENCE}-{n}" for n in range(1, count + 1))]


async def catch_up(stalled: Sequence[Watching]) -> None:
    """Let watchers go on for whom everything is still there."""
    for each in stalled:
        each.gate.set()
        await each.reach(*whole(FRAMES))


async def be_told(stalled: Sequence[Watching], last: Frame) -> None:
    """Let watchers go on for whom only the last frame is still there."""
    for each in stalled:
        each.gate.set()
        await until(lambda each=each: last in each.frames)  # type: ignore[misc]
        check_order(each.steps, START)
        assert "gap:trimmed" in each.marks
        await each.stop()
