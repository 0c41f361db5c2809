"""What the bare pieces cost: the least that any system of this shape pays for the same promise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import asyncpg
from redis.asyncio import Redis

from benchmarks.errors import NothingCame
from benchmarks.stamps import Stamps, now

POOL: Final = 10
FRAME_WITHIN_S: Final = 5.0
TABLE: Final = "CREATE TABLE IF NOT EXISTS floor (id text, side text, PRIMARY KEY (id, side))"
COMMIT: Final = "INSERT INTO floor (id, side) VALUES ($1, 'bench')"


class Floors:
    """The near side of each floor; `partner` is the far side.

    Args:
        pool: connections to the same Postgres.
        redis: a client of the same Redis.
        stamps: where the partner's stamps come in.
    """

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", redis: Any, stamps: Stamps) -> None:
        self._pool = pool
        self._redis = redis
        self._stamps = stamps
        self._frames: asyncio.Queue[float] = asyncio.Queue()

    async def start(self) -> float:
        """Return the seconds of a commit, a wake of the other process, and a commit there."""
        id, began = uuid4().hex, now()
        await self._pool.execute(COMMIT, f"floor-start {id}")
        await self._redis.rpush("floor:start", id)
        return await self._stamps.of("floor-start", id) - began

    async def stop(self) -> float:
        """Return the seconds of a commit, a publish to the other process, and a commit there."""
        id, began = uuid4().hex, now()
        await self._pool.execute(COMMIT, f"floor-stop {id}")
        await self._redis.publish("floor:stop", id)
        return await self._stamps.of("floor-stop", id) - began

    async def frame(self, size: int) -> float:
        """Return the seconds from a bare PUBLISH of `size` bytes in the other process to a handler here.

        Raises:
            NothingCame: if it was not heard.
        """
        await self._redis.rpush("floor:publish", size)
        try:
            async with asyncio.timeout(FRAME_WITHIN_S):
                return await self._frames.get()
        except TimeoutError:
            raise NothingCame("a bare PUBLISH", FRAME_WITHIN_S) from None

    async def listen(self, pubsub: Any) -> None:
        """Hear what the partner publishes."""
        async for message in pubsub.listen():
            at = now()
            if message["type"] == "message":
                self._frames.put_nowait(at - float(message["data"].split(b" ", 1)[0]))


@asynccontextmanager
async def open_floors(database_url: str, redis_url: str, stamps: Stamps) -> AsyncIterator[Floors]:
    """Open connections of their own for the floors, and make their table."""
    redis: Any = Redis.from_url(redis_url)
    async with asyncpg.create_pool(database_url, min_size=POOL, max_size=POOL) as pool:
        await pool.execute(TABLE)
        pubsub = redis.pubsub()
        await pubsub.subscribe("floor:frames")
        floors = Floors(pool, redis, stamps)
        listening = asyncio.create_task(floors.listen(pubsub), name="floor-frames")
        try:
            yield floors
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await pubsub.aclose()
            await redis.aclose()
