"""The one subscription connection of this process to a server."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final
from uuid import uuid4

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from threadhold.fanout.connections import CONNECT_MAX, Client, connect_subscriber
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, Missed, Rung, Signal
from threadhold.fanout.wire import Doorbell, Names, Pointer, parse_message

log = structlog.get_logger(__name__)

_RECONNECT_FIRST: Final = 0.05
_RECONNECT_MAX: Final = 1.0


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
        signals_bytes_max: int = 32 * 1024 * 1024,
    ) -> None:
        """Subscribe at `source`; the connection is made with the first subscription.

        Args:
            source: a URL, or a function that returns a client, which then belongs to the subscriber.
            prefix: start of all channels.
            beat_every: seconds between two heartbeats.
            beats_missed_max: heartbeats that may be missing before the connection is given up.
            signals_max, signals_bytes_max: what is kept for a hub that does not take it.
        """
        self._client: Client = connect_subscriber(source) if isinstance(source, str) else source()
        self._names = Names(prefix)
        self._beat_channel = self._names.beat(uuid4().hex).encode()
        self._beat_every, self._beats_missed_max = beat_every, beats_missed_max
        self._unheard = 0
        self._threads: dict[bytes, str] = {}
        # Those whose subscription the present connection has confirmed.
        self._in_force: set[str] = set()
        self._handlers: dict[bytes, Callable[[bytes], None]] = {}
        # Orders for the present connection, if there is one; they are sent one after the other, so that none overtakes
        # another.
        self._connected = False
        self._connections = 0
        self._orders: deque[tuple[str, bytes]] = deque()
        self._ordered = asyncio.Event()
        self._signals: deque[tuple[Signal, int]] = deque()
        self._signals_bytes = 0
        self._signals_max, self._signals_bytes_max = signals_max, signals_bytes_max
        self._signalled = asyncio.Event()
        self._listens = asyncio.Event()
        self._up = asyncio.Event()
        self._outage = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Tell whether this process hears what it publishes to itself."""
        return self._up.is_set()

    @property
    def resubscriptions(self) -> int:
        """How often everything had to be subscribed again, over a new connection."""
        return max(0, self._connections - 1)

    async def wait_healthy(self) -> None:
        """Wait until this process has heard its own publish."""
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
            self._in_force.discard(thread)
            self._order("UNSUBSCRIBE", channel)

    async def subscribe_channel(self, name: str, handler: Callable[[bytes], None]) -> None:
        """Call `handler` with each payload published to the channel `name` (without the prefix).

        Payloads published while the connection is down are not heard.
        """
        channel = self._names.plain(name).encode()
        self._handlers[channel] = handler
        self._order("SUBSCRIBE", channel)

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield what arrives for the subscribed threads, until `aclose`."""
        self._run_soon()
        while not self._closed:
            while self._signals:
                signal, size = self._signals.popleft()
                self._signals_bytes -= size
                yield signal
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
        # The next connection begins with all that is wanted by then.
        if self._connected:
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
            self._listens.clear()
            if self._in_force:
                self._push(Dropped(threads=frozenset(self._in_force)))
                self._in_force.clear()
            if self._up.is_set():
                delay = _RECONNECT_FIRST
                self._up.clear()
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
            async with asyncio.timeout(CONNECT_MAX):
                await connection.connect()
            channels = [self._beat_channel, *self._threads, *self._handlers]
            self._orders = deque(("SUBSCRIBE", channel) for channel in channels)
            self._ordered.set()
            self._connected = True
            self._connections += 1
            self._unheard = 0
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_orders(connection))
                group.create_task(self._listen(connection))
                group.create_task(self._beat())
        finally:
            self._connected = False
            await connection.disconnect(nowait=True)

    async def _send_orders(self, connection: Client) -> None:
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            orders, self._orders = self._orders, deque()
            for command, group in itertools.groupby(orders, key=lambda order: order[0]):
                await connection.send_command(command, *(channel for _, channel in group))

    async def _beat(self) -> None:
        """Publish to ourselves, from when the first beat can be heard.

        Beats are counted, not timed, so that a loop that was blocked does not look like a dead network.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._beat_every):
                await self._listens.wait()
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
                self._hear(response[1], response[2])
            elif response[0] == b"subscribe":
                self._confirm(response[1])

    def _confirm(self, channel: bytes) -> None:
        if channel == self._beat_channel:
            self._listens.set()
        elif channel in self._threads:
            thread = self._threads[channel]
            self._in_force.add(thread)
            self._push(Confirmed(thread=thread))

    def _hear(self, channel: bytes, payload: bytes) -> None:
        if channel == self._beat_channel:
            self._hear_beat()
        elif channel in self._handlers:
            self._handle(self._handlers[channel], payload)
        elif channel in self._threads:
            self._hear_thread(self._threads[channel], payload)

    def _hear_beat(self) -> None:
        self._unheard = 0
        if self._outage:
            log.info("subscriber_reconnected")
        self._outage = False
        self._up.set()

    def _handle(self, handler: Callable[[bytes], None], payload: bytes) -> None:
        try:
            handler(payload)
        except Exception:
            log.exception("nudge_handler_failed")

    def _hear_thread(self, thread: str, payload: bytes) -> None:
        try:
            message = parse_message(payload)
        except ValueError as error:
            log.warning("live_message_unreadable", thread=thread, error=str(error))
            return
        match message:
            case Doorbell():
                self._push(Rung(thread=thread, seq=message.seq))
            case Pointer():
                self._push(Missed(thread=thread))
            case _ if message.frame.thread == thread and message.frame.is_live:
                self._push(LiveArrived(frame=message.frame, body=message.text), size=len(payload))

    def _push(self, signal: Signal, *, size: int = 0) -> None:
        # A confirmation per thread is not held against the bound, or those that an overflow leaves would fill it again.
        room = self._signals_max + len(self._in_force)
        if len(self._signals) >= room or self._signals_bytes + size > self._signals_bytes_max:
            # Nobody takes them. A drop, and a confirmation per thread, say the same in less room: read it all again.
            dropped = Dropped(threads=frozenset(self._threads.values()))
            self._signals = deque([(dropped, 0), *((each, 0) for each in self._confirmations())])
            self._signals_bytes = 0
        self._signals.append((signal, size))
        self._signals_bytes += size
        self._signalled.set()

    def _confirmations(self) -> Iterator[Confirmed]:
        return (Confirmed(thread=thread) for thread in self._in_force)
