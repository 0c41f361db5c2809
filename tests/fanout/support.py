"""Frames and stores for the tests of the fan-out."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeVar

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery, Frame, Kind
from threadhold.fanout.ports import Head

AT = "2026-01-02T03:04:05+00:00"
THREAD = "t1"
# More turns of a loop than anything takes here that waits for nothing.
TURNS: Final = 200

T = TypeVar("T")


def fact(seq: int, name: str = "model_called", *, live: tuple[int, int] | None = None, **data: Any) -> Frame:
    """Return a fact of the thread under test."""
    content: dict[str, Any] = {"fact": name} | data
    if live is not None:
        content["live"] = {"fence": live[0], "n": live[1]}
    return Frame(thread=THREAD, run="r1", fence=0, n=0, seq=seq, kind="fact", at=AT, data=content)


def live(fence: int, n: int, *, seq: int = 0, kind: Kind | None = None, text: str = "") -> Frame:
    """Return a live frame of the thread under test; the first of an attempt is its `attempt` frame."""
    kind = kind or ("attempt" if n == 1 else "event")
    data = {"attempt": 1} if kind == "attempt" else {"text": text or f"{fence}-{n}"}
    return Frame(thread=THREAD, run="r1", fence=fence, n=n, seq=seq, kind=kind, at=AT, data=data)


class FakeFacts:
    """A log of facts in memory, which can be told to fail."""

    def __init__(self) -> None:
        self.log: dict[str, list[Frame]] = {}
        self.state: Literal["idle", "busy", "paused"] = "busy"
        self.fence = 2**53
        self.failing = False
        self.fact_reads = 0
        self.head_reads = 0
        self.before_facts: Callable[[], None] | None = None

    def commit(self, *frames: Frame) -> None:
        """Append facts."""
        for frame in frames:
            self.log.setdefault(frame.thread, []).append(frame)

    async def facts(self, thread: str, *, after: int, limit: int) -> list[Frame]:
        """Return facts, as the port says."""
        self.fact_reads += 1
        if self.before_facts is not None:
            self.before_facts()
        await self._answer()
        return [frame for frame in self.log.get(thread, []) if frame.seq > after][:limit]

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        """Return heads, as the port says."""
        self.head_reads += 1
        await self._answer()
        return [
            Head(thread=thread, seq=self.log[thread][-1].seq, fence=self.fence, state=self.state)
            for thread in threads
            if self.log.get(thread)
        ]

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.failing:
            raise ConnectionError("postgres is away")


async def until(condition: Callable[[], bool], *, within: float = 10.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.002)


async def in_time(work: Awaitable[T], *, within: float) -> T:
    """Return what `work` returns; it must be done in so many seconds on the clock of its loop.

    A process that stood still is not held against it: what was due meanwhile gets its turns first.
    """
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=within)
    for _ in range(TURNS):
        if task.done():
            break
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        raise AssertionError(f"not done within {within} s")
    return await task


class Watching:
    """A watch that runs in a task and keeps what it got."""

    def __init__(self, watch: AsyncGenerator[Delivery, None]) -> None:
        self._watch = watch
        self.deliveries: list[Delivery] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async for delivery in self._watch:
                self.deliveries.append(delivery)
                await self.gate.wait()
        finally:
            await self._watch.aclose()

    @property
    def frames(self) -> list[Frame]:
        """What was delivered, without heads."""
        return [delivery.frame for delivery in self.deliveries if delivery.frame.kind != "head"]

    @property
    def steps(self) -> list[tuple[Frame, Position]]:
        """What was delivered, with the positions, without heads and the end."""
        return [(d.frame, d.position) for d in self.deliveries if d.frame.kind not in {"head", "end"}]

    @property
    def marks(self) -> list[str]:
        """What was delivered, in short: `f3`, `7-1`, `gap:lost`, `end:idle`."""
        return [mark(frame) for frame in self.frames]

    @property
    def is_up_to_date(self) -> bool:
        """Whether a head frame came last."""
        return bool(self.deliveries) and self.deliveries[-1].frame.kind == "head"

    async def reach(self, *marks: str, within: float = 10.0) -> None:
        """Wait until exactly these have been delivered."""
        try:
            await until(lambda: self.marks[-1:] == list(marks[-1:]) or self.task.done(), within=within)
        except TimeoutError:
            raise AssertionError(f"got {self.marks}") from None
        assert self.marks == list(marks)

    async def stop(self) -> None:
        """End the watch."""
        self.task.cancel()
        await asyncio.wait({self.task})


def mark(frame: Frame) -> str:
    """Return a frame in short."""
    if frame.kind == "gap":
        return f"gap:{frame.data['reason']}"
    if frame.kind in {"head", "end"}:
        return f"{frame.kind}:{frame.data['state']}"
    return f"{frame.fence}-{frame.n}" if frame.is_live else f"f{frame.seq}"


def check_order(deliveries: Sequence[tuple[Frame, Position]], start: Position) -> None:
    """Check what a watcher is promised: order, no repetition, and no hole without a gap frame before it."""
    position = start
    for frame, after in deliveries:
        assert after >= position or frame.kind == "gap"
        if frame.kind == "gap":
            assert after.seq >= position.seq
            assert after.live >= position.live
        elif frame.is_live:
            assert (frame.fence, frame.n) > position.live, "repeated or out of order"
            follows = frame.n == position.n + 1 if frame.fence == position.fence else frame.n == 1
            assert follows, "a hole without a gap"
        else:
            assert frame.seq == position.seq + 1, "facts have no holes"
        position = after
