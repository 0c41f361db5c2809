"""A zombie that goes on publishing while another attempt takes over, in interleavings that are drawn."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest

from tests.fanout.crowd import PREFIX, START, hub_at, live_at
from tests.fanout.support import FakeFacts, Watching, check_order, fact, until
from threadhold.fanout.connections import connect_subscriber
from threadhold.fanout.frame import Frame
from threadhold.fanout.hub import Hub
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LiveLog
from threadhold.fanout.wire import Body, Doorbell, Names, parse_message

ROUNDS: Final = int(os.environ.get("TAKEOVERS", "100"))
AT_ONCE: Final = 5
ZOMBIE, HEIR = 7, 9  # their fences
ACTS: Final = ["zombie"] * 8 + ["heir"] * 4 + ["watcher"] * 3


class Wire:
    """What is published on the channels of all threads."""

    def __init__(self) -> None:
        self.fences: dict[str, list[int]] = defaultdict(list)
        self.rung: set[str] = set()

    def hear(self, channel: bytes, payload: bytes) -> None:
        """Take a message in."""
        match parse_message(payload):
            case Body(frame=frame):
                self.fences[channel.decode()].append(frame.fence)
            case Doorbell():
                self.rung.add(channel.decode())


@asynccontextmanager
async def wire_at(url: str) -> AsyncIterator[Wire]:
    """Listen to all channels."""
    wire = Wire()
    client = connect_subscriber(url)
    listening = client.pubsub()
    await listening.psubscribe(Names(PREFIX).channel("*"))
    assert (await listening.get_message(timeout=10))["type"] == "psubscribe"

    async def listen() -> None:
        async for message in listening.listen():
            wire.hear(message["channel"], message["data"])

    task = asyncio.create_task(listen())
    try:
        yield wire
    finally:
        task.cancel()
        await asyncio.wait({task})
        await listening.aclose()
        await client.aclose()


class Takeover:
    """One thread whose attempt is taken over while it still sends."""

    def __init__(self, hub: Hub, thread: str, *, zombie: LiveLog, heir: LiveLog, seed: str) -> None:
        self._hub, self._thread = hub, thread
        self.random = random.Random(seed)
        self.zombie = Outbox(zombie, thread=thread, run="r1", fence=ZOMBIE)
        self.heir = Outbox(heir, thread=thread, run="r1", fence=HEIR)
        self.watchings: list[Watching] = []

    async def play(self) -> None:
        """Let everybody act in a drawn order, each without waiting for what the others did, or sometimes waiting."""
        self._join()
        self.zombie.start(attempt=1, seq=1)
        await until(lambda: "7-1" in self.watchings[0].marks)
        for act in self.random.sample(ACTS, k=len(ACTS)):
            {"zombie": self._zombie, "heir": self._heir, "watcher": self._join}[act]()
            await self._turn()
        assert await self.heir.flush(10.0)
        self._zombie()
        self._join()

    async def _turn(self) -> None:
        if self.random.random() < 0.1:
            await self.random.choice([self.zombie, self.heir]).flush(10.0)
        for _ in range(self.random.randrange(12)):
            await asyncio.sleep(0)

    def _zombie(self) -> None:
        self.zombie.put("draft", {}, seq=1)

    def _heir(self) -> None:
        if self.heir.position == (HEIR, 0):
            self.heir.start(attempt=2, seq=1)
        else:
            self.heir.put("draft", {}, seq=1)

    def _join(self) -> None:
        self.watchings.append(Watching(self._hub.watch(self._thread, START)))

    async def end(self, closing: Frame) -> None:
        """Check that everybody, up to the closing fact, has seen the zombie's frames before the heir's, if at all."""
        for watching in self.watchings:
            await until(lambda each=watching: closing in each.frames)  # type: ignore[misc]
            check_order(watching.steps, START)
            fences = [frame.fence for frame in watching.frames if frame.is_live]
            assert fences == sorted(fences)
            assert fences.count(HEIR) == ACTS.count("heir")
            await watching.stop()
        await self.zombie.aclose()
        await self.heir.aclose()


@pytest.mark.timeout(600)
async def test_nobody_sees_a_frame_of_a_zombie_after_the_first_of_the_attempt_that_took_over(
    redis_url: str,
) -> None:
    facts, names = FakeFacts(), Names(PREFIX)
    async with (
        live_at(redis_url) as zombie,
        live_at(redis_url) as heir,
        wire_at(redis_url) as wire,
        hub_at(redis_url, facts, zombie) as hub,
    ):

        async def take_over(thread: str) -> bool:
            """Play one round; tell whether the zombie was cut short in the middle of what it had to say."""
            facts.commit(replace(fact(1), thread=thread))
            takeover = Takeover(hub, thread, zombie=zombie, heir=heir, seed=thread)
            await takeover.play()
            closing = replace(fact(2, "run_ended", live=takeover.heir.position), thread=thread)
            facts.commit(closing)
            await heir.ring(thread, 2)
            await takeover.end(closing)
            channel = names.channel(thread)
            await until(lambda: channel in wire.rung)
            told = wire.fences[channel]
            assert told == sorted(told)
            return takeover.zombie.superseded and told.count(ZOMBIE) > 1

        between = 0
        for number in range(0, ROUNDS, AT_ONCE):
            between += sum(await asyncio.gather(*(take_over(f"t{number + i}") for i in range(AT_ONCE))))
    assert between > ROUNDS // 2
