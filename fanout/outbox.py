"""The outbox of one attempt: numbers live frames and sends them, and never holds up or fails the run.

Redis may be slow, away or flushed. The outbox then keeps what fits, drops the oldest of the rest, and goes on
trying; the numbering shows watchers what is missing. What must not be missing is a fact, and facts do not go
through here.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from pydantic_core import to_json

from threadhold.fanout.deltas import OpenDelta
from threadhold.fanout.frame import Frame, Kind
from threadhold.fanout.ports import LiveLog, Place

log = structlog.get_logger(__name__)

# A joined delta is sealed at this many characters, before its window has passed.
_DELTA_CHARS_MAX: Final = 2048
_BATCH_FRAMES_MAX: Final = 100
_BATCH_BYTES_MAX: Final = 256 * 1024
_RETRY_FIRST: Final = 0.05
_RETRY_MAX: Final = 1.0


def _now() -> datetime:
    return datetime.now(UTC)


def _size(data: dict[str, Any]) -> int:
    """Return how long something is as JSON; a TypeError or ValueError says that it is none."""
    try:
        return len(to_json(data))
    except ValueError:
        return len(json.dumps(data))


async def _nobody() -> bool:
    return False


class Outbox:
    """Live frames of one attempt on their way to the watchers."""

    def __init__(
        self,
        live: LiveLog,
        *,
        thread: str,
        run: str,
        fence: int,
        sure: Callable[[], bool] = lambda: True,
        holds: Callable[[], Awaitable[bool]] = _nobody,
        clock: Callable[[], datetime] = _now,
        window: float = 0.05,
        frames_max: int = 1000,
        bytes_max: int = 4 * 1024 * 1024,
        admission: dict[str, Any] | None = None,
    ) -> None:
        """Make the outbox of the attempt that holds `fence`; `start` has to be called before anything is
        sent.

        Args:
            live: where the frames go.
            thread: the thread.
            run: the run.
            fence: the fence of the attempt's claim.
            sure: tells whether nobody can have taken the thread; while it is False, frames wait.
            holds: asks the database whether the attempt still has its claim; called when Redis knows a later one.
            clock: the time that frames are stamped with, in UTC.
            window: seconds that the deltas of one part are collected before they are sent.
            frames_max: frames kept while they cannot be sent; beyond, the oldest are dropped.
            bytes_max: the same in bytes (of JSON, roughly).
            admission: what the run was admitted with; each frame carries it.
        """
        self._live, self._thread, self._run, self._fence = live, thread, run, fence
        self._sure, self._holds, self._clock, self._window = sure, holds, clock, window
        self._frames_max, self._bytes_max = frames_max, bytes_max
        self._admission = admission
        self._frames: deque[tuple[Frame, int]] = deque()
        self._bytes = 0
        self._open: OpenDelta | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._numbered = 0
        self._settled = 0
        self._dropped = 0
        self._failing = False
        self._superseded = False
        self._closed = False
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @property
    def superseded(self) -> bool:
        """Tell whether a later attempt has written; from then on this outbox is silent."""
        return self._superseded

    @property
    def position(self) -> tuple[int, int]:
        """The fence, and the number of the last frame that was numbered: what a closing fact names.

        Deltas that still wait for more text have no number yet; `flush` gives them theirs.
        """
        return self._fence, self._numbered

    @property
    def dropped(self) -> int:
        """How many frames were given up because Redis did not take them in time."""
        return self._dropped

    def start(self, *, attempt: int, seq: int) -> None:
        """Send the `attempt` frame, which shuts out what an earlier attempt may still send, and begin
        sending.

        Args:
            attempt: which attempt of the run this is, from 1.
            seq: the newest fact of the thread.
        """
        if self._sender is not None:
            raise RuntimeError("the outbox was started before; make one per attempt")
        self._sender = asyncio.get_running_loop().create_task(self._send())
        self.put("attempt", {"attempt": attempt}, seq=seq)

    def put(self, kind: Kind, data: dict[str, Any], *, seq: int) -> None:
        """Take a frame in. Never waits and never raises; `data` must not be changed afterwards.

        Args:
            kind: `event`, `draft` or `attempt`.
            data: the content, as JSON can hold it.
            seq: the newest fact of the thread, after which the frame belongs.
        """
        if self._closed or self._superseded:
            return
        if kind == "event" and self._join(data, seq=seq):
            return
        self._seal()
        self._enqueue(kind, data, seq=seq)

    async def flush(self, timeout: float = 0.05) -> bool:  # noqa: ASYNC109 - the bound is the point of it
        """Wait until what was put so far has been sent, at most `timeout` seconds; tell whether it was.

        While Redis is known to be away it does not wait. Frames that come too late keep their place: they are
        sent when Redis is back, and a watcher that has meanwhile read the fact that closes the attempt drops
        them behind a gap.
        """
        self._seal()
        target = self._numbered
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._settled < target and not (self._failing or self._superseded):
                    self._progress.clear()
                    await self._progress.wait()
        return self._settled >= target

    async def aclose(self, timeout: float = 0.5) -> None:  # noqa: ASYNC109 - the bound is the point of it
        """Send what is left, at most `timeout` seconds, and end the sender. What comes later is ignored."""
        if self._sender is None:
            self._closed = True
            return
        try:
            await self.flush(timeout)
        finally:
            self._closed = True
            self._sender.cancel()
            await asyncio.wait({self._sender})

    def _join(self, data: dict[str, Any], *, seq: int) -> bool:
        if self._open is not None and self._open.absorb(data, seq=seq):
            if self._open.size >= _DELTA_CHARS_MAX:
                self._seal()
            return True
        opened = OpenDelta.of(data, seq=seq)
        if opened is None:
            return False
        self._seal()
        self._open = opened
        self._timer = asyncio.get_running_loop().call_later(self._window, self._seal)
        return True

    def _seal(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open is not None:
            opened, self._open = self._open, None
            self._enqueue("event", opened.sealed(), seq=opened.seq)

    def _enqueue(self, kind: Kind, data: dict[str, Any], *, seq: int) -> None:
        try:
            size = _size(data)
        except (TypeError, ValueError, RecursionError) as error:
            # The frame takes its number all the same, so that watchers see that something is missing here.
            log.error(
                "frame_unencodable", thread=self._thread, run=self._run, kind=kind, error=type(error).__name__
            )
            self._numbered += 1
            self._dropped += 1
            self._work.set()
            return
        self._numbered += 1
        frame = Frame(
            thread=self._thread,
            run=self._run,
            fence=self._fence,
            n=self._numbered,
            seq=seq,
            kind=kind,
            at=self._clock().isoformat(),
            data=data,
            admission=self._admission,
        )
        self._frames.append((frame, size))
        self._bytes += size
        while len(self._frames) > self._frames_max or self._bytes > self._bytes_max:
            self._shift()
            self._dropped += 1
        self._work.set()

    def _shift(self) -> None:
        _, size = self._frames.popleft()
        self._bytes -= size

    async def _send(self) -> None:
        delay = _RETRY_FIRST
        while not self._superseded:
            await self._work.wait()
            batch = self._batch()
            if not batch:
                self._settle(self._numbered)
                self._work.clear()
            elif await self._append(batch):
                delay = _RETRY_FIRST
            else:
                await asyncio.sleep(delay)
                delay = min(delay * 2, _RETRY_MAX)

    def _batch(self) -> list[Frame]:
        batch: list[Frame] = []
        size = 0
        for frame, frame_size in self._frames:
            size += frame_size
            if batch and (len(batch) == _BATCH_FRAMES_MAX or size > _BATCH_BYTES_MAX):
                break
            batch.append(frame)
        return batch

    async def _append(self, batch: list[Frame]) -> bool:
        """Send a batch; tell whether Redis answered. The same frames may be sent twice, which is harmless."""
        if not self._sure():
            return False
        try:
            newer = await self._live.append(self._thread, self._fence, batch)
            if newer is not None:
                return await self._yield_to(newer)
        except Exception as error:  # whatever it is, it is not the run's business
            self._fail(error)
            return False
        self._recover()
        last = batch[-1].n
        while self._frames and self._frames[0][0].n <= last:
            self._shift()
        self._settle(last)
        return True

    async def _yield_to(self, newer: Place) -> bool:
        """Fall silent for a later attempt, unless it is none: a failover can leave frames of a time that is lost."""
        if not await self._holds():
            self._fall_silent()
            return True
        log.warning("live_frames_cleared", thread=self._thread, run=self._run, fence=self._fence, newer=newer)
        await self._live.clear(self._thread, newer)
        return False

    def _settle(self, n: int) -> None:
        self._settled = max(self._settled, n)
        self._progress.set()

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            log.warning("outbox_stalled", thread=self._thread, run=self._run, error=str(error))
        self._failing = True
        self._progress.set()

    def _recover(self) -> None:
        if self._failing:
            log.info("outbox_resumed", thread=self._thread, run=self._run, dropped=self._dropped)
        self._failing = False

    def _fall_silent(self) -> None:
        log.warning("outbox_superseded", thread=self._thread, run=self._run, fence=self._fence)
        self._superseded = True
        self._frames.clear()
        self._bytes = 0
        self._progress.set()
