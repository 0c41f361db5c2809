"""The live log, the doorbells and the nudges on Redis or Valkey.

Everything in Redis is a hint or a window. A call that fails raises `LiveUnavailable` within a bounded time.
"""

import asyncio
import itertools
import math
from collections.abc import Coroutine, Sequence
from importlib import resources
from typing import Any, Final, TypeVar

import structlog
from redis.exceptions import RedisError

from threadhold.fanout.batches import Batches
from threadhold.fanout.connections import COMMAND_MAX, Client
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame, parse_frame
from threadhold.fanout.ports import LivePage, Place
from threadhold.fanout.wire import Names, doorbell, parse_stream_id, stream_id

log = structlog.get_logger(__name__)

# A larger frame goes by the stream alone: servers with a zero-copy reply path do not count payloads of 16 KiB and more
# against a stalled subscriber's output buffer, so that one deaf process could fill the server's memory.
PUBLISH_BYTES_MAX: Final = 16_000
# What one reading of a window may hold.
_PAGE_BYTES_MAX: Final = 1024 * 1024
_TOPS_PER_CALL: Final = 200
_HINT_MAX: Final = 1.0
_READINGS_MAX: Final = 8

_Result = TypeVar("_Result")


async def _ask(operation: str, command: Coroutine[Any, Any, _Result], *, within: float) -> _Result:
    """Await a command, bounded in time, and translate what the driver raises."""
    try:
        async with asyncio.timeout(within):
            return await command
    except (RedisError, OSError) as error:  # TimeoutError is an OSError
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise LiveUnavailable(operation, cause) from error


class RedisSignals:
    """Publishes nudges on plain named channels."""

    def __init__(self, client: Client, *, prefix: str) -> None:
        """Publish with `client`, under names that start with `prefix`."""
        self._client = client
        self._names = Names(prefix)

    async def publish(self, name: str, payload: bytes) -> None:
        """Publish to the channel `name` (without the prefix), within a second.

        Raises:
            LiveUnavailable: if Redis is away; the nudge's durable twin will be found without it.
        """
        await self._publish("publish a nudge", self._names.plain(name), payload)

    async def _publish(self, operation: str, channel: str, payload: bytes) -> None:
        await _ask(operation, self._client.publish(channel, payload), within=_HINT_MAX)


class RedisLive(RedisSignals):
    """The window of live frames: one capped stream and one channel per thread."""

    def __init__(
        self, client: Client, *, prefix: str, stream_frames_max: int = 2000, ttl: float = 3600.0
    ) -> None:
        """Use `client`, and keys that start with `prefix`.

        Args:
            client: from `connect`.
            prefix: start of all keys and channels.
            stream_frames_max: about how many frames are kept per thread.
            ttl: seconds a thread's frames are kept after the last one.
        """
        super().__init__(client, prefix=prefix)
        self._stream_frames_max = stream_frames_max
        self._ttl = max(1, round(ttl))
        self._append = Batches(client, _script("live"))
        self._window, self._tops, self._clear = (
            client.register_script(_script(name)) for name in ("window", "tops", "clear")
        )
        self._reading = asyncio.Semaphore(_READINGS_MAX)
        self._reading_failed_at = -math.inf

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        """Store and publish frames of one attempt, in one step; frames that are stored already count as
        accepted.

        Returns None, or the place of the newest stored frame if that has a larger fence.

        Raises:
            LiveUnavailable: if Redis is away or full, or this is closed; the frames may have been stored.
        """
        bodies = itertools.chain.from_iterable((frame.n, frame.body()) for frame in frames)
        arguments = [fence, self._stream_frames_max, self._ttl, PUBLISH_BYTES_MAX, *bodies]
        keys = [self._names.stream(thread), self._names.channel(thread)]
        newest = await _ask("store live frames", self._append.call(keys, arguments), within=COMMAND_MAX)
        return None if newest is None else parse_stream_id(newest)

    async def aclose(self) -> None:
        """Store nothing any more; appends that are under way fail at once. The client stays its owner's to close."""
        await self._append.aclose()

    async def clear(self, thread: str, top: Place) -> None:
        """Forget the stored frames of a thread, if the newest of them still is at `top`.

        Raises:
            LiveUnavailable: if Redis is away.
        """
        script = self._clear(keys=[self._names.stream(thread)], args=[stream_id(*top)])
        await _ask("clear live frames", script, within=_HINT_MAX)

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        """Return the stored live frames above `after`, at most `limit`, fewer if they are large.

        A few readings run at a time. Where one fails, those that wait for it fail with it.

        Raises:
            LiveUnavailable: if Redis is away.
        """
        arguments = [stream_id(*after), limit, _PAGE_BYTES_MAX]
        clock, operation = asyncio.get_running_loop().time, "read live frames"
        asked_at = clock()
        async with self._reading:
            if asked_at <= self._reading_failed_at:
                raise LiveUnavailable(operation, "it has just failed to answer others")
            script = self._window(keys=[self._names.stream(thread)], args=arguments)
            try:
                more, *entries = await _ask(operation, script, within=_HINT_MAX)
            except LiveUnavailable:
                self._reading_failed_at = clock()
                raise
        frames: list[Frame] = []
        for id, body in zip(entries[::2], entries[1::2], strict=True):
            # An entry that is no frame is left out; the hole that it leaves is marked for the watchers.
            try:
                frames.append(parse_frame(body))
            except ValueError:
                log.warning("live_frame_unreadable", thread=thread, entry=id.decode())
        return LivePage(frames=frames, more=bool(more and frames))

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        """Return where the newest stored live frames of these threads are; those that have none are left out.

        Raises:
            LiveUnavailable: if Redis is away.
        """
        found: dict[str, Place] = {}
        for start in range(0, len(threads), _TOPS_PER_CALL):
            some = threads[start : start + _TOPS_PER_CALL]
            script = self._tops(keys=[self._names.stream(thread) for thread in some])
            ids = await _ask("look for newer live frames", script, within=_HINT_MAX)
            found |= {thread: parse_stream_id(id) for thread, id in zip(some, ids, strict=True) if id}
        return found

    async def ring(self, thread: str, seq: int) -> None:
        """Tell all watching processes that the thread's log has grown to `seq`, within a second.

        Raises:
            LiveUnavailable: if Redis is away; watchers find the fact when they next look at Postgres.
        """
        await self._publish("ring a doorbell", self._names.channel(thread), doorbell(seq))


def _script(name: str) -> str:
    return resources.files("threadhold.fanout").joinpath(f"{name}.lua").read_text(encoding="utf-8")
