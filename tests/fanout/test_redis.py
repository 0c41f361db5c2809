"""The live log on a real Valkey."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fanout.crowd import PREFIX, CountedLive
from tests.fanout.ears import arrived, commands, confirmed, ears, until_accepted
from tests.fanout.support import THREAD, FakeFacts, Watching, check_order, fact, in_time, live, until
from tests.fanout.valkey import Valkey
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.hub import Hub
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LiveArrived, LivePage, Missed
from threadhold.fanout.redis import RedisLive, RedisSignals
from threadhold.fanout.subscriber import RedisSubscriber


@contextmanager
def deaf(server: Valkey) -> Iterator[None]:
    """Be subscribed, but never read."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"SUBSCRIBE {PREFIX}ch:{THREAD}\r\n".encode())
        assert connection.recv(1) == b"*"
        yield


class TestTheLiveLog:
    async def test_returns_what_was_appended(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            frames = [live(7, n, seq=n, text="\u00e9\U0001f600\x00\ud83d") for n in range(1, 6)]
            assert await log.append(THREAD, 7, frames) is None
            assert await log.live(THREAD, after=(0, 0), limit=100) == LivePage(frames=frames, more=False)
            assert await log.live(THREAD, after=(7, 2), limit=2) == LivePage(frames=frames[2:4], more=True)
            assert await log.live("nobody", after=(0, 0), limit=2) == LivePage(frames=[], more=False)
            assert 0 < await client.ttl(f"{PREFIX}live:{THREAD}") <= 3600

    async def test_takes_a_repetition_as_accepted_and_publishes_it_once(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1), live(7, 2)])
            assert await log.append(THREAD, 7, [live(7, 1), live(7, 2), live(7, 3)]) is None
            await hearing.hear(arrived, times=3)
            assert [s.frame.n for s in hearing.heard if isinstance(s, LiveArrived)] == [1, 2, 3]
            assert len((await log.live(THREAD, after=(0, 0), limit=9)).frames) == 3

    async def test_refuses_a_zombie(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await log.append(THREAD, 9, [live(9, 1)])
            assert await log.append(THREAD, 7, [live(7, 2)]) == (9, 1)
            assert await log.append(THREAD, 9, [live(9, 2)]) is None
            await hearing.hear(arrived, times=3)
            assert [f.fence for f in (await log.live(THREAD, after=(0, 0), limit=9)).frames] == [7, 9, 9]

    async def test_compares_fences_as_numbers(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            big = 1_799_999_999_999_999
            await log.append(THREAD, 99, [live(99, 1)])
            assert await log.append(THREAD, big, [live(big, 1)]) is None
            assert await log.append(THREAD, big - 1, [live(big - 1, 1)]) == (big, 1)

    async def test_accepts_again_after_a_flush(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await client.flushall()
            await client.script_flush()
            assert await log.append(THREAD, 7, [live(7, 2)]) is None
            assert [f.n for f in (await log.live(THREAD, after=(0, 0), limit=9)).frames] == [2]

    async def test_many_at_once_share_their_round_trips_and_keep_their_order(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            appends = [log.append(f"t{n % 50}", 7, [live(7, n // 50 + 1)]) for n in range(200)]
            assert await asyncio.gather(*appends) == [None] * 200
            assert len(client.connection_pool._available_connections) == 1
            for n in range(50):
                assert [f.n for f in (await log.live(f"t{n}", after=(0, 0), limit=9)).frames] == [1, 2, 3, 4]

    async def test_one_that_is_given_up_takes_no_other_along(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            given_up = asyncio.create_task(log.append("other", 7, [live(7, 1)]))
            kept = asyncio.create_task(log.append(THREAD, 7, [live(7, 1)]))
            await asyncio.sleep(0)
            given_up.cancel()
            assert await kept is None
            assert (await log.tops([THREAD])) == {THREAD: (7, 1)}

    async def test_that_is_closed_fails_as_if_redis_were_away(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await log.aclose()
            with pytest.raises(LiveUnavailable):
                await log.append(THREAD, 7, [live(7, 2)])
            assert await log.tops([THREAD]) == {THREAD: (7, 1)}

    async def test_keeps_about_so_many_frames(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX, stream_frames_max=100)
            await log.append(THREAD, 7, [live(7, n) for n in range(1, 1001)])
            assert 100 <= await client.xlen(f"{PREFIX}live:{THREAD}") < 400

    async def test_leaves_out_what_is_no_frame(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await client.xadd(f"{PREFIX}live:{THREAD}", {"f": "{"}, id="7-2")
            await client.xadd(f"{PREFIX}live:{THREAD}", {"other": "x"}, id="7-3")
            await log.append(THREAD, 7, [live(7, 4)])
            assert [f.n for f in (await log.live(THREAD, after=(0, 0), limit=9)).frames] == [1, 4]

    async def test_publishes_only_a_pointer_to_a_big_frame(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            frames = [live(7, 1), live(7, 2, text="x" * 16_000), live(7, 3)]
            await log.append(THREAD, 7, frames)
            await hearing.hear(arrived, times=2)
            first, missed, last = hearing.heard[1:]
            assert isinstance(first, LiveArrived)
            assert isinstance(last, LiveArrived)
            assert [first.frame, last.frame, missed] == [frames[0], frames[2], Missed(thread=THREAD)]
            assert (await log.live(THREAD, after=(0, 0), limit=9)).frames == frames

    async def test_a_deaf_subscriber_holds_no_big_frames_in_the_servers_memory(self, tmp_path: Path) -> None:
        # As servers are by default: what they send without a copy, they do not count.
        server = Valkey(tmp_path, {"min-string-size-avoid-copy-reply": "16384"})
        server.start()
        try:
            async with commands(server.url) as client:
                log = RedisLive(client, prefix=PREFIX)
                with deaf(server):

                    def grown() -> int:
                        return int(server.info("memory")["used_memory"]) - before

                    before = int(server.info("memory")["used_memory"])
                    for n in range(1, 201):
                        await log.append(THREAD, 7, [live(7, n, text="x" * 300_000)])
                    assert grown() > 190 * 300_000
                    await client.delete(f"{PREFIX}live:{THREAD}")
                    # It is freed in the background.
                    await until(lambda: grown() < 10 * 300_000)
                    assert len(server.clients("pubsub")) == 1
        finally:
            server.stop()

    async def test_returns_no_more_than_fits_into_an_answer(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            frames = [
                live(7, n, text="x" * size) for n, size in enumerate((10, 600_000, 600_000, 2_000_000, 9), 1)
            ]
            await log.append(THREAD, 7, frames)
            pages = []
            after, more = (0, 0), True
            while more:
                page = await log.live(THREAD, after=after, limit=100)
                pages.append([frame.n for frame in page.frames])
                after, more = (7, page.frames[-1].n), page.more
            assert pages == [[1, 2], [3], [4], [5]]

    async def test_knows_the_newest_places(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            threads = [f"t{number}" for number in range(450)]
            for number in range(0, 450, 150):
                await log.append(threads[number], 7, [live(7, 1), live(7, 12)])
            await log.append("t150", 10, [live(10, 1)])
            assert await log.tops(threads) == {"t0": (7, 12), "t150": (10, 1), "t300": (7, 12)}
            assert await log.tops([]) == {}

    async def test_clears_only_what_was_judged(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 9, [live(9, 1), live(9, 2)])
            await log.clear(THREAD, (9, 1))
            assert await log.append(THREAD, 7, [live(7, 1)]) == (9, 2)
            await log.clear(THREAD, (9, 2))
            assert await log.append(THREAD, 7, [live(7, 1)]) is None
            await log.clear("nobody", (9, 2))

    async def test_ends_wherever_it_is_cancelled_and_mixes_up_no_answers(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            cancelled = 0
            for turns in [*range(30)] * 10:
                call = asyncio.create_task(log.tops([THREAD, f"t{turns}"]))
                for _ in range(turns):
                    await asyncio.sleep(0)
                cancelled += call.cancel()
                await asyncio.wait({call})
                assert call.cancelled() or call.result() == {THREAD: (7, 1)}
                cancelled -= call.cancelled()
                assert cancelled == 0
                assert (await log.live(THREAD, after=(0, 0), limit=9)).frames == [live(7, 1)]

    async def test_spares_those_who_wait_for_a_reading_that_fails(self, valkey: Valkey) -> None:
        async with commands(valkey.url) as client:
            log = CountedLive(client)
            await log.live(THREAD, after=(0, 0), limit=1)
            valkey.freeze()
            try:
                readings = [log.live(f"t{number}", after=(0, 0), limit=1) for number in range(100)]
                answers = await asyncio.gather(*readings, return_exceptions=True)
            finally:
                valkey.thaw()
            assert {type(answer) for answer in answers} == {LiveUnavailable}
            assert log.tries <= 1 + 8
            assert (await log.live(THREAD, after=(0, 0), limit=1)).frames == []

    async def test_says_so_quickly_when_redis_is_away(self, valkey: Valkey) -> None:
        async with commands(valkey.url) as client:
            log = RedisLive(client, prefix=PREFIX)
            valkey.stop()
            try:
                for call in (
                    log.append(THREAD, 7, [live(7, 1)]),
                    log.live(THREAD, after=(0, 0), limit=1),
                    log.ring(THREAD, 1),
                    log.publish("w:1", b"x"),
                ):
                    with pytest.raises(LiveUnavailable) as caught:
                        await in_time(call, within=1.0)
                    assert (caught.value.code, caught.value.retryable) == ("live_unavailable", True)
            finally:
                valkey.start()
            await until_accepted(log)

    async def test_bounds_a_hint_when_redis_hangs(self, valkey: Valkey) -> None:
        async with commands(valkey.url) as client:
            signals = RedisSignals(client, prefix=PREFIX)
            await signals.publish("w:1", b"x")
            valkey.freeze()
            try:
                with pytest.raises(LiveUnavailable):
                    async with asyncio.timeout(5):
                        await signals.publish("w:1", b"x")
            finally:
                valkey.thaw()


class TestAWatchOverRedis:
    @asynccontextmanager
    async def hub(self, url: str, facts: FakeFacts, client: Any) -> AsyncIterator[Hub]:
        subscriber = RedisSubscriber(url, prefix=PREFIX, beat_every=0.1)
        hub = Hub(facts, RedisLive(client, prefix=PREFIX), subscriber, head_every=0.1)
        await hub.start()
        try:
            yield hub
        finally:
            await hub.aclose()
            await subscriber.aclose()

    async def test_goes_through_a_restart_of_the_server(self, valkey: Valkey) -> None:
        facts = FakeFacts()
        facts.commit(fact(1))
        async with commands(valkey.url) as client, self.hub(valkey.url, facts, client) as hub:
            log = RedisLive(client, prefix=PREFIX)
            outbox = Outbox(log, thread=THREAD, run="r1", fence=7)
            outbox.start(attempt=1, seq=1)
            watching = Watching(hub.watch(THREAD, Position(), until="idle"))
            await watching.reach("f1", "7-1")
            valkey.stop()
            outbox.put("draft", {"text": "while redis is away"}, seq=1)
            facts.commit(fact(2))
            await watching.reach("f1", "7-1", "f2")
            valkey.start()
            await watching.reach("f1", "7-1", "f2", "7-2")
            outbox.put("draft", {"text": "afterwards"}, seq=2)
            assert await outbox.flush(5.0)
            facts.commit(fact(3, "run_ended", live=outbox.position))
            facts.state = "idle"
            await watching.reach("f1", "7-1", "f2", "7-2", "7-3", "f3", "end:idle")
            check_order(watching.steps, Position())
            await outbox.aclose()
