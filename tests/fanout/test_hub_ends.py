"""How watches bear the loss of Postgres, bugs, and the end of their hub."""

import asyncio

import pytest

from tests.fanout.bench import START, bench
from tests.fanout.support import THREAD, fact, live, until
from threadhold.fanout import errors


class TestWithoutPostgres:
    async def test_watches_stay_open(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            b.facts.failing = True
            await b.commit(fact(2))
            await until(lambda: not b.hub.stats().healthy)
            await b.send(live(7, 1, seq=1))
            b.facts.failing = False
            await until(lambda: len(watching.marks) == 3)
            assert set(watching.marks) == {"f1", "7-1", "f2"}

    async def test_watches_end_with_a_typed_error_after_a_while(self) -> None:
        async with bench(facts_down_max=0.2) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            b.facts.failing = True
            await asyncio.wait({watching.task}, timeout=10)
            error = watching.task.exception()
            assert isinstance(error, errors.WatchInterrupted)
            assert (error.code, error.cursor, error.retryable) == ("unavailable", "1-0-0", True)

    async def test_a_new_watch_ends_too(self) -> None:
        async with bench(facts_down_max=0.2) as b:
            b.facts.failing = True
            watching = b.watch()
            await asyncio.wait({watching.task}, timeout=10)
            assert isinstance(watching.task.exception(), errors.WatchInterrupted)

    async def test_a_deleted_thread_ends_its_watch(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            b.facts.log.clear()
            await asyncio.wait({watching.task}, timeout=10)
            assert isinstance(watching.task.exception(), errors.WatchInterrupted)


class TestClosing:
    async def test_a_bug_in_a_job_does_not_leave_the_watchers_deaf(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("threadhold.fanout.hub._RESTART_PAUSE", 0.01)
        async with bench(head_every=60) as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            b.subscriber.push("nonsense")  # type: ignore[arg-type]
            await b.commit(fact(2))
            await watching.reach("f1", "f2")

    async def test_a_watch_after_it_ends_at_once(self) -> None:
        async with bench() as b:
            await b.hub.aclose()
            with pytest.raises(errors.WatchInterrupted, match="shutting down"):
                await anext(b.hub.watch(THREAD, START))

    async def test_ends_watches_with_a_typed_error(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watching = b.watch()
            await watching.reach("f1")
            await b.hub.aclose()
            with pytest.raises(errors.WatchInterrupted, match="shutting down"):
                await watching.task

    async def test_a_watch_that_is_closed_leaves_nothing_behind(self) -> None:
        async with bench() as b:
            await b.commit(fact(1))
            watch = b.hub.watch(THREAD, START)
            first = await anext(watch)
            assert first.frame.seq == 1
            await watch.aclose()
            assert b.hub.stats().watchers == 0
