"""What a watcher is promised, on the real hub: whatever happens, in whatever order things are read.

No test here waits for time to pass. Runs are derandomized; each failure names its own seed or example.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fanout.bench import START, Bench, bench
from tests.fanout.support import THREAD, Watching, check_order, fact, live, until
from tests.fanout.test_outbox import delta
from tests.fanout.watch.play import HAPPENINGS, HEALED, Client, Play, SteppedFacts, SteppedLive, Steps, settle
from threadhold.fanout.hub import Hub
from threadhold.fanout.outbox import Outbox

calm = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Look at the streams and heads so often that nobody waits for it."""
    with (
        mock.patch("threadhold.fanout.hub._TOPS_EVERY", 0.005),
        mock.patch("threadhold.fanout.heads._PAUSE", 0.0),
    ):
        yield


def happenings(names: Iterable[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Draw what happens to a thread."""
    weighted = [name for name in names for _ in range(HAPPENINGS[name])]
    return st.lists(st.tuples(st.sampled_from(weighted), st.integers(0, 15)), max_size=60)


async def play(what: list[tuple[str, int]], *, last: int, **options: Any) -> None:
    """Let it all happen, and then the thread rest; each watcher gets what it must get."""
    async with bench(confirm_max=0.01, **options) as b:
        thread = Play(b)
        for name, number in what:
            await thread.happen(name, number)
        await thread.finish(last)
        thread.check()


@contextmanager
def pages(size: int) -> Iterator[None]:
    """Read and hold so little at a time."""
    with ExitStack() as stack:
        for what in ("backlog.FACTS_PAGE", "backlog._LIVE_PAGE", "hub.FACTS_PAGE", "topic._HELD_MAX"):
            stack.enter_context(mock.patch(f"threadhold.fanout.{what}", size))
        yield


class TestWhateverHappens:
    @settings(calm, max_examples=150)
    @given(happenings(HAPPENINGS), st.sampled_from([2, 3, 256]), st.sampled_from([2, 200]), st.integers(0, 1))
    def test_watchers_get_all_in_order_once_and_end(
        self, what: list[tuple[str, int]], queue_max: int, page: int, last: int
    ) -> None:
        with pages(page):
            asyncio.run(play(what, last=last, head_every=0.01, queue_max=queue_max))

    @settings(calm, max_examples=300)
    @given(
        happenings(name for name in HAPPENINGS if name not in HEALED),
        st.sampled_from([2, 3, 256]),
        st.sampled_from([2, 200]),
        st.integers(0, 1),
    )
    def test_nothing_waits_for_a_look_or_a_beat(
        self, what: list[tuple[str, int]], queue_max: int, page: int, last: int
    ) -> None:
        with pages(page), mock.patch("threadhold.fanout.hub._TOPS_EVERY", 3600):
            asyncio.run(play(what, last=last, head_every=3600, queue_max=queue_max))

    @pytest.mark.parametrize("name", HAPPENINGS)
    def test_everything_can_happen(self, name: str) -> None:
        before = [(each, 3) for each in ("watch", "send", "turn", "commit", "send")]
        asyncio.run(play([*before, (name, 1), ("send", 0)], last=0, head_every=0.01))


def text_of(watching: Watching) -> str:
    """Return the text that a client puts together from the JSON that it receives."""
    events = (json.loads(delivery.json()) for delivery in watching.deliveries)
    return "".join(event["data"]["delta"]["content_delta"] for event in events if event["kind"] == "event")


def texts_of(clients: list[Client], earlier: list[list[Watching]]) -> list[str]:
    return [
        "".join(map(text_of, [*before, client.watching]))
        for client, before in zip(clients, earlier, strict=True)
    ]


class TestTheText:
    @settings(calm, max_examples=60)
    @given(
        st.lists(
            st.tuples(
                st.text(st.characters(codec=None, exclude_categories=()), max_size=20),
                st.sampled_from(["", "", "flush", "turn", "join", "leave", "fact"]),
            ),
            max_size=40,
        )
    )
    def test_is_the_same_for_whoever_joins_or_comes_back_at_any_moment(
        self, pieces: list[tuple[str, str]]
    ) -> None:
        async def run() -> None:
            async with bench(head_every=0.01) as b:
                await b.commit(fact(1, "run_started"))
                outbox = Outbox(b.live, thread=THREAD, run="r1", fence=7, window=60)
                outbox.start(attempt=1, seq=1)
                clients = [Client(b, to_the_end=True)]
                earlier: list[list[Watching]] = [[]]
                for text, then in pieces:
                    outbox.put("event", delta(text), seq=b.facts.log[THREAD][-1].seq)
                    await meanwhile(b, outbox, clients, earlier, then)
                clients.append(Client(b, to_the_end=True))
                earlier.append([])
                assert await outbox.flush(10.0)
                b.facts.state = "idle"
                seq = b.facts.log[THREAD][-1].seq + 1
                await b.commit(fact(seq, "run_ended", live=outbox.position))
                for client in clients:
                    await until(lambda client=client: client.has_ended)  # type: ignore[misc]
                whole = "".join(text for text, _ in pieces).encode(errors="surrogatepass")
                for got in texts_of(clients, earlier):
                    assert got.encode(errors="surrogatepass") == whole
                await outbox.aclose()

        asyncio.run(run())


async def meanwhile(
    b: Bench, outbox: Outbox, clients: list[Client], earlier: list[list[Watching]], then: str
) -> None:
    """Do what happens between two deltas."""
    if then == "flush":
        assert await outbox.flush(10.0)
    elif then == "turn":
        await settle()
    elif then == "join" and len(clients) < 4:
        clients.append(Client(b, to_the_end=True))
        earlier.append([])
    elif then == "leave":
        earlier[-1].append(clients[-1].watching)
        await clients[-1].come_back()
    elif then == "fact":
        await b.commit(fact(b.facts.log[THREAD][-1].seq + 1))


# The seam

STORY = (
    fact(1, "run_started"),
    live(7, 1, seq=1),
    live(7, 2, seq=1),
    fact(2),
    live(7, 3, seq=2),
    fact(3, "run_ended", live=(7, 3)),
)
WHOLE = ["f1", "7-1", "7-2", "f2", "7-3", "f3", "end:idle"]
INTERLEAVINGS = 1000


class Seam:
    """Some watchers that join while a story is told; every reading and every answer is a step of its own."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.steps = Steps()
        self.trace: list[str] = []
        self.bench = Bench(head_every=3600, confirm_max=3600)
        self.bench.facts = SteppedFacts(self.steps)
        self.bench.live = SteppedLive(self.steps)
        subscriber = self.bench.subscriber
        subscriber._live = self.bench.live
        self.bench.live.attach(subscriber)
        self.bench.hub = Hub(self.bench.facts, self.bench.live, subscriber, head_every=3600, confirm_max=3600)
        self.story = list(STORY)
        self.to_come = chance.randint(1, 2)

    async def run(self) -> None:
        """Tell the story, let the watchers join, and the readings go on, in an order by chance."""
        await self.bench.hub.start()
        # The story has begun.
        await self._tell()
        await self._tell()
        while self.story or self.to_come or self.steps.waiting:
            choices = ["tell"] * bool(self.story) + ["join"] * bool(self.to_come)
            choices += [f"step {place}" for place in range(len(self.steps.waiting))]
            choice = self.chance.choice(choices)
            self.trace.append(choice)
            await self._do(choice)
            await settle()

    async def _do(self, choice: str) -> None:
        if choice == "tell":
            await self._tell()
        elif choice == "join":
            self.to_come -= 1
            self.bench.watch(until="idle")
        else:
            self.steps.let_go(int(choice.split()[1]))

    async def _tell(self) -> None:
        frame = self.story.pop(0)
        if frame.is_live:
            await self.bench.send(frame)
        else:
            if not self.story:
                self.bench.facts.state = "idle"
            await self.bench.commit(frame)

    async def close(self) -> None:
        for watching in self.bench.watches:
            await watching.stop()
        await self.bench.hub.aclose()
        await self.bench.subscriber.aclose()


# It takes seconds of computing, on a machine that may be slow.
@pytest.mark.timeout(240)
def test_a_thousand_interleavings_at_the_seam_of_snapshot_and_subscription() -> None:
    async def one(seed: int) -> tuple[str, ...]:
        seam = Seam(random.Random(seed))
        try:
            await seam.run()
            for watching in seam.bench.watches:
                check_order(watching.steps, START)
                assert watching.marks == WHOLE, (seed, seam.trace)
        finally:
            await seam.close()
        return tuple(seam.trace)

    async def run() -> None:
        different: set[tuple[str, ...]] = set()
        seed = 0
        while len(different) < INTERLEAVINGS:
            different.add(await one(seed))
            seed += 1

    asyncio.run(run())
