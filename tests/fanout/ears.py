"""A subscriber on a real Valkey, and what it has heard."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from tests.fanout.crowd import PREFIX
from tests.fanout.support import THREAD, live, until
from threadhold.fanout.connections import connect
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, Signal
from threadhold.fanout.redis import RedisLive
from threadhold.fanout.subscriber import RedisSubscriber


class Ears:
    """A subscriber and what it has heard."""

    def __init__(self, subscriber: RedisSubscriber) -> None:
        self.subscriber = subscriber
        self.heard: list[Signal] = []
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async with aclosing(self.subscriber.signals()) as signals:
            async for signal in signals:
                self.heard.append(signal)

    async def hear(self, wanted: Callable[[Signal], bool], *, times: int = 1) -> None:
        await until(lambda: sum(map(wanted, self.heard)) >= times)


@asynccontextmanager
async def commands(url: str) -> AsyncIterator[Any]:
    client = connect(url)
    await client.flushall()
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def ears(url: str, **settings: Any) -> AsyncIterator[Ears]:
    subscriber = RedisSubscriber(url, prefix=PREFIX, **settings)
    made = Ears(subscriber)
    try:
        yield made
    finally:
        await subscriber.aclose()
        await asyncio.wait({made.task})


def confirmed(signal: Signal) -> bool:
    return isinstance(signal, Confirmed)


def dropped(signal: Signal) -> bool:
    return isinstance(signal, Dropped)


def arrived(signal: Signal) -> bool:
    return isinstance(signal, LiveArrived)


async def until_accepted(log: RedisLive) -> None:
    """Append until the server takes it."""
    async with asyncio.timeout(10):
        while True:
            try:
                assert await log.append(THREAD, 7, [live(7, 1)]) is None
                return
            except LiveUnavailable:
                await asyncio.sleep(0.01)
