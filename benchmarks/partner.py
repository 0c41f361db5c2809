"""The other process of a floor: bare drivers, no code of the product.

Usage: python -m benchmarks.partner DATABASE_URL REDIS_URL

    list floor:start       on each token: one durable commit, then a stamp
    channel floor:stop     the same on a message
    list floor:publish     on each size: one PUBLISH of so many bytes that begin with the time
"""

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any, cast

import asyncpg
from redis.asyncio import Redis

from benchmarks.stamps import Stamper, now

POOL: int = 10
COMMIT = "INSERT INTO floor (id, side) VALUES ($1, 'partner')"


async def main(database_url: str, redis_url: str) -> None:
    """Serve until told to end."""
    redis: Any = Redis.from_url(redis_url)
    async with (
        asyncpg.create_pool(database_url, min_size=POOL, max_size=POOL) as pool,
        asyncio.TaskGroup() as tasks,
    ):
        stamper = Stamper()

        async def commit(point: str, id: str) -> None:
            await pool.execute(COMMIT, f"{point} {id}")
            stamper.send(point, id, now())

        tasks.create_task(_tokens(redis, lambda id: tasks.create_task(commit("floor-start", id))))
        tasks.create_task(_messages(redis, lambda id: tasks.create_task(commit("floor-stop", id))))
        tasks.create_task(_publish(redis))
        print("partner_ready", flush=True)


async def _tokens(redis: Any, handle: Any) -> None:
    while True:
        popped = await cast(Awaitable[Any], redis.blpop(["floor:start"], timeout=0))
        handle(popped[1].decode())


async def _messages(redis: Any, handle: Any) -> None:
    pubsub = redis.pubsub()
    await pubsub.subscribe("floor:stop")
    async for message in pubsub.listen():
        if message["type"] == "message":
            handle(message["data"].decode())


async def _publish(redis: Any) -> None:
    while True:
        popped = await cast(Awaitable[Any], redis.blpop(["floor:publish"], timeout=0))
        size = int(popped[1])
        await redis.publish("floor:frames", f"{now()!r} ".encode().ljust(size, b"x"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
