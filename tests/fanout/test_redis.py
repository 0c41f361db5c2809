"""The live log and the subscriber on a real Valkey."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.fanout.support import THREAD, FakeFacts, Watching, check_order, fact, live, until
from tests.fanout.valkey import Valkey
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.hub import Hub
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, Rung, Signal
from threadhold.fanout.redis import RedisLive, RedisSignals, RedisSubscriber, connect

PREFIX = "test:"


class Ears:
    """A subscriber and what it has heard."""

    def __init__(self, subscriber: RedisSubscriber) -> None:
        self.subscriber = subscriber
        self.heard: list[Signal] = []
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async with aclosing(self.subscriber.signals()) as signals:  # type: ignore[type-var]
            async for signal in signals:
                self.heard.append(signal)

    async def hear(self, wanted: Callable[[Signal], bool], *, times: int = 1) -> None:
        await until(lambda: sum(map(wanted, self.heard)) >= times)


@asynccontextmanager
async def commands(url: str) -> AsyncIterator[Any]:
    client = connect(url)
    await client.flushall()
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def ears(url: str, **settings: Any) -> AsyncIterator[Ears]:
    subscriber = RedisSubscriber(url, prefix=PREFIX, **settings)
    made = Ears(subscriber)
    try:
        yield made
    finally:
        await subscriber.aclose()
        await asyncio.wait({made.task})


def confirmed(signal: Signal) -> bool:
    return isinstance(signal, Confirmed)


def dropped(signal: Signal) -> bool:
    return isinstance(signal, Dropped)


def arrived(signal: Signal) -> bool:
    return isinstance(signal, LiveArrived)


class TestTheLiveLog:
    async def test_returns_what_was_appended(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            frames = [live(7, n, seq=n, text="\u00e9\U0001f600\x00\ud83d") for n in range(1, 6)]
            assert await log.append(THREAD, 7, frames) == "accepted"
            assert await log.live(THREAD, after=(0, 0), limit=100) == frames
            assert await log.live(THREAD, after=(7, 2), limit=2) == frames[2:4]
            assert await log.live("nobody", after=(0, 0), limit=2) == []
            assert 0 < await client.ttl(f"{PREFIX}live:{THREAD}") <= 3600

    async def test_takes_a_repetition_as_accepted_and_publishes_it_once(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1), live(7, 2)])
            assert await log.append(THREAD, 7, [live(7, 1), live(7, 2), live(7, 3)]) == "accepted"
            await hearing.hear(arrived, times=3)
            assert [s.frame.n for s in hearing.heard if isinstance(s, LiveArrived)] == [1, 2, 3]
            assert len(await log.live(THREAD, after=(0, 0), limit=9)) == 3

    async def test_refuses_a_zombie(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await log.append(THREAD, 9, [live(9, 1)])
            assert await log.append(THREAD, 7, [live(7, 2)]) == "superseded"
            assert await log.append(THREAD, 9, [live(9, 2)]) == "accepted"
            await hearing.hear(arrived, times=3)
            assert [f.fence for f in await log.live(THREAD, after=(0, 0), limit=9)] == [7, 9, 9]

    async def test_compares_fences_as_numbers(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            big = 1_799_999_999_999_999
            await log.append(THREAD, 99, [live(99, 1)])
            assert await log.append(THREAD, big, [live(big, 1)]) == "accepted"
            assert await log.append(THREAD, big - 1, [live(big - 1, 1)]) == "superseded"

    async def test_accepts_again_after_a_flush(self, redis_url: str) -> None:
        async with commands(redis_url) as client:
            log = RedisLive(client, prefix=PREFIX)
            await log.append(THREAD, 7, [live(7, 1)])
            await client.flushall()
            await client.script_flush()
            assert await log.append(THREAD, 7, [live(7, 2)]) == "accepted"
            assert [f.n for f in await log.live(THREAD, after=(0, 0), limit=9)] == [2]

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
            assert [f.n for f in await log.live(THREAD, after=(0, 0), limit=9)] == [1, 4]

    async def test_publishes_only_a_pointer_to_a_big_frame(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            log = RedisLive(client, prefix=PREFIX)
            big = live(7, 1, text="x" * 400_000)
            await log.append(THREAD, 7, [big, live(7, 2)])
            await hearing.hear(arrived, times=2)
            assert [s.frame for s in hearing.heard if isinstance(s, LiveArrived)] == [big, live(7, 2)]

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
                    began = time.monotonic()
                    with pytest.raises(LiveUnavailable) as caught:
                        await call
                    assert time.monotonic() - began < 1.0
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


async def until_accepted(log: RedisLive) -> None:
    """Append until the server takes it."""
    async with asyncio.timeout(10):
        while True:
            try:
                assert await log.append(THREAD, 7, [live(7, 1)]) == "accepted"
                return
            except LiveUnavailable:
                await asyncio.sleep(0.01)


class TestTheSubscriber:
    async def test_hears_doorbells_frames_and_nudges(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            nudges: list[bytes] = []
            await hearing.subscriber.subscribe_channel("w:worker", nudges.append)
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            await hearing.subscriber.wait_healthy()
            log = RedisLive(client, prefix=PREFIX)
            await log.ring(THREAD, 5)
            await log.append(THREAD, 7, [live(7, 1)])
            await log.publish("w:worker", b"look")
            await until(lambda: nudges == [b"look"])
            assert hearing.heard == [
                Confirmed(thread=THREAD),
                Rung(thread=THREAD, seq=5),
                LiveArrived(frame=live(7, 1)),
            ]

    async def test_hears_nothing_of_a_thread_given_up_until_it_is_wanted_again(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            await hearing.subscriber.unsubscribe(THREAD)
            await hearing.subscriber.subscribe("other")
            await hearing.hear(confirmed, times=2)
            log = RedisLive(client, prefix=PREFIX)
            await log.ring(THREAD, 1)
            await log.ring("other", 2)
            await hearing.hear(lambda signal: signal == Rung(thread="other", seq=2))
            assert Rung(thread=THREAD, seq=1) not in hearing.heard
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed, times=3)

    async def test_survives_nonsense_and_a_failing_handler(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            nudges: list[bytes] = []

            def fail_first(payload: bytes) -> None:
                nudges.append(payload)
                if len(nudges) == 1:
                    raise RuntimeError("a bug in the handler")

            await hearing.subscriber.subscribe_channel("w:1", fail_first)
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            foreign = live(7, 1).body().replace(THREAD, "t2").encode()
            nonsense = (b"", b"X", b"D", b"Dx", b"L", b"L1-1 {", b"P1", b"P7-9", b"L7-1 " + foreign, b"\xff")
            for payload in nonsense:
                await client.publish(f"{PREFIX}ch:{THREAD}", payload)
            await client.publish(f"{PREFIX}w:1", b"1")
            await client.publish(f"{PREFIX}w:1", b"2")
            await until(lambda: nudges == [b"1", b"2"])
            # A pointer to a frame that is not there makes the hub read the backlog.
            assert hearing.heard == [Confirmed(thread=THREAD)] * 2

    async def test_comes_back_after_a_restart(self, valkey: Valkey) -> None:
        async with commands(valkey.url) as client, ears(valkey.url) as hearing:
            nudges: list[bytes] = []
            await hearing.subscriber.subscribe_channel("w:1", nudges.append)
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            valkey.stop()
            try:
                await hearing.hear(dropped)
                assert not hearing.subscriber.healthy
                await hearing.subscriber.subscribe("meanwhile")
            finally:
                valkey.start()
            await hearing.hear(confirmed, times=3)
            await hearing.subscriber.wait_healthy()
            assert hearing.heard[1] == Dropped()
            log = RedisLive(client, prefix=PREFIX)
            await until_accepted(log)
            await hearing.hear(arrived)
            await log.publish("w:1", b"again")
            await until(lambda: nudges == [b"again"])

    async def test_starts_without_a_server(self, valkey: Valkey) -> None:
        valkey.stop()
        try:
            async with ears(valkey.url) as hearing:
                await hearing.subscriber.subscribe(THREAD)
                await until(lambda: hearing.subscriber._outage)
                assert hearing.heard == []
                valkey.start()
                await hearing.hear(confirmed)
        finally:
            valkey.stop()
            valkey.start()

    async def test_comes_back_when_its_connection_is_killed(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await hearing.hear(dropped)
            await hearing.hear(confirmed, times=2)

    async def test_notices_a_server_that_hangs_by_its_own_heartbeat(self, valkey: Valkey) -> None:
        async with commands(valkey.url), ears(valkey.url, beat_every=0.05) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            valkey.freeze()
            try:
                await hearing.hear(dropped)
            finally:
                valkey.thaw()
            await hearing.hear(confirmed, times=2)

    async def test_is_not_fooled_by_a_blocked_loop(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url, beat_every=0.02) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            time.sleep(0.3)  # noqa: ASYNC251 - blocks the loop for many heartbeats, on purpose
            await RedisLive(client, prefix=PREFIX).ring(THREAD, 1)
            await hearing.hear(lambda signal: isinstance(signal, Rung))
            assert not any(map(dropped, hearing.heard))

    async def test_keeps_a_bounded_number_of_signals(self, redis_url: str) -> None:
        subscriber = RedisSubscriber(redis_url, prefix=PREFIX, signals_max=10)
        async with commands(redis_url) as client:
            nudges: list[bytes] = []
            await subscriber.subscribe(THREAD)
            await subscriber.subscribe_channel("w:1", nudges.append)
            await subscriber.wait_healthy()
            log = RedisLive(client, prefix=PREFIX)
            for seq in range(100):
                await log.ring(THREAD, seq)
            await log.publish("w:1", b"done")
            await until(lambda: nudges == [b"done"])
            made = Ears(subscriber)
            await made.hear(lambda signal: signal == Rung(thread=THREAD, seq=99))
            assert made.heard[:2] == [Dropped(), Confirmed(thread=THREAD)]
            assert len(made.heard) <= 12
            await subscriber.aclose()
            await asyncio.wait({made.task})


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
