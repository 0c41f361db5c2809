"""The live log and the subscriber inside one process: for programs without Redis, and for tests.

Same contract as on Redis, except that nothing is lost: there is no connection that could break.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import Confirmed, Dropped, LiveArrived, LivePage, Place, Rung, Signal

_SIGNALS_MAX: Final = 8192


class MemoryLive:
    """Streams and channels in memory."""

    def __init__(self, *, stream_frames_max: int = 2000) -> None:
        """Make an empty live log; `stream_frames_max` frames are kept per thread."""
        self._stream_frames_max = stream_frames_max
        self._streams: dict[str, list[Frame]] = {}
        self._subscribers: set[MemorySubscriber] = set()

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        """Store frames of one attempt and hand on those that are new, unless a later attempt has written."""
        stream = self._streams.setdefault(thread, [])
        top = (stream[-1].fence, stream[-1].n) if stream else (0, 0)
        if top[0] > fence:
            return top
        fresh = [frame for frame in frames if (fence, frame.n) > top]
        stream.extend(fresh)
        del stream[: -self._stream_frames_max]
        for frame in fresh:
            self._tell(thread, LiveArrived(frame=frame))
        return None

    async def clear(self, thread: str, top: Place) -> None:
        """Forget the stored frames of a thread, if the newest of them still is at `top`."""
        if (await self.tops([thread])).get(thread) == top:
            del self._streams[thread]

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        """Return the stored live frames above `after`, at most `limit`."""
        stream = self._streams.get(thread, [])
        start = bisect_right(stream, after, key=lambda frame: (frame.fence, frame.n))
        return LivePage(frames=stream[start : start + limit], more=len(stream) > start + limit)

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        """Return where the newest stored live frames of these threads are."""
        streams = ((thread, self._streams.get(thread)) for thread in threads)
        return {thread: (stream[-1].fence, stream[-1].n) for thread, stream in streams if stream}

    async def ring(self, thread: str, seq: int) -> None:
        """Tell the subscribers that the thread's log has grown to `seq`."""
        self._tell(thread, Rung(thread=thread, seq=seq))

    async def publish(self, name: str, payload: bytes) -> None:
        """Call the handlers of a named channel."""
        for subscriber in tuple(self._subscribers):
            subscriber.call(name, payload)

    def flush(self) -> None:
        """Forget all stored frames, as a flush of Redis would."""
        self._streams.clear()

    def attach(self, subscriber: "MemorySubscriber") -> None:
        """Let a subscriber hear what is published from now on."""
        self._subscribers.add(subscriber)

    def detach(self, subscriber: "MemorySubscriber") -> None:
        """Undo `attach`."""
        self._subscribers.discard(subscriber)

    def _tell(self, thread: str, signal: Signal) -> None:
        for subscriber in self._subscribers:
            subscriber.hear(thread, signal)


class MemorySubscriber:
    """One subscriber of a `MemoryLive`."""

    def __init__(self, live: MemoryLive) -> None:
        """Make a subscriber that hears what goes through `live`."""
        self._live = live
        self._threads: set[str] = set()
        self._handlers: dict[str, Callable[[bytes], None]] = {}
        self._signals: deque[Signal] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        live.attach(self)

    @property
    def healthy(self) -> bool:
        """Tell whether it is open."""
        return not self._closed

    @property
    def resubscriptions(self) -> int:
        """None: there is no connection that could break."""
        return 0

    async def wait_healthy(self) -> None:
        """Return at once: there is no connection to wait for."""

    async def subscribe(self, thread: str) -> None:
        """Hear a thread's channel from now on."""
        self._threads.add(thread)
        self.push(Confirmed(thread=thread))

    async def unsubscribe(self, thread: str) -> None:
        """Give a thread's channel up."""
        self._threads.discard(thread)

    async def subscribe_channel(self, name: str, handler: Callable[[bytes], None]) -> None:
        """Call `handler` with each payload that is published under `name`."""
        self._handlers[name] = handler

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield what arrives until `aclose`."""
        while not self._closed:
            while self._signals:
                yield self._signals.popleft()
            self._wake.clear()
            await self._wake.wait()

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed = True
        self._live.detach(self)
        self._wake.set()

    def hear(self, thread: str, signal: Signal) -> None:
        """Take in what was published on a thread's channel."""
        if thread in self._threads:
            self.push(signal)

    def push(self, signal: Signal) -> None:
        """Queue a signal for `signals`; too many are replaced by what makes the hub read everything again."""
        # As over Redis: what an overflow leaves must not fill the bound again.
        if len(self._signals) >= _SIGNALS_MAX + len(self._threads):
            confirmations = (Confirmed(thread=thread) for thread in self._threads)
            self._signals = deque([Dropped(threads=frozenset(self._threads)), *confirmations])
        self._signals.append(signal)
        self._wake.set()

    def call(self, name: str, payload: bytes) -> None:
        """Take in what was published on a named channel."""
        handler = self._handlers.get(name)
        if handler is not None:
            handler(payload)
