"""Threads spread over several servers, each of which can go without the others."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.fanout.crowd import FENCE, PREFIX, START, CountedLive, live_at
from tests.fanout.support import FakeFacts, Watching, check_order, fact, until
from tests.fanout.support import live as frame
from tests.fanout.valkey import Valkey
from threadhold.fanout.hub import Hub
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.nodes import NodesLive, NodesSubscriber, node_of
from threadhold.fanout.ports import Dropped, Signal
from threadhold.fanout.subscriber import RedisSubscriber

THREADS: Final = [f"t{number}" for number in range(30)]
KEYS: Final = [f"thread-{number}" for number in range(5_000)]
# The server that goes away: its subscriber is quick to notice. The others' give nobody up for being slow.
AWAY: Final = 1
BEATS_EVERY: Final = {AWAY: 0.1}
SELDOM: Final = 60.0


class TestTheChoice:
    # Every process of every version has to make the same one; whoever changes it moves all threads.
    @pytest.mark.parametrize(
        ("key", "of_two", "of_three", "of_five"),
        [
            ("", 1, 2, 2),
            ("t1", 0, 0, 4),
            ("thread-17", 1, 1, 1),
            ("3f2b8c1e-9d4a-4c57-8e0b-6a1d2f3c4b5a", 1, 1, 1),
            ("Stra\u00dfe", 1, 1, 4),
            ("a" * 64, 0, 2, 2),
        ],
    )
    def test_is_written_down(self, key: str, of_two: int, of_three: int, of_five: int) -> None:
        assert [node_of(key, count) for count in (1, 2, 3, 5)] == [0, of_two, of_three, of_five]

    @pytest.mark.parametrize("count", [2, 3, 8])
    def test_is_even(self, count: int) -> None:
        share = Counter(node_of(key, count) for key in KEYS)
        assert set(share) == set(range(count))
        assert all(abs(each * count / len(KEYS) - 1) < 0.1 for each in share.values())

    @pytest.mark.parametrize("count", [1, 2, 3, 8])
    def test_moves_only_what_a_new_node_gets(self, count: int) -> None:
        moved = [key for key in KEYS if node_of(key, count) != node_of(key, count + 1)]
        assert {node_of(key, count + 1) for key in moved} == {count}
        assert abs(len(moved) * (count + 1) / len(KEYS) - 1) < 0.1


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Valkey]]:
    """Start three servers."""
    with ExitStack() as stack:
        made = [Valkey(tmp_path / str(number)) for number in range(3)]
        for server in made:
            server.start()
            stack.callback(server.stop)
        yield made


class HeardSubscriber(NodesSubscriber):
    """Keeps what it passes on."""

    def __init__(self, nodes: Sequence[RedisSubscriber]) -> None:
        super().__init__(nodes)
        self.heard: list[Signal] = []

    async def signals(self) -> AsyncGenerator[Signal, None]:
        async with aclosing(super().signals()) as signals:
            async for signal in signals:
                self.heard.append(signal)
                yield signal


class Nodes:
    """A hub over several servers."""

    def __init__(self, lives: Sequence[CountedLive], subscriber: HeardSubscriber) -> None:
        self.lives, self.subscriber = lives, subscriber
        self.facts = FakeFacts()
        self.live = NodesLive(lives)
        self.hub = Hub(self.facts, self.live, subscriber, head_every=0.1, confirm_max=0.3)
        self.watchings: dict[str, Watching] = {}

    def watch(self) -> None:
        """Watch all threads."""
        for thread in THREADS:
            self.facts.commit(replace(fact(1), thread=thread))
            self.watchings[thread] = Watching(self.hub.watch(thread, START))

    async def send(self, threads: Sequence[str], n: int) -> None:
        """Send a live frame on each."""
        for thread in threads:
            await self.live.append(thread, FENCE, [replace(frame(FENCE, n, seq=1), thread=thread)])

    async def reach(self, threads: Sequence[str], *marks: str) -> None:
        """Wait until all of their watchers have just this."""
        for thread in threads:
            await self.watchings[thread].reach(*marks)


@asynccontextmanager
async def nodes_at(servers: Sequence[Valkey]) -> AsyncIterator[Nodes]:
    """Open a hub over servers."""
    async with AsyncExitStack() as stack:
        lives = [await stack.enter_async_context(live_at(server.url)) for server in servers]
        subscriber = HeardSubscriber(
            [
                RedisSubscriber(server.url, prefix=PREFIX, beat_every=BEATS_EVERY.get(number, SELDOM))
                for number, server in enumerate(servers)
            ]
        )
        stack.push_async_callback(subscriber.aclose)
        made = Nodes(lives, subscriber)
        await made.hub.start()
        stack.push_async_callback(made.hub.aclose)
        made.watch()
        yield made
        for watching in made.watchings.values():
            check_order(watching.steps, START)
            await watching.stop()


class FailingSubscriber(MemorySubscriber):
    """Has a bug."""

    async def signals(self) -> AsyncGenerator[Signal, None]:
        for signal in self._signals:
            yield signal
        raise RuntimeError("a bug")


class TestSeveralSubscribers:
    async def test_are_as_one_that_fails_when_one_of_them_does(self) -> None:
        sound, failing = MemorySubscriber(MemoryLive()), FailingSubscriber(MemoryLive())
        both = NodesSubscriber([sound, failing])
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="a bug"):
                await anext(aiter(both.signals()))
        await both.aclose()

    async def test_end_together_and_leave_no_task_behind(self) -> None:
        before = asyncio.all_tasks()
        lives = [MemoryLive() for _ in range(3)]
        both = NodesSubscriber([MemorySubscriber(live) for live in lives])
        hub = Hub(FakeFacts(), NodesLive(lives), both)
        await hub.start()
        watchings = [Watching(hub.watch(thread, START)) for thread in THREADS]
        await until(lambda: all(watching.is_up_to_date for watching in watchings))
        for watching in watchings:
            await watching.stop()
        await hub.aclose()
        await both.aclose()
        await until(lambda: asyncio.all_tasks() == before)

    def test_are_at_least_one(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            NodesSubscriber([])


class TestThreeServers:
    async def test_carry_their_own_threads_and_no_others(self, servers: list[Valkey]) -> None:
        async with nodes_at(servers) as nodes:
            await asyncio.wait_for(nodes.subscriber.wait_healthy(), 10)
            await nodes.send(THREADS, 1)
            await nodes.reach(THREADS, "f1", f"{FENCE}-1")
            for thread in THREADS:
                nodes.facts.commit(replace(fact(2), thread=thread))
                await nodes.live.ring(thread, 2)
            await nodes.reach(THREADS, "f1", f"{FENCE}-1", "f2")
            assert await nodes.live.tops(THREADS) == dict.fromkeys(THREADS, (FENCE, 1))
            for number, server in enumerate(servers):
                own = {thread for thread in THREADS if node_of(thread, 3) == number}
                assert own
                assert set(server.ask("KEYS", "*")) == {f"{PREFIX}live:{thread}" for thread in own}
                channels = set(server.ask("PUBSUB", "CHANNELS", f"{PREFIX}ch:*"))
                assert channels == {f"{PREFIX}ch:{thread}" for thread in own}

    @pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
    async def test_go_on_when_one_of_them_is_away(self, servers: list[Valkey], hangs: bool) -> None:
        async with nodes_at(servers) as nodes:
            await nodes.send(THREADS, 1)
            await nodes.reach(THREADS, "f1", f"{FENCE}-1")
            theirs = [thread for thread in THREADS if node_of(thread, 3) == AWAY]
            others = [thread for thread in THREADS if thread not in theirs]
            servers[AWAY].freeze() if hangs else servers[AWAY].stop()
            # Not by a drop: on a slow machine one may have been heard of before.
            await until(lambda: not nodes.hub.stats().healthy)
            await nodes.send(others, 2)
            await nodes.reach(others, "f1", f"{FENCE}-1", f"{FENCE}-2")
            assert await nodes.live.tops(THREADS) == dict.fromkeys(others, (FENCE, 2))
            for thread in theirs:
                nodes.facts.commit(replace(fact(2), thread=thread))
            await nodes.reach(theirs, "f1", f"{FENCE}-1", "f2")
            servers[AWAY].thaw() if hangs else servers[AWAY].start()
            await until(lambda: nodes.hub.stats().healthy)
            await nodes.send(theirs, 2)
            await nodes.reach(theirs, "f1", f"{FENCE}-1", "f2", f"{FENCE}-2")
            drops = [signal.threads for signal in nodes.subscriber.heard if isinstance(signal, Dropped)]
            assert set().union(*drops) == set(theirs)
