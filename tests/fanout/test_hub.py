"""The hub, with a log of facts and a live log in memory."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.fanout.bench import START, bench
from tests.fanout.support import THREAD, Watching, check_order, fact, live, until
from threadhold.fanout.cursor import N_MAX, Position
from threadhold.fanout.ports import Head


class TestASnapshotAndWhatFollows:
    async def test_join_without_a_seam(self) -> None:
        async with bench() as b:
            await b.commit(fact(1), fact(2))
            await b.send(live(7, 1, seq=1), live(7, 2, seq=2))
            watching = b.watch()
            await watching.reach("f1", "7-1", "f2", "7-2")
            await b.send(live(7, 3, seq=2))
            await b.commit(fact(3))
            await b.send(live(7, 4, seq=3))
            await watching.reach("f1", "7-1", "f2", "7-2", "7-3", "f3", "7-4")

    async def test_join_when_things_happen_during_the_reading(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching: Watching | None = None

            def meanwhile() -> None:
                b.facts.before_facts = None
                b.facts.commit(fact(2))
                happened.extend(
                    [
                        asyncio.ensure_future(b.send(live(7, 1, seq=2), live(7, 2, seq=2))),
                        asyncio.ensure_future(b.live.ring(THREAD, 2)),
                    ]
                )

            happened: list[asyncio.Future[None]] = []
            b.facts.before_facts = meanwhile
            watching = b.watch()
            await watching.reach("f1", "f2", "7-1", "7-2")
            check_order(watching.steps, START)
            await asyncio.gather(*happened)

    async def test_hold_live_frames_until_their_facts_are_there(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await until(lambda: watching.is_up_to_date)
            b.facts.commit(fact(2), fact(3))
            await b.send(live(7, 1, seq=2), live(7, 2, seq=3))
            await watching.reach("f1", "f2", "7-1", "f3", "7-2")

    async def test_page_through_a_long_log(self) -> None:
        async with bench() as b:
            b.facts.commit(*(fact(seq) for seq in range(1, 1001)))
            await b.send(*(live(7, n, seq=n // 2) for n in range(1, 1501)))
            watching = b.watch()
            await until(lambda: len(watching.frames) == 2500)
            check_order(watching.steps, START)

    async def test_page_through_many_live_frames(self) -> None:
        async with bench() as b:
            b.facts.commit(fact(1), fact(2), fact(3))
            await b.send(*(live(7, n, seq=n // 500) for n in range(1, 1700)))
            watching = b.watch()
            await until(lambda: len(watching.frames) == 1702)
            check_order(watching.steps, START)
            assert watching.marks.index("f2") == watching.marks.index("7-1000") - 1

    async def test_give_up_holding_when_facts_do_not_come(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await until(lambda: watching.is_up_to_date)
            b.facts.failing = True
            b.facts.commit(fact(2))
            for n in range(1, 1200):
                await b.send(live(7, n, seq=2))
                if n % 100 == 0:
                    await asyncio.sleep(0)
            await until(lambda: not b.hub.stats().healthy)
            b.facts.failing = False
            await until(lambda: len(watching.frames) == 1201)
            check_order(watching.steps, START)

    async def test_pass_on_deltas_behind_a_fact_of_somebody_else(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await b.commit(fact(2))
            await watching.reach("f1", "7-1", "f2")
            await b.send(live(7, 2, seq=1))
            await watching.reach("f1", "7-1", "f2", "7-2")

    async def test_go_on_behind_a_cursor(self) -> None:
        async with bench() as b:
            await b.commit(fact(1), fact(2))
            await b.send(live(7, 1), live(7, 2, seq=1), live(7, 3, seq=2))
            watching = b.watch(Position(seq=1, fence=7, n=2))
            await watching.reach("f2", "7-3")

    async def test_go_on_behind_all_of_a_fence(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            await b.send(live(7, 1, seq=1))
            watching = b.watch(Position(seq=1, fence=7, n=N_MAX))
            await until(lambda: watching.is_up_to_date)
            await b.send(live(7, 2, seq=1), live(8, 1, seq=1))
            await watching.reach("8-1")


class TestSubscriptions:
    async def test_are_shared_and_given_up_with_the_last_watcher(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            first, second = b.watch(), b.watch()
            await first.reach("f1")
            await second.reach("f1")
            await b.send(live(7, 1, seq=1))
            await second.reach("f1", "7-1")
            assert b.subscriber.asked == ["+t1"]
            await first.stop()
            await b.send(live(7, 2, seq=1))
            await second.reach("f1", "7-1", "7-2")
            await second.stop()
            await until(lambda: b.subscriber.asked == ["+t1", "-t1"])
            assert (b.hub.stats().threads, b.hub.stats().watchers) == (0, 0)

    async def test_come_back_with_a_new_watcher(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            for round_no in range(3):
                watching = b.watch()
                await watching.reach("f1", *(f"7-{n + 1}" for n in range(round_no)))
                await b.send(live(7, round_no + 1, seq=1))
                await watching.reach("f1", *(f"7-{n + 1}" for n in range(round_no + 1)))
                await watching.stop()

    async def test_share_one_body_and_one_reading(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watchings = [b.watch() for _ in range(10)]
            for watching in watchings:
                await until(lambda w=watching: w.is_up_to_date)  # type: ignore[misc]
            reads = b.facts.fact_reads
            await b.commit(fact(2))
            for watching in watchings:
                await watching.reach("f1", "f2")
            assert b.facts.fact_reads <= reads + 2
            last = {id(w.deliveries[-1].body) for w in watchings}
            assert len(last) == 1


class TestASlowWatcher:
    @pytest.mark.parametrize(
        ("bound", "chars", "last"),
        [({"queue_max": 8}, 0, 59), ({"queue_chars_max": 10_000}, 3000, 19)],
        ids=["of frames", "of characters"],
    )
    async def test_loses_its_queue_but_nothing_else(
        self, bound: dict[str, int], chars: int, last: int
    ) -> None:
        async with bench(**bound) as b:
            await b.commit(fact(1))
            slow, quick = b.watch(), b.watch()
            await slow.reach("f1")
            slow.gate.clear()
            await b.send(live(7, 1, seq=1))
            await slow.reach("f1", "7-1")
            for n in range(2, last + 1):
                await b.send(live(7, n, seq=1, text="x" * chars))
                await quick.reach("f1", *(f"7-{i}" for i in range(1, n + 1)))
            assert b.hub.stats().overflows > 0
            slow.gate.set()
            await slow.reach(*quick.marks)

    async def test_is_told_if_frames_are_really_gone(self) -> None:
        async with bench(queue_max=8) as b:
            await b.commit(fact(1))
            slow = b.watch()
            await slow.reach("f1")
            slow.gate.clear()
            await b.send(live(7, 1, seq=1))
            await slow.reach("f1", "7-1")
            for n in range(2, 40):
                await b.send(live(7, n, seq=1))
            await until(lambda: b.hub.stats().overflows > 0)
            b.live.flush()
            slow.gate.set()
            await b.send(live(7, 40, seq=1))
            await until(lambda: slow.marks[-1] == "7-40")
            assert "gap:trimmed" in slow.marks or "gap:lost" in slow.marks
            check_order(slow.steps, START)


class TestWithoutRedis:
    async def test_facts_and_the_end_arrive_by_the_heads(self) -> None:
        async with bench() as b:
            b.subscriber.drop()
            b.live.away = True
            b.facts.commit(fact(1))
            watching = b.watch(until="idle")
            await watching.reach("f1")
            b.facts.commit(fact(2, "run_ended", live=(7, 5)))
            b.facts.state = "idle"
            await watching.reach("f1", "gap:lost", "f2", "end:idle")
            await asyncio.wait({watching.task})

    async def test_a_reconnect_reads_what_was_missed(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.subscriber.drop()
            await b.send(live(7, 2, seq=1))
            await b.commit(fact(2))
            await b.send(live(7, 3, seq=2))
            b.subscriber.reconnect()
            await watching.reach("f1", "7-1", "7-2", "f2", "7-3")

    async def test_a_hole_that_nobody_can_fill_is_marked(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.live.away = True
            b.subscriber.away = True
            await b.send(live(7, 2, seq=1))
            b.subscriber.away = False
            await b.send(live(7, 3, seq=1))
            await watching.reach("f1", "7-1", "gap:trimmed", "7-3")

    async def test_a_false_doorbell_holds_nothing_up(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            await b.live.ring(THREAD, 999)
            await b.send(live(7, 1, seq=998), live(7, 2, seq=1))
            await watching.reach("f1", "7-1", "7-2")


class TestTheEnd:
    async def test_comes_at_once_when_the_thread_rests_already(self) -> None:
        async with bench(head_every=60) as b:
            b.facts.state = "paused"
            await b.commit(fact(1), fact(2))
            watching = b.watch(until="idle")
            await watching.reach("f1", "f2", "end:paused")

    async def test_comes_with_the_last_fact_not_with_the_beat(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching, open_ended = b.watch(until="idle"), b.watch()
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.facts.state = "idle"
            await b.commit(fact(2, "run_ended", live=(7, 1)))
            await watching.reach("f1", "7-1", "f2", "end:idle")
            await open_ended.reach("f1", "7-1", "f2")

    async def test_does_not_come_between_two_runs(self) -> None:
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch(until="idle")
            await watching.reach("f1")
            await b.commit(fact(2, "run_ended"), fact(3, "run_started"))
            await watching.reach("f1", "f2", "f3")
            b.facts.state = "idle"
            await b.commit(fact(4, "run_ended"))
            await watching.reach("f1", "f2", "f3", "f4", "end:idle")

    async def test_waits_for_live_frames_that_are_still_under_way(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch(until="idle")
            await b.send(live(7, 1, seq=1))
            await watching.reach("f1", "7-1")
            b.subscriber.away = True
            await b.send(live(7, 2, seq=1))
            b.facts.state = "idle"
            b.facts.commit(fact(2, "run_ended", live=(7, 2)))
            await watching.reach("f1", "7-1", "7-2", "f2", "end:idle")

    async def test_of_a_thread_without_facts(self) -> None:
        async with bench() as b:
            watching = b.watch(until="idle", thread="nobody")
            await watching.reach("end:idle")


class TestHeads:
    async def test_come_while_a_watcher_is_up_to_date(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await until(lambda: sum(d.frame.kind == "head" for d in watching.deliveries) >= 3)
            head = watching.deliveries[-1]
            assert (head.frame.seq, head.frame.data, head.position) == (1, {"state": "busy"}, Position(seq=1))

    async def test_cost_one_query_for_all_threads(self) -> None:
        async with bench(head_every=60) as b:
            for number in range(20):
                b.watch(thread=f"t{number}")
            await until(lambda: all(w.is_up_to_date for w in b.watches))
            assert b.facts.head_reads <= 3

    async def test_of_very_many_threads_are_read_some_at_a_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("threadhold.fanout.heads._PER_QUERY", 3)
        async with bench(head_every=60) as b:
            read, asked = b.facts.heads, list[int]()

            async def heads(threads: Sequence[str]) -> list[Head]:
                asked.append(len(threads))
                return await read(threads)

            monkeypatch.setattr(b.facts, "heads", heads)
            for number in range(20):
                b.watch(thread=f"t{number}")
            await until(lambda: all(w.is_up_to_date for w in b.watches))
            assert max(asked) == 3


class TestACursorOfAnotherLife:
    async def test_is_reset_to_what_exists(self) -> None:
        async with bench() as b:
            await b.commit(fact(1), fact(2))
            watching = b.watch(Position(seq=50, fence=99, n=3))
            await watching.reach("gap:reset")
            assert watching.deliveries[0].position == Position(seq=2)
            await b.commit(fact(3))
            await b.send(live(7, 1, seq=3))
            await watching.reach("gap:reset", "f3", "7-1")

    async def test_also_when_the_log_is_set_back_during_the_watch(self) -> None:
        async with bench() as b:
            await b.commit(fact(1), fact(2), fact(3))
            watching = b.watch()
            await watching.reach("f1", "f2", "f3")
            del b.facts.log[THREAD][1:]
            await watching.reach("f1", "f2", "f3", "gap:reset")
            await b.commit(fact(2))
            await watching.reach("f1", "f2", "f3", "gap:reset", "f2")
