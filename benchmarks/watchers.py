"""Ways to watch threads inside one process: through the hub, and by redis-py alone, which is the floor."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from redis.asyncio import Redis

from benchmarks.tally import KIND, Tally
from threadhold.adapters.bootstrap import open_parts
from threadhold.adapters.settings import Settings
from threadhold.fanout.cursor import Position
from threadhold.fanout.hub import Hub
from threadhold.fanout.wire import Names


class Way(Protocol):
    """A way to watch."""

    async def enter(self, threads: Sequence[str], each: int, tally: Tally) -> None:
        """Let `each` watchers watch each thread; return when all of them hear."""
        ...

    async def leave(self) -> None:
        """Let all watchers go."""
        ...

    def overflows(self) -> int:
        """How often a watcher was too slow."""
        ...


class Watchers:
    """Tasks, of which each says once that it hears."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._hearing = 0
        self._changed = asyncio.Event()

    def add(self, watching: Any) -> None:
        """Run a watcher."""
        self._tasks.add(asyncio.create_task(watching))

    def hears(self) -> None:
        """Note that one more hears."""
        self._hearing += 1
        self._changed.set()

    async def hear(self, count: int) -> None:
        """Wait until so many have said that they hear.

        Raises:
            Exception: what ended a watcher.
        """
        while self._hearing < count:
            self.check()
            self._changed.clear()
            await self._changed.wait()

    def check(self) -> None:
        """Look whether all of them still watch.

        Raises:
            Exception: what ended a watcher.
        """
        for task in self._tasks:
            if task.done():
                task.result()

    async def leave(self) -> None:
        """End them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._hearing = 0


class HubWay:
    """Each watcher is a task that iterates over `Hub.watch`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._watchers = Watchers()

    async def enter(self, threads: Sequence[str], each: int, tally: Tally) -> None:
        """Begin to watch; a watcher hears once it was told that it is up to date."""
        for thread in threads:
            for _ in range(each):
                self._watchers.add(self._watch(thread, tally))
        await self._watchers.hear(len(threads) * each)

    async def _watch(self, thread: str, tally: Tally) -> None:
        hears = False
        async for delivery in self._hub.watch(thread, Position()):
            frame = delivery.frame
            if frame.kind == KIND:
                tally.take(frame.data["stamp"])
            elif frame.kind == "gap":
                tally.gaps += 1
            elif frame.kind == "head" and not hears:
                hears = True
                self._watchers.hears()

    async def leave(self) -> None:
        """End the watches."""
        await self._watchers.leave()

    def overflows(self) -> int:
        """How often a queue was given up."""
        return self._hub.stats().overflows


class BareWay:
    """The floor: one redis-py subscription, each message parsed once and put into a queue per watcher.

    No order is checked, nothing is looked up, nothing is bounded, and what is lost stays lost.
    """

    def __init__(self, redis: Any, *, prefix: str) -> None:
        self._pubsub = redis.pubsub()
        self._names = Names(prefix)
        self._queues: dict[bytes, list[asyncio.Queue[dict[str, Any]]]] = {}
        self._watchers = Watchers()
        self._listening: asyncio.Task[None] | None = None

    async def enter(self, threads: Sequence[str], each: int, tally: Tally) -> None:
        """Subscribe, and begin to take from the queues."""
        for thread in threads:
            queues: list[asyncio.Queue[dict[str, Any]]] = [asyncio.Queue() for _ in range(each)]
            self._queues[self._names.channel(thread).encode()] = queues
            for queue in queues:
                self._watchers.add(self._watch(queue, tally))
        await self._pubsub.subscribe(*self._queues)
        self._listening = asyncio.create_task(self._listen())
        await self._watchers.hear(len(threads))

    async def _listen(self) -> None:
        async for message in self._pubsub.listen():
            if message["type"] == "message":
                frame = json.loads(message["data"].partition(b" ")[2])
                for queue in self._queues[message["channel"]]:
                    queue.put_nowait(frame)
            elif message["type"] == "subscribe":
                self._watchers.hears()

    async def _watch(self, queue: asyncio.Queue[dict[str, Any]], tally: Tally) -> None:
        while True:
            frame = await queue.get()
            if frame["kind"] == KIND:
                tally.take(frame["data"]["stamp"])

    async def leave(self) -> None:
        """Unsubscribe."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        await self._pubsub.unsubscribe()
        await self._pubsub.aclose()
        await self._watchers.leave()
        self._queues.clear()

    def overflows(self) -> int:
        """None: the queues have no bound."""
        return 0


@asynccontextmanager
async def hub_way(settings: Settings) -> AsyncIterator[Way]:
    """Open the hub of a process of ours, with its stores."""
    async with open_parts(settings) as parts:
        yield HubWay(parts.hub)


@asynccontextmanager
async def bare_way(settings: Settings) -> AsyncIterator[Way]:
    """Open a client of redis-py."""
    redis: Any = Redis.from_url(settings.redis_url or "")
    try:
        yield BareWay(redis, prefix=settings.redis_prefix)
    finally:
        await redis.aclose()
