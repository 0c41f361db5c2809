"""What crowds watch: threads that are busy for ever, and frames for them through real outboxes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import asyncpg

from benchmarks.stack import BY, Bench
from benchmarks.stamps import now
from benchmarks.tally import KIND
from threadhold.fanout.connections import connect
from threadhold.fanout.frame import Frame
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import Place
from threadhold.fanout.redis import RedisLive

FENCE: Final = 1_800_000_000_000_000
"""As long as real ones, which are microseconds since 1970."""
TEXT: Final = "x" * 160
"""With it the `data` of a frame is about 200 bytes of JSON."""
# Marks that the outboxes may be ahead of the crowd, and calls to Redis at once, as of a worker with that capacity.
AHEAD: Final = 3
CALLS_MAX: Final = 50
COPIES: Final = "bench:copies"
# A run of theirs is running for ever, without a claim that anybody could find lapsed.
_THREADS: Final = """
    WITH made AS (
        INSERT INTO {schema}.threads (id, workspace, owner, agent, state, current_run, run_no, fence)
        SELECT thread, $2, $3, 'bench', 'busy', thread, 1, $4 FROM unnest($1::uuid[]) AS thread
    )
    INSERT INTO {schema}.runs (id, thread_id, run_no, agent, principal, status, first_seq, fence_before, take_at)
    SELECT thread, thread, 1, 'bench', $3, 'running', 0, 0, now() FROM unnest($1::uuid[]) AS thread
