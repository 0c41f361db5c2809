"""What a tool does with its secrets: none is in the database, in Redis, in what is sent through it, or in a log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
from redis.asyncio import Redis

from tests.support.processes import Processes
from tests.support.servers import Stack
from tests.system.secrets_app import APP, HUSH, KEY, app
from threadhold import Principal, Runner, open_runner
from threadhold.runner.scrubbing import MARKER

ME = Principal(id="me", workspace="home")
# Pieces of both that are long enough to be nothing else.
SECRET = (HUSH, HUSH[:10], HUSH[-10:], KEY[:14], KEY[-14:])


def secrets_in(text: str) -> list[str]:
    """Return which of them a text holds."""
    return [each for each in SECRET if each in text]


async def rows(url: str) -> str:
    """Return every row of every table as text."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        found = [await connection.fetch(f"SELECT t::text AS row FROM {table['name']} t") for table in tables]
    finally:
        await connection.close()
    return "\n".join(row["row"] for each in found for row in each)


async def keys(redis: Any, prefix: str) -> bytes:
    """Return all that Redis holds for one test."""
    held = []
    async for key in redis.scan_iter(match="*"):
        if prefix.encode() in key:
            match await redis.type(key):
                case b"stream":
                    held.append(repr(await redis.xrange(key)).encode())
                case b"string":
                    held.append(await redis.get(key) or b"")
                case b"hash":
                    held.append(repr(await redis.hgetall(key)).encode())
                case b"zset":
                    held.append(repr(await redis.zrange(key, 0, -1)).encode())
                case b"list":
                    held.append(repr(await redis.lrange(key, 0, -1)).encode())
                case b"set":
                    held.append(repr(await redis.smembers(key)).encode())
                case other:
                    raise AssertionError(f"{key!r} is a {other!r}")
    return b"\n".join(held)


@asynccontextmanager
async def overheard(redis: Any) -> AsyncIterator[list[bytes]]:
    """Yield what is published meanwhile; on leaving, all of it has been heard."""
    heard: list[bytes] = []
    last = uuid4().hex.encode()
    async with redis.pubsub() as ear:
        await ear.psubscribe("*")
        assert (await ear.get_message(timeout=10) or {})["type"] == "psubscribe"

        async def listen() -> None:
            async for message in ear.listen():
                heard.append(bytes(message["data"]) if isinstance(message["data"], bytes) else b"")
                if message["data"] == last:
                    return

        listening = asyncio.create_task(listen())
        yield heard
        await redis.publish("the-end", last)
        await listening


async def told(runner: Runner, script: str) -> str:
    """Run a script and return its frames as text."""
    receipt = await runner.send(None, script, by=ME, agent="scripted")
    watch = runner.watch(receipt.thread, by=ME, after="start", until="idle")
    frames = [delivery.frame async for delivery in watch]
    # What a tool has told in pieces, as whoever watches puts it together.
    pieces = "".join(frame.data["text"] for frame in frames if frame.kind == "draft")
    return "\n".join([*map(str, frames), pieces])


async def test_what_a_tool_tells_of_its_secrets_is_nowhere(stack: Stack, spawn: Processes) -> None:
    worker = spawn.worker(app=APP)
    async with (
        Redis.from_url(stack.redis_url) as redis,
        overheard(redis) as heard,
        open_runner(app, stack.settings()) as runner,
    ):
        frames = [
            await told(runner, f'call gossip {{"how": "{how}"}} ;; spell ["it is ", "the ", "end"]')
            for how in ("return", "retry", "crash")
        ]
        frames.append(await told(runner, 'call gossip {"how": "return"} ;; say done'))
        held = await keys(redis, stack.prefix)
    assert worker.terminate() == 0
    log = worker.text()
    stored = await rows(stack.database_url)
    places = {
        "frames": "\n".join(frames),
        "tables": stored,
        "redis": held.decode(errors="replace"),
        "published": b"\n".join(heard).decode(errors="replace"),
        "log": log,
    }
    assert {place: secrets_in(text) for place, text in places.items()} == {place: [] for place in places}
    # And yet each of them was told something.
    assert {place: MARKER in text for place, text in places.items()} == dict.fromkeys(places, True)
    assert "LookupError" in stored
    assert f"{MARKER} and {MARKER}\n" in log
