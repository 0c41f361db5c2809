"""Reading what a watcher has missed: facts from Postgres and live frames from Redis, page by page.

Many watchers miss the same at once, after a reconnect for example; those at the same position share one
reading, and only a few readings run at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Delivery, Frame
from threadhold.fanout.merge import merge
from threadhold.fanout.ports import LiveLog, LivePage
from threadhold.fanout.reading import FactsDown
from threadhold.fanout.topic import Item

log = structlog.get_logger(__name__)

FACTS_PAGE: Final = 200
_LIVE_PAGE: Final = 500
_READINGS_MAX: Final = 8

ReadFacts = Callable[[str, int, int], Awaitable[list[Frame]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a backlog, merged; `more` if the next part has to be read as well, `whole` if Redis answered."""

    deliveries: tuple[Delivery, ...]
    position: Position
    more: bool
    whole: bool


class Backlogs:
    """The readings of this process."""

    def __init__(self, read_facts: ReadFacts, live: LiveLog) -> None:
        """Read facts with `read_facts(thread, after, limit)`, which keeps trying, live frames from `live`."""
        self._read_facts = read_facts
        self._live = live
        self._slots = asyncio.Semaphore(_READINGS_MAX)
        self._waiting: dict[tuple[str, Position], asyncio.Task[Page]] = {}
        self._running: set[asyncio.Task[Page]] = set()

    async def page(self, thread: str, position: Position) -> Page:
        """Return the next part of the backlog after `position`; it is read after this call."""
        key = (thread, position)
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.create_task(self._run(key))
            self._waiting[key] = task
            self._running.add(task)
            task.add_done_callback(self._forget)
        # A watcher that goes away must not take the reading of the others along.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise FactsDown("this process is shutting down") from None
            raise

    async def aclose(self, timeout: float = 1.0) -> None:  # noqa: ASYNC109 - the bound is the point of it
        """Wait for the readings under way, at most `timeout` seconds; what still runs then is cancelled."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout)
            for task in late:
                task.cancel()

    def _forget(self, task: asyncio.Task[Page]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Retrieved here too, since all who waited for it may have gone.
            task.exception()

    async def _run(self, key: tuple[str, Position]) -> Page:
        async with self._slots:
            # From here on it is too late to join: what is published now may be missed by this reading.
            del self._waiting[key]
            facts = await self._read_facts(key[0], key[1].seq, FACTS_PAGE)
        return await self._complete(*key, facts)

    async def _complete(self, thread: str, position: Position, facts: list[Frame]) -> Page:
        """Add the live frames. Not in a slot: where Redis hangs, nobody's facts may have to wait for it in line."""
        more = len(facts) == FACTS_PAGE
        page = await self._read_live(thread, position)
        whole = page is not None
        page = page or LivePage(frames=(), more=False)
        live = list(page.frames)
        if more:
            live = [frame for frame in live if frame.seq <= facts[-1].seq]
        carried = max((frame.seq for frame in live), default=0)
        if page.more and len(live) == len(page.frames):
            # Later facts may belong behind live frames that have not been read yet.
            facts, more = [fact for fact in facts if fact.seq <= carried], True
        reached = facts[-1].seq if facts else position.seq
        if carried > reached:
            # Committed between the two readings. Those that no live frame names are left to the next reading,
            # since the live frames before them may not have been read.
            async with self._slots:
                later = await self._read_facts(thread, reached, FACTS_PAGE)
            more = more or len(later) > 0
            facts = facts + [fact for fact in later if fact.seq <= carried]
        return _merged(facts, live, position, more=more, whole=whole)

    async def _read_live(self, thread: str, position: Position) -> LivePage | None:
        try:
            return await self._live.live(thread, after=position.live, limit=_LIVE_PAGE)
        except LiveUnavailable as error:
            log.info("live_backlog_unavailable", thread=thread, error=str(error))
            return None


def _merged(facts: list[Frame], live: list[Frame], position: Position, *, more: bool, whole: bool) -> Page:
    steps = merge(facts, live, position)
    deliveries = tuple(Item(frame).at(after) for frame, after in steps)
    reached = steps[-1][1] if steps else position
    return Page(deliveries=deliveries, position=reached, more=more, whole=whole)
