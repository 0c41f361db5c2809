"""A hub with a log of facts and a live log in memory, both of which can fail."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.fanout.support import THREAD, FakeFacts, Watching
from threadhold.fanout import errors
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.hub import Hub
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.ports import Confirmed, Dropped, LivePage, Place

START = Position()


class CountingSubscriber(MemorySubscriber):
    """Counts subscriptions, and can be cut off from what is published."""

    def __init__(self, live: MemoryLive) -> None:
        super().__init__(live)
        self.asked: list[str] = []
        self.away = False

    async def subscribe(self, thread: str) -> None:
        self.asked.append(f"+{thread}")
        if self.away:
            self._threads.add(thread)
        else:
            await super().subscribe(thread)

    async def unsubscribe(self, thread: str) -> None:
        self.asked.append(f"-{thread}")
        await super().unsubscribe(thread)

    def hear(self, thread: str, signal: Any) -> None:
        if not self.away:
            super().hear(thread, signal)

    def drop(self) -> None:
        """Lose the connection."""
        self.away = True
        self.push(Dropped(threads=frozenset(self._threads)))

    def reconnect(self) -> None:
        """Get the connection back."""
        self.away = False
        for thread in self._threads:
            self.push(Confirmed(thread=thread))


class FaultyLive(MemoryLive):
    """Can be away."""

    away = False

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.looks = 0
        self.looked_for: list[list[str]] = []

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        self.looks += 1
        self.looked_for.append(list(threads))
        return await super().tops(threads)

    async def live(self, thread: str, *, after: tuple[int, int], limit: int) -> LivePage:
        self.reads += 1
        if self.away:
            raise errors.LiveUnavailable("read live frames", "away")
        return await super().live(thread, after=after, limit=limit)


class Bench:
    """A hub with its stores."""

    def __init__(self, **settings: Any) -> None:
        self.facts = FakeFacts()
        self.live = FaultyLive()
        self.subscriber = CountingSubscriber(self.live)
        settings = {"head_every": 0.05, "confirm_max": 0.05} | settings
        self.hub = Hub(self.facts, self.live, self.subscriber, **settings)
        self.watches: list[Watching] = []

    def watch(self, position: Position = START, *, thread: str = THREAD, **options: Any) -> Watching:
        watching = Watching(self.hub.watch(thread, position, **options))
        self.watches.append(watching)
        return watching

    async def commit(self, *frames: Frame) -> None:
        """Commit facts and ring the doorbell."""
        self.facts.commit(*frames)
        await self.live.ring(frames[-1].thread, frames[-1].seq)

    async def send(self, *frames: Frame) -> None:
        """Send live frames."""
        for frame in frames:
            await self.live.append(frame.thread, frame.fence, [frame])


@asynccontextmanager
async def bench(**settings: Any) -> AsyncIterator[Bench]:
    made = Bench(**settings)
    await made.hub.start()
    try:
        yield made
    finally:
        for watching in made.watches:
            await watching.stop()
        await made.hub.aclose()
        await made.subscriber.aclose()
