"""The live log, the doorbells and the nudges on Redis or Valkey; the only module here that imports the
driver.

Everything in Redis is a hint or a window. A call that fails raises `LiveUnavailable` within a bounded time.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from importlib import resources
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame, parse_frame
from threadhold.fanout.ports import AppendOutcome, Confirmed, Dropped, LiveArrived, Rung, Signal
from threadhold.fanout.wire import Doorbell, Names, Pointer, doorbell, parse_message, stream_id

log = structlog.get_logger(__name__)

# A redis.asyncio.Redis. The driver's own types are partial, and the separate stubs describe another version.
Client: TypeAlias = Any

# Servers may not count large payloads against a stalled subscriber's buffer, so these go by the stream.
_PUBLISH_BYTES_MAX: Final = 256 * 1024
_HINT_MAX: Final = 1.0
_CONNECT_MAX: Final = 1.0
_COMMAND_MAX: Final = 5.0
_RECONNECT_FIRST: Final = 0.05
_RECONNECT_MAX: Final = 1.0

_Result = TypeVar("_Result")


def connect(url: str) -> Client:
    """Return a client for commands, which is quick to say that Redis is away.

    A lost connection is tried once more; a refused one costs milliseconds, an unreachable host a second, a
    command on a frozen server five.
    """
    # Only connection errors are retried: a command that timed out has cost its caller enough.
    retry = Retry(ExponentialBackoff(cap=0.05, base=0.05), 1, supported_errors=(RedisConnectionError,))
    return Redis.from_url(
        url,
        socket_connect_timeout=_CONNECT_MAX,
        socket_timeout=_COMMAND_MAX,
        socket_keepalive=True,
        retry=retry,
        retry_on_error=[RedisConnectionError],
    )


def _connect_subscriber(url: str) -> Client:
    """Return a client whose connections may be silent for ever, and are never renewed behind our back."""
    return Redis.from_url(
        url,
        socket_connect_timeout=_CONNECT_MAX,
        socket_timeout=None,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )


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
        source = resources.files("threadhold.fanout").joinpath("live.lua").read_text(encoding="utf-8")
        self._append = client.register_script(source)

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> AppendOutcome:
        """Store and publish frames of one attempt, in one step; frames that are stored already count as
        accepted.

        Raises:
            LiveUnavailable: if Redis is away or full; the frames may have been stored.
        """
        bodies = itertools.chain.from_iterable((frame.n, frame.body()) for frame in frames)
        arguments = [fence, self._stream_frames_max, self._ttl, _PUBLISH_BYTES_MAX, *bodies]
        keys = [self._names.stream(thread), self._names.channel(thread)]
        script = self._append(keys=keys, args=arguments)
        accepted = await _ask("store live frames", script, within=_COMMAND_MAX)
        return "accepted" if accepted else "superseded"

    async def live(self, thread: str, *, after: tuple[int, int], limit: int) -> list[Frame]:
        """Return the stored live frames above `after`, oldest first, at most `limit`.

        Raises:
            LiveUnavailable: if Redis is away.
        """
        key, start = self._names.stream(thread), f"({stream_id(*after)}"
        command = self._client.xrange(key, min=start, count=limit)
        entries = await _ask("read live frames", command, within=_HINT_MAX)
        frames: list[Frame] = []
        for entry, fields in entries:
            # An entry that is no frame is left out; the hole that it leaves is marked for the watchers.
            try:
                frames.append(parse_frame(fields[b"f"]))
            except (KeyError, ValueError):
                log.warning("live_frame_unreadable", thread=thread, entry=entry.decode())
        return frames

    async def ring(self, thread: str, seq: int) -> None:
        """Tell all watching processes that the thread's log has grown to `seq`, within a second.

        Raises:
            LiveUnavailable: if Redis is away; watchers find the fact when they next look at Postgres.
        """
        await self._publish("ring a doorbell", self._names.channel(thread), doorbell(seq))


class RedisSubscriber:
    """The one subscription connection of this process: threads for the hub, plain channels for nudges.

    A network that dies in silence shows in no socket, so the connection proves that it lives: what this
    process publishes to itself each second has to come back.
    """

    def __init__(
        self,
        source: str | Callable[[], Client],
        *,
        prefix: str,
        beat_every: float = 1.0,
        beats_missed_max: int = 3,
        signals_max: int = 8192,
    ) -> None:
        """Subscribe at `source`; the connection is made with the first subscription.

        Args:
            source: a URL, or a function that returns a client, which then belongs to the subscriber.
            prefix: start of all channels.
            beat_every: seconds between two heartbeats.
            beats_missed_max: heartbeats that may be missing before the connection is given up.
            signals_max: signals kept for a hub that does not take them.
        """
        self._client: Client = _connect_subscriber(source) if isinstance(source, str) else source()
        self._names = Names(prefix)
        self._beat_channel = self._names.beat(uuid4().hex).encode()
        self._beat_every, self._beats_missed_max = beat_every, beats_missed_max
        self._unheard = 0
        self._threads: dict[bytes, str] = {}
        self._handlers: dict[bytes, Callable[[bytes], None]] = {}
        # Orders for the present connection; they are sent one after the other, so that none overtakes
        # another.
        self._orders: deque[tuple[str, bytes]] = deque()
        self._ordered = asyncio.Event()
        self._signals: deque[Signal] = deque()
        self._signals_max = signals_max
        self._signalled = asyncio.Event()
        self._up = asyncio.Event()
        self._outage = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Tell whether the connection is up, as far as its heartbeat can tell."""
        return self._up.is_set()

    async def wait_healthy(self) -> None:
        """Wait until the connection is up."""
        self._run_soon()
        await self._up.wait()

    async def subscribe(self, thread: str) -> None:
        """Ask for a thread's channel; a `Confirmed` follows each time it comes into force."""
        channel = self._names.channel(thread).encode()
        self._threads[channel] = thread
        self._order("SUBSCRIBE", channel)

    async def unsubscribe(self, thread: str) -> None:
        """Give a thread's channel up."""
        channel = self._names.channel(thread).encode()
        if self._threads.pop(channel, None) is not None:
            self._order("UNSUBSCRIBE", channel)

    async def subscribe_channel(self, name: str, handler: Callable[[bytes], None]) -> None:
        """Call `handler` with each payload published to the channel `name` (without the prefix).

        Payloads published while the connection is down are not heard.
        """
        channel = self._names.plain(name).encode()
        self._handlers[channel] = handler
        self._order("SUBSCRIBE", channel)

    async def signals(self) -> AsyncIterator[Signal]:
        """Yield what arrives for the subscribed threads, until `aclose`."""
        self._run_soon()
        while not self._closed:
            while self._signals:
                yield self._signals.popleft()
            self._signalled.clear()
            if not self._closed:
                await self._signalled.wait()

    async def aclose(self) -> None:
        """End the connection and the iteration."""
        self._closed = True
        self._signalled.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()

    def _run_soon(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="redis-subscriber")

    def _order(self, command: str, channel: bytes) -> None:
        self._orders.append((command, channel))
        self._ordered.set()
        self._run_soon()

    async def _run(self) -> None:
        delay = _RECONNECT_FIRST
        while True:
            try:
                await self._hold_connection()
            except* (RedisError, OSError) as errors:
                self._note_outage(errors.exceptions[0])
            except* Exception:
                # A bug; the connection is made anew, so that the process does not go deaf.
                log.exception("subscriber_failed")
            if self._up.is_set():
                delay = _RECONNECT_FIRST
                self._up.clear()
                self._push(Dropped())
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RECONNECT_MAX)

    def _note_outage(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not self._outage:
            log.warning("subscriber_disconnected", error=f"{type(error).__name__}: {error}")
        self._outage = True

    async def _hold_connection(self) -> None:
        connection = self._client.connection_pool.make_connection()
        try:
            async with asyncio.timeout(_CONNECT_MAX):
                await connection.connect()
            channels = [self._beat_channel, *self._threads, *self._handlers]
            self._orders = deque(("SUBSCRIBE", channel) for channel in channels)
            self._ordered.set()
            self._unheard = 0
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_orders(connection))
                group.create_task(self._listen(connection))
                group.create_task(self._beat())
        finally:
            await connection.disconnect(nowait=True)

    async def _send_orders(self, connection: Client) -> None:
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            orders, self._orders = self._orders, deque()
            for command, group in itertools.groupby(orders, key=lambda order: order[0]):
                await connection.send_command(command, *(channel for _, channel in group))

    async def _beat(self) -> None:
        """Publish to ourselves.

        Beats are counted, not timed, so that a loop that was blocked does not look like a dead network.
        """
        loop = asyncio.get_running_loop()
        while True:
            self._unheard += 1
            if self._unheard > self._beats_missed_max:
                raise RedisConnectionError("the heartbeats of the subscription do not come back")
            began = loop.time()
            with contextlib.suppress(RedisError, OSError):
                async with asyncio.timeout(self._beat_every):
                    await self._client.publish(self._beat_channel, b"")
            await asyncio.sleep(max(0.0, self._beat_every - (loop.time() - began)))

    async def _listen(self, connection: Client) -> None:
        while True:
            response = await connection.read_response(disable_decoding=True)
            if not isinstance(response, list):
                continue
            if response[0] == b"message":
                await self._hear(response[1], response[2])
            elif response[0] == b"subscribe":
                self._confirm(response[1])

    def _confirm(self, channel: bytes) -> None:
        if channel == self._beat_channel:
            if self._outage:
                log.info("subscriber_reconnected")
            self._outage = False
            self._up.set()
        elif channel in self._threads:
            self._push(Confirmed(thread=self._threads[channel]))

    async def _hear(self, channel: bytes, payload: bytes) -> None:
        if channel == self._beat_channel:
            self._unheard = 0
        elif channel in self._handlers:
            self._handle(self._handlers[channel], payload)
        elif channel in self._threads:
            await self._hear_thread(self._threads[channel], payload)

    def _handle(self, handler: Callable[[bytes], None], payload: bytes) -> None:
        try:
            handler(payload)
        except Exception:
            log.exception("nudge_handler_failed")

    async def _hear_thread(self, thread: str, payload: bytes) -> None:
        try:
            message = parse_message(payload)
        except ValueError as error:
            log.warning("live_message_unreadable", thread=thread, error=str(error))
            return
        if isinstance(message, Doorbell):
            self._push(Rung(thread=thread, seq=message.seq))
        elif isinstance(message, Pointer):
            self._push(await self._fetch(thread, message))
        elif message.thread == thread and message.is_live:
            self._push(LiveArrived(frame=message))

    async def _fetch(self, thread: str, pointer: Pointer) -> Signal:
        """Read the frame that was too big to publish.

        If that fails, a confirmation makes the hub read the thread's backlog instead.
        """
        entry = stream_id(pointer.fence, pointer.n)
        try:
            command = self._client.xrange(self._names.stream(thread), min=entry, max=entry)
            found = await _ask("read a live frame", command, within=_HINT_MAX)
            return LiveArrived(frame=parse_frame(found[0][1][b"f"]))
        except (LiveUnavailable, LookupError, ValueError) as error:
            log.info("live_frame_unavailable", thread=thread, error=str(error))
            return Confirmed(thread=thread)

    def _push(self, signal: Signal) -> None:
        if len(self._signals) >= self._signals_max:
            # Nobody takes them. A drop and a confirmation per thread say the same in less room: read it all
            # again.
            confirmations = (Confirmed(thread=thread) for thread in self._threads.values())
            self._signals = deque([Dropped(), *confirmations])
        self._signals.append(signal)
        self._signalled.set()
