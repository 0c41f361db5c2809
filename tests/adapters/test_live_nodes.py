"""Live frames on servers of their own: a Runner and a worker over a main Valkey and two more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from redis.asyncio import Redis

from tests.support.servers import Stack
from threadhold import Principal, Threadhold, open_runner
from threadhold.adapters.embedded import EmbeddedValkey

ME = Principal(id="me", workspace="home")
ANSWER = "one two three"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    servers = [EmbeddedValkey(Path(tmp_path_factory.mktemp("node"))) for _ in range(2)]
    for server in servers:
        server.start()
    yield [server.url for server in servers]
    for server in servers:
        server.stop()


async def streams(url: str, prefix: str) -> int:
    """Return how many streams a stack has on a server."""
    client: Any = Redis.from_url(url)
    try:
        return len(await client.keys(f"{prefix}live:*"))
    finally:
        await client.aclose()


async def test_are_spread_over_them_and_the_main_one_holds_none(stack: Stack, nodes: list[str]) -> None:
    app = Threadhold({"parrot": Agent(TestModel(custom_output_text=ANSWER))})
    settings = stack.settings(live_redis_urls=",".join(nodes))
    async with open_runner(app, settings, capacity=5) as runner:
        for _ in range(12):
            sent = await runner.send(None, "speak", by=ME, agent="parrot")
            frames = [frame async for frame in runner.watch(sent.thread, by=ME, until="idle")]
            assert frames[-1].frame.kind == "end"
            events = [each.frame.data for each in frames if each.frame.kind == "event"]
            said = [
                event["delta"]["content_delta"] for event in events if event["event_kind"] == "part_delta"
            ]
            assert "".join(said) == ANSWER
    held = [await streams(url, settings.redis_prefix) for url in nodes]
    assert sum(held) == 12
    assert all(held)
    assert await streams(stack.redis_url, settings.redis_prefix) == 0
