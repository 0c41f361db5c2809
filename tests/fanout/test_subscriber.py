"""The subscriber on a real Valkey."""

import asyncio

from tests.fanout.crowd import PREFIX
from tests.fanout.ears import Ears, arrived, commands, confirmed, dropped, ears, until_accepted
from tests.fanout.support import THREAD, live, until
from tests.fanout.valkey import Valkey
from tests.support.clocks import put_forward
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, Missed, Rung
from threadhold.fanout.redis import RedisLive
from threadhold.fanout.subscriber import RedisSubscriber


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
            await hearing.hear(arrived)
            assert hearing.heard == [
                Confirmed(thread=THREAD),
                Rung(thread=THREAD, seq=5),
                LiveArrived(frame=live(7, 1), body=live(7, 1).body()),
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
            assert hearing.heard == [Confirmed(thread=THREAD), Missed(thread=THREAD)]

    async def test_is_healthy_only_when_it_hears_its_own_publish(self, redis_url: str) -> None:
        async with commands(redis_url) as client, ears(redis_url, beat_every=0.05) as hearing:
            await client.execute_command("ACL", "SETUSER", "default", "-publish")
            try:
                await hearing.subscriber.subscribe(THREAD)
                await hearing.hear(confirmed)
                assert not hearing.subscriber.healthy
                # It is given up after some beats, and made anew: the way out may be another one then.
                await hearing.hear(dropped)
                assert not hearing.subscriber.healthy
            finally:
                await client.execute_command("ACL", "SETUSER", "default", "+publish")
            await hearing.subscriber.wait_healthy()

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
            assert hearing.heard[1] == Dropped(threads=frozenset({THREAD}))
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
                # However many come and go meanwhile, nothing piles up.
                for number in range(100):
                    await hearing.subscriber.subscribe(f"passing{number}")
                    await hearing.subscriber.unsubscribe(f"passing{number}")
                assert len(hearing.subscriber._orders) == 0
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
        async with commands(redis_url) as client, ears(redis_url) as hearing:
            await hearing.subscriber.subscribe(THREAD)
            await hearing.hear(confirmed)
            await hearing.subscriber.wait_healthy()
            # So many heartbeats that it would long be given up, were the time counted.
            put_forward(60.0)
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
            assert made.heard[:2] == [Dropped(threads=frozenset({THREAD})), Confirmed(thread=THREAD)]
            assert len(made.heard) <= 12
            await subscriber.aclose()
            await asyncio.wait({made.task})

    async def test_of_more_threads_than_that_says_once_that_signals_were_dropped(
        self, redis_url: str
    ) -> None:
        subscriber = RedisSubscriber(redis_url, prefix=PREFIX, signals_max=10)
        async with commands(redis_url) as client:
            made = Ears(subscriber)
            for number in range(30):
                await subscriber.subscribe(f"t{number}")
            await made.hear(confirmed, times=30)
            made.task.cancel()
            await asyncio.wait({made.task})
            nudges: list[bytes] = []
            await subscriber.subscribe_channel("w:1", nudges.append)
            await subscriber.wait_healthy()
            log = RedisLive(client, prefix=PREFIX)
            # One more than there is room for with all of them confirmed, and then a few.
            for seq in range(45):
                await log.ring("t1", seq)
            await log.publish("w:1", b"done")
            await until(lambda: nudges == [b"done"])
            late = Ears(subscriber)
            await late.hear(lambda signal: signal == Rung(thread="t1", seq=44))
            assert sum(map(dropped, late.heard)) == 1
            assert sum(map(confirmed, late.heard)) == 30
            assert [s.seq for s in late.heard if isinstance(s, Rung)] == [40, 41, 42, 43, 44]
            await subscriber.aclose()
            await asyncio.wait({late.task})
