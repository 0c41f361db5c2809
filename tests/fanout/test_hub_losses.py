"""What a watcher is spared, or told, when frames are lost on their way, too large, or of another time."""

import asyncio

import pytest

from tests.fanout.bench import START, bench
from tests.fanout.support import THREAD, FakeFacts, check_order, fact, live, until
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame, Kind
from threadhold.fanout.merge import shows
from threadhold.fanout.ports import Head, LivePage, Missed, Place
from threadhold.fanout.topic import Topic, Watcher, outlook


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the streams so often that no test waits for it."""
    monkeypatch.setattr("threadhold.fanout.hub._TOPS_EVERY", 0.01)


@pytest.mark.usefixtures("often")
class TestTheLastFrame:
    async def test_lost_with_nothing_after_it_is_read_all_the_same(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.subscriber.away = True
            await b.send(live(7, 2, seq=1))
            await watching.reach("f1", "7-1", "7-2")
            check_order(watching.steps, START)

    async def test_that_came_costs_no_reading(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            looks, reads = b.live.looks, b.live.reads
            await until(lambda: b.live.looks > looks + 3)
            assert b.live.reads == reads

    async def test_is_not_looked_for_on_a_thread_at_rest(self) -> None:
        async with bench() as b:
            b.facts.state = "idle"
            await b.commit(fact(1))
            watching = b.watch()
            await until(lambda: watching.is_up_to_date)
            b.live.looked_for.clear()
            looks = b.live.looks
            await until(lambda: b.live.looks > looks + 3)
            assert not any(b.live.looked_for)


class TestWhatIsTooMuch:
    async def test_a_frame_that_was_not_sent_along_is_read(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.subscriber.away = True
            await b.send(live(7, 2, seq=1))
            b.subscriber.push(Missed(thread=THREAD))
            await watching.reach("f1", "7-1", "7-2")

    async def test_one_frame_larger_than_a_queue_gets_through(self) -> None:
        async with bench(queue_chars_max=100) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            await b.send(live(7, 2, seq=1, text="x" * 1000))
            await watching.reach("f1", "7-1", "7-2")

    async def test_pages_that_were_cut_short_are_read_to_their_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with bench() as b:
            b.facts.commit(*(fact(seq) for seq in range(1, 300)))
            await b.send(*(live(7, n, seq=280 + n) for n in range(1, 10)))
            read = b.live.live

            async def two_at_most(thread: str, *, after: tuple[int, int], limit: int) -> LivePage:
                return await read(thread, after=after, limit=2)

            monkeypatch.setattr(b.live, "live", two_at_most)
            watching = b.watch()
            await until(lambda: len(watching.frames) == 299 + 9)
            check_order(watching.steps, START)


class TestAPositionOfAnotherTime:
    async def test_behind_a_fence_that_was_never_given_out_is_reset(self) -> None:
        async with bench() as b:
            b.facts.fence = 7
            await b.commit(fact(1))
            await b.send(live(7, 1, seq=1))
            watching = b.watch(Position(seq=1, fence=9, n=4))
            await watching.reach("gap:reset", "7-1")

    async def test_is_not_found_by_a_reading_that_began_before_it(self) -> None:
        watcher = Watcher(Position(seq=5), queue_max=9, queue_chars_max=99, joined=0)
        topic = Topic(THREAD)
        behind = Head(thread=THREAD, seq=4, fence=0, state="busy")
        for number, asked, found in ((1, 2, "wait"), (2, 2, "wait"), (3, 3, "reset")):
            topic.head, topic.head_no, topic.asked_no = behind, number, asked
            assert outlook(topic, watcher, until_idle=False) == found

    async def test_is_cleared_from_the_stream_so_that_the_watch_comes_to_its_end(self) -> None:
        async with bench() as b:
            b.facts.fence, b.facts.state = 7, "idle"
            await b.commit(fact(1))
            await b.send(live(9, 1, seq=1), live(9, 2, seq=1))
            watching = b.watch(until="idle")
            await watching.reach("f1", "9-1", "9-2", "gap:reset", "end:idle")
            assert await b.live.tops([THREAD]) == {}


class TestTwoReadings:
    async def test_of_which_the_later_ends_first_leave_no_fact_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with bench(head_every=0.02) as b:
            await b.commit(fact(1))
            gate, read, readings = asyncio.Event(), b.live.live, []

            async def first_hangs(thread: str, *, after: tuple[int, int], limit: int) -> LivePage:
                readings.append(after)
                if len(readings) == 1:
                    await gate.wait()
                return await read(thread, after=after, limit=limit)

            monkeypatch.setattr(b.live, "live", first_hangs)
            first = b.watch(until="idle")
            await until(lambda: len(readings) == 1)
            b.facts.state = "idle"
            await b.commit(fact(2, "run_ended"))
            second = b.watch(until="idle")
            await second.reach("f1", "f2", "end:idle")
            gate.set()
            await first.reach("f1", "f2", "end:idle")

    @pytest.mark.usefixtures("often")
    async def test_that_found_no_redis_are_made_up_for_when_it_is_back(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            first = b.watch()
            await b.send(live(7, 1, seq=1), live(7, 2, seq=1))
            await first.reach("f1", "7-1", "7-2")
            b.live.away = True
            late = b.watch()
            await late.reach("f1")
            b.live.away = False
            punctual = b.watch()
            await punctual.reach("f1", "7-1", "7-2")
            await late.reach("f1", "7-1", "7-2")

    @pytest.mark.parametrize(
        ("failures", "then"), [(4, ["7-2", "7-3"]), (99, ["gap:trimmed", "7-3"])], ids=["answers", "is away"]
    )
    async def test_that_redis_did_not_answer_are_repeated_some_times_before_a_hole_is_called_one(
        self, monkeypatch: pytest.MonkeyPatch, failures: int, then: list[str]
    ) -> None:
        monkeypatch.setattr("threadhold.fanout.hub._TOPS_EVERY", 3600)
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            read, readings = b.live.live, list[Place]()

            async def fails_first(thread: str, *, after: Place, limit: int) -> LivePage:
                readings.append(after)
                if len(readings) <= failures:
                    raise LiveUnavailable("read live frames", "away")
                return await read(thread, after=after, limit=limit)

            monkeypatch.setattr(b.live, "live", fails_first)
            b.subscriber.away = True
            await b.send(live(7, 2, seq=1))
            b.subscriber.away = False
            await b.send(live(7, 3, seq=1))
            await watching.reach("f1", "7-1", *then)
            assert readings == [(7, 1)] * 5


def gap(reason: str) -> Frame:
    return Frame(
        thread=THREAD, run=None, fence=0, n=0, seq=1, kind="gap", at="", data={"reason": reason, "after": ""}
    )


class TestKinds:
    async def test_that_were_not_asked_for_are_left_out_and_move_the_cursor(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch(kinds={"fact", "draft"}, until="idle")
            await b.send(live(7, 1, seq=1), live(7, 2, seq=1), live(7, 3, seq=1, kind="draft"))
            await watching.reach("f1", "7-1", "7-3")
            b.facts.state = "idle"
            await b.commit(fact(2, "run_ended", live=(7, 3)))
            await watching.reach("f1", "7-1", "7-3", "f2", "end:idle")
            assert watching.deliveries[-1].position == Position(seq=2, fence=7, n=3)

    async def test_an_end_comes_also_to_whoever_asked_for_no_facts(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch(kinds={"event"}, until="idle")
            await b.send(live(7, 1, seq=1), live(7, 2, seq=1))
            await watching.reach("7-1", "7-2")
            b.facts.state = "idle"
            await b.commit(fact(2, "run_ended", live=(7, 2)))
            await watching.reach("7-1", "7-2", "end:idle")

    def test_a_hole_concerns_those_who_would_have_seen_what_is_missing(self) -> None:
        facts: frozenset[Kind] = frozenset({"fact"})
        assert not shows(gap("lost"), facts)
        assert not shows(gap("trimmed"), facts)
        assert shows(gap("pruned"), facts)
        assert shows(gap("reset"), facts)
        assert shows(gap("lost"), frozenset({"draft"}))
        assert not shows(live(7, 1), facts)


async def test_a_crowd_at_one_place_shares_a_reading_even_if_some_leave() -> None:
    facts = FakeFacts()
    facts.commit(fact(1))
    async with bench(head_every=60) as b:
        b.facts.log = facts.log
        first, second = b.watch(), b.watch()
        await asyncio.sleep(0)
        await first.stop()
        await second.reach("f1")