"""
_WORKSPACE: Final = "INSERT INTO {schema}.workspaces (id) VALUES ($1) ON CONFLICT DO NOTHING"
_HEADS: Final = "SELECT id, log_seq, fence, state FROM {schema}.threads WHERE id = ANY ($1::uuid[])"


class Feed:
    """Makes threads and feeds them.

    Args:
        bench: the stack.
        database: a connection to its Postgres.
        redis: a client of its Redis, from `connect`.
    """

    def __init__(self, bench: Bench, database: Any, redis: Any) -> None:
        self.redis = redis
        self._database = database
        self._schema = bench.settings.db_schema
        self._stamps = bench.stamps
        # As of so many workers: what one sends at once goes together.
        self._lives = [
            _Narrow(
                redis,
                prefix=bench.settings.redis_prefix,
                stream_frames_max=bench.settings.live_frames,
                ttl=bench.settings.live_ttl.total_seconds(),
            )
            for _ in range(CALLS_MAX)
        ]
        self._live = self._lives[0]

    async def threads(self, count: int) -> list[str]:
        """Make threads that nobody works on, though they are busy."""
        threads = [str(uuid4()) for _ in range(count)]
        await self._database.execute(_WORKSPACE.format(schema=self._schema), BY.workspace)
        await self._database.execute(
            _THREADS.format(schema=self._schema), threads, BY.workspace, BY.id, FENCE
        )
        return threads

    async def heads(self, threads: Sequence[str]) -> float:
        """Return the seconds that a hub's query for the heads of threads takes."""
        began = now()
        await self._database.fetch(_HEADS.format(schema=self._schema), threads)
        return now() - began

    @asynccontextmanager
    async def outboxes(self, threads: Sequence[str]) -> AsyncIterator[list[Outbox]]:
        """Open an outbox per thread."""
        outboxes = [Outbox(self._live, thread=thread, run=thread, fence=FENCE) for thread in threads]
        for outbox in outboxes:
            outbox.start(attempt=1, seq=0)
        try:
            yield outboxes
        finally:
            await asyncio.gather(*(outbox.aclose() for outbox in outboxes))

    async def flood(self, name: str, outboxes: Sequence[Outbox], *, marks: int, each: int) -> None:
        """Send as fast as the crowd takes it.

        Args:
            name: of the crowd's tally, which reaches a mark each time all have got `each` frames of each outbox.
            outboxes: where to.
            marks: how many marks to reach.
            each: frames per outbox and mark.
        """
        for number in range(1, marks + 1):
            for _ in range(each):
                for outbox in outboxes:
                    outbox.put(KIND, stamped(), seq=0)
            if number > AHEAD:
                await self._stamps.of("heard", f"{name}:{number - AHEAD}")
        for number in range(max(0, marks - AHEAD) + 1, marks + 1):
            await self._stamps.of("heard", f"{name}:{number}")

    async def drip(self, outboxes: Sequence[Outbox], *, frames: int, pause: float, text: str = TEXT) -> None:
        """Send one frame to each outbox in turn, `pause` seconds apart."""
        began = now()
        for number in range(frames):
            outboxes[number % len(outboxes)].put(KIND, stamped(text), seq=0)
            await asyncio.sleep(began + (number + 1) * pause - now())

    async def singly(self, threads: Sequence[str], numbers: Sequence[int]) -> None:
        """Store and publish a frame per thread and number, each in a round trip of its own, some at once."""
        for n in numbers:
            for start in range(0, len(threads), len(self._lives)):
                some = zip(self._lives, threads[start:], strict=False)
                await asyncio.gather(
                    *(live.append(thread, FENCE, [_frame(thread, n, TEXT)]) for live, thread in some)
                )

    async def rung(self, threads: Sequence[str], times: int) -> None:
        """Ring each thread's doorbell so often: one bare PUBLISH each."""
        for _ in range(times):
            await asyncio.gather(*(self._live.ring(thread, 0) for thread in threads))

    async def copied(self, text: str, *, listeners: int, times: int) -> None:
        """Publish a text on a channel to which so many connections listen, and wait until all have heard it."""
        pubsubs = [self.redis.pubsub() for _ in range(listeners)]
        for pubsub in pubsubs:
            await pubsub.subscribe(COPIES)
        hearing = [asyncio.create_task(_hear(pubsub, times)) for pubsub in pubsubs]
        for _ in range(times):
            await self.redis.publish(COPIES, text)
        await asyncio.gather(*hearing)
        for pubsub in pubsubs:
            await pubsub.aclose()

    async def stored(self, thread: str, text: str, frames: int) -> tuple[int, int, int]:
        """Fill a thread's stream; return its length, its bytes in Redis and those of a frame's JSON."""
        made = [_frame(thread, n, text) for n in range(1, frames + 1)]
        for start in range(0, frames, CALLS_MAX):
            await self._live.append(thread, FENCE, made[start : start + CALLS_MAX])
        key = self._live.key(thread)
        return (
            await self.redis.xlen(key),
            await self.redis.memory_usage(key, samples=0),
            len(made[-1].body()),
        )


class _Narrow(RedisLive):
    """Makes no more calls at once than a worker does."""

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._slots = asyncio.Semaphore(CALLS_MAX)

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        """Wait for a free slot, and append."""
        async with self._slots:
            return await super().append(thread, fence, frames)

    def key(self, thread: str) -> str:
        """Return the name of a thread's stream."""
        return self._names.stream(thread)


async def _hear(pubsub: Any, times: int) -> None:
    while times:
        message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
        times -= message is not None


def stamped(text: str = TEXT) -> dict[str, Any]:
    """Return the data of a frame that says when it was sent."""
    return {"stamp": now(), "text": text}


def _frame(thread: str, n: int, text: str) -> Frame:
    data = {"stamp": now(), "text": text}
    at = "2026-01-02T03:04:05.678901+00:00"
    return Frame(thread=thread, run=thread, fence=FENCE, n=n, seq=0, kind=KIND, at=at, data=data)


@asynccontextmanager
async def open_feed(bench: Bench) -> AsyncIterator[Feed]:
    """Connect to both servers."""
    database = await asyncpg.connect(bench.settings.database_url)
    redis = connect(bench.settings.redis_url or "")
    try:
        yield Feed(bench, database, redis)
    finally:
        await redis.aclose()
        await database.close()
