"""What a crowd of watchers gets when Redis fails in the middle of a response: all of it, or a gap that says so."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.chaos.proxy import Link, Links
from tests.fanout.crowd import FENCE, HEAD_EVERY, PREFIX, START, CountedLive, Crowd, crowd, hub_at, live_at
from tests.fanout.support import THREAD, FakeFacts, Watching, check_order, fact, until
from tests.fanout.support import live as frame
from tests.fanout.valkey import Valkey
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import Place

WATCHERS = 20
NOBODY_LISTENS = "1"  # a port
ASKED_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server with a replica, and the address that leads to whichever is the primary."""

    server: Valkey
    replica: Valkey
    links: Links
    link: Link

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.link.port}/0"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Start both servers; the replica follows when it is needed."""
    with ExitStack() as stack:
        links = Links()
        stack.callback(links.close)
        servers = Valkey(tmp_path / "a"), Valkey(tmp_path / "b")
        for server in servers:
            server.start()
            stack.callback(server.stop)
        link = links.open("redis", servers[0].port)
        yield Site(server=servers[0], replica=servers[1], links=links, link=link)


@asynccontextmanager
async def flushed(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.server.ask("FLUSHALL")
    yield
    site.server.ask("FLUSHALL")


@asynccontextmanager
async def killed_connections(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    for kind in ("pubsub", "normal"):
        site.server.ask("CLIENT", "KILL", "TYPE", kind)
    yield
    for kind in ("normal", "pubsub"):
        site.server.ask("CLIENT", "KILL", "TYPE", kind)


@asynccontextmanager
async def cut_off_as_deaf(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    """Hold the hubs' loop up, while so much is published elsewhere that the server gives their connections up."""
    site.server.set("client-output-buffer-limit", "pubsub 262144 0 0")
    # One may just be subscribing anew, if the server was slow to answer its heartbeats.
    await until(lambda: len(site.server.clients("pubsub")) == len(crowd.hubs))
    crowd.elsewhere.submit(flood(site, crowd)).result(30)
    assert site.server.info("stats")["client_output_buffer_limit_disconnections"] == len(crowd.hubs)
    yield


async def flood(site: Site, crowd: Crowd) -> None:
    """Publish, in frames that are small enough for it, until the server has nobody left who listens."""
    outbox = crowd.producer.outbox
    while site.server.clients("pubsub"):
        for _ in range(10):
            outbox.put("draft", {"text": "x" * 15_000}, seq=crowd.seq)
        assert await outbox.flush(10.0)


@asynccontextmanager
async def restarted(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.server.stop()
    yield
    site.server.start()


@asynccontextmanager
async def failed_over(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.replica.follow(site.server)
    site.server.stop()
    yield
    site.replica.promote()
    site.links.do(lambda: setattr(site.link, "upstream", site.replica.port))


@asynccontextmanager
async def handed_over(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    """Let the two change places by arrangement; who is connected stays connected to the one that is a replica now."""
    site.replica.follow(site.server)
    site.server.ask("FAILOVER", "TO", "127.0.0.1", str(site.replica.port))
    await until(lambda: bool(site.replica.info("replication")["role"] == "master"))
    await until(lambda: bool(site.server.info("replication")["role"] == "slave"))
    site.links.do(lambda: setattr(site.link, "upstream", site.replica.port))
    yield


@asynccontextmanager
async def read_only(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.server.ask("REPLICAOF", "127.0.0.1", NOBODY_LISTENS)
    yield
    await refused(crowd)
    site.server.promote()


@asynccontextmanager
async def out_of_memory(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.server.set("maxmemory", "1")
    yield
    await refused(crowd)
    site.server.set("maxmemory", "0")


async def refused(crowd: Crowd) -> None:
    """Return when something of what was said meanwhile has been refused."""
    await until(lambda: crowd.producer.outbox._failing)


@asynccontextmanager
async def hung(site: Site, crowd: Crowd) -> AsyncIterator[None]:
    site.server.freeze()
    try:
        yield
    finally:
        site.server.thaw()


Fault = Callable[[Site, Crowd], AbstractAsyncContextManager[None]]
# Those that take frames with them which were stored, and those that last.
FORGETTING: tuple[Fault, ...] = (flushed, restarted, failed_over)
LASTING: tuple[Fault, ...] = (restarted, failed_over, read_only, out_of_memory, hung)
FAULTS: tuple[Fault, ...] = (*LASTING, flushed, killed_connections, cut_off_as_deaf, handed_over)


async def in_mid_stream(many: Crowd) -> None:
    """Bring all but four watchers into the middle of a response, which goes on."""
    many.join(WATCHERS - 4)
    await many.say(40)
    many.say_soon(80)
    await many.reach((FENCE, 12))


async def while_it_lasts(many: Crowd) -> None:
    """Let more be said, other watchers come, and a fact be committed, which all of them get."""
    await many.say(40)
    many.join(4)
    await many.note()


class TestTwentyWatchersInMidStream:
    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
    async def test_get_the_right_text_and_the_end_when_redis_is_back(self, site: Site, fault: Fault) -> None:
        async with crowd(site.url) as many:
            await in_mid_stream(many)
            async with fault(site, many):
                await while_it_lasts(many)
            await many.sent()
            await many.say(40)
            await many.sent()
            await many.reach(many.producer.outbox.position)
            await many.end()
            many.check(gaps=fault in FORGETTING)
            assert many.producer.outbox.dropped == 0

    @pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.__name__)
    async def test_get_the_facts_and_the_end_while_redis_is_still_away(
        self, site: Site, fault: Fault
    ) -> None:
        async with crowd(site.url) as many:
            await in_mid_stream(many)
            async with fault(site, many):
                await while_it_lasts(many)
                reads, began = many.facts.head_reads, asyncio.get_running_loop().time()
                await many.end()
                # A beat tells of the end, and one is asked for after it; a server that hangs is given a second.
                beats = (asyncio.get_running_loop().time() - began) / HEAD_EVERY
                assert many.facts.head_reads - reads <= (beats + ASKED_MAX) * len(many.hubs)
            many.check(gaps=True)


async def test_many_ends_do_not_wait_in_line_for_a_server_that_hangs(site: Site) -> None:
    facts = FakeFacts()
    threads = [f"t{number}" for number in range(300)]
    facts.commit(*(replace(fact(1), thread=thread) for thread in threads))
    async with live_at(site.url) as live, hub_at(site.url, facts, live) as hub:
        watchings = [Watching(hub.watch(thread, START, until="idle")) for thread in threads]
        await until(lambda: all(each.is_up_to_date for each in watchings), within=30)
        site.server.freeze()
        try:
            tries = live.tries
            # They name frames that nobody has seen, so that all have to look for them.
            facts.commit(*(replace(fact(2, "run_ended", live=(7, 3)), thread=thread) for thread in threads))
            facts.state = "idle"
            _, late = await asyncio.wait([each.task for each in watchings], timeout=50)
        finally:
            site.server.thaw()
        assert not late
        assert all(each.marks == ["f1", "gap:lost", "f2", "end:idle"] for each in watchings)
        # Of each try, a few at once, the server is given a second.
        assert 0 < live.tries - tries <= 24


class FlakyLive(CountedLive):
    """Fails in one of a hundred writes, before it or after it."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.random = random.Random(1)
        self.failures = {"before": 0, "after": 0}

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        drawn = self.random.random()
        self._fail("before", drawn < 0.005)
        newer = await super().append(thread, fence, frames)
        self._fail("after", drawn > 0.995)
        return newer

    def _fail(self, when: str, drawn: bool) -> None:
        if drawn:
            self.failures[when] += 1
            raise LiveUnavailable("store live frames", f"an error {when} the write")


async def test_one_failed_write_in_a_hundred_loses_and_repeats_nothing(site: Site) -> None:
    count = 1000
    facts = FakeFacts()
    facts.commit(fact(1))
    async with live_at(site.url, FlakyLive) as live, hub_at(site.url, facts, live) as hub:
        assert isinstance(live, FlakyLive)
        outbox = Outbox(live, thread=THREAD, run="r1", fence=FENCE)
        outbox.start(attempt=1, seq=1)
        present = Watching(hub.watch(THREAD, START, until="idle"))
        for n in range(2, count + 1):
            outbox.put("draft", {"n": n}, seq=1)
            await sent(outbox)
        late = Watching(hub.watch(THREAD, START, until="idle"))
        facts.state = "idle"
        facts.commit(fact(2, "run_ended", live=outbox.position))
        await live.ring(THREAD, 2)
        expected = ["f1", *(f"{FENCE}-{n}" for n in range(1, count + 1)), "f2", "end:idle"]
        for watching in (present, late):
            await watching.reach(*expected, within=20)
            await watching.task
        assert min(live.failures.values()) > 0
        await outbox.aclose()


async def sent(outbox: Outbox) -> None:
    """Wait until all is sent, however often it fails."""
    while not await outbox.flush(10.0):
        await asyncio.sleep(0.001)


class TestTheLastFrame:
    """Lost, with nothing after it that would tell."""

    @pytest.fixture(autouse=True)
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Look twice as often; looks are what is counted out here, not time."""
        monkeypatch.setattr("threadhold.fanout.hub._TOPS_EVERY", 0.5)

    @pytest.mark.parametrize("looks_max", [1, 2], ids=["already", "right after another"])
    async def test_that_was_never_published_is_seen_when_it_has_been_quiet_for_a_look(
        self, site: Site, looks_max: int
    ) -> None:
        async with watched(site) as (live, watchings):
            if looks_max == 1:
                seen = live.looks
                await until(lambda: live.looks > seen + 1)
            live.looks_max = live.looks + looks_max
            site.server.ask(
                "XADD", f"{PREFIX}live:{THREAD}", f"{FENCE}-3", "f", frame(FENCE, 3, seq=1).body()
            )
            for each in watchings:
                await each.reach("f1", f"{FENCE}-1", f"{FENCE}-2", f"{FENCE}-3")

    async def test_that_was_published_when_the_subscription_had_just_been_lost_is_seen_as_soon(
        self, site: Site
    ) -> None:
        async with watched(site) as (live, watchings):
            live.looks_max = live.looks + 1
            last = frame(FENCE, 3, seq=1).body()
            with redis.Redis(port=site.server.port) as other:
                pipeline = other.pipeline(transaction=False)
                pipeline.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                pipeline.xadd(f"{PREFIX}live:{THREAD}", {"f": last}, id=f"{FENCE}-3")
                pipeline.publish(f"{PREFIX}ch:{THREAD}", f"L{FENCE}-3 {last}")
                assert pipeline.execute()[2] == 0, "nobody heard it"
            for each in watchings:
                await each.reach("f1", f"{FENCE}-1", f"{FENCE}-2", f"{FENCE}-3")


@asynccontextmanager
async def watched(site: Site) -> AsyncIterator[tuple[CountedLive, list[Watching]]]:
    """Have ten watchers who have seen two frames."""
    facts = FakeFacts()
    facts.commit(fact(1))
    async with live_at(site.url) as live, hub_at(site.url, facts, live) as hub:
        watchings = [Watching(hub.watch(THREAD, START)) for _ in range(10)]
        await live.append(THREAD, FENCE, [frame(FENCE, n, seq=1) for n in (1, 2)])
        for each in watchings:
            await each.reach("f1", f"{FENCE}-1", f"{FENCE}-2")
        yield live, watchings
        for each in watchings:
            check_order(each.steps, START)
            await each.stop()
