"""The hub: all watchers of this process, fed by one subscription per thread and one reading per fact."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog

from threadhold.fanout.backlog import FACTS_PAGE, Backlogs
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import WatchInterrupted
from threadhold.fanout.frame import Delivery, Frame, Kind
from threadhold.fanout.merge import closes_attempt
from threadhold.fanout.ports import (
    Confirmed,
    Dropped,
    FactLog,
    Head,
    LiveArrived,
    LiveLog,
    Rung,
    Signal,
    Subscriber,
)
from threadhold.fanout.reading import FactsDown, FactsReader
from threadhold.fanout.topic import Item, Topic, Watcher, outlook

log = structlog.get_logger(__name__)

_HEADS_PER_QUERY: Final = 1000
# Heads that watchers ask for are collected this long, so that a crowd costs one query.
_HEADS_PAUSE: Final = 0.01
# So many items are queued before the watchers get a turn; half a queue at most, for one watcher or for
# thousands.
_TURN_ITEMS: Final = 4000
_TURN_SIGNALS: Final = 64
_RESTART_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStats:
    """What the hub is doing. `overflows` counts how often a slow watcher's queue was given up."""

    threads: int
    watchers: int
    overflows: int
    healthy: bool


def _now() -> datetime:
    return datetime.now(UTC)


class Hub:
    """Fans facts and live frames out to this process's watchers. No producer waits for a watcher."""

    def __init__(
        self,
        facts: FactLog,
        live: LiveLog,
        subscriber: Subscriber,
        *,
        head_every: float = 2.0,
        queue_max: int = 256,
        confirm_max: float = 1.0,
        facts_down_max: float = 60.0,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Make a hub; `start` has to be called before the first watch.

        Args:
            facts: Postgres.
            live: the stored live frames.
            subscriber: the subscription connection; stays the caller's to close.
            head_every: seconds between two readings of the heads of all watched threads.
            queue_max: frames a watcher may be behind before it is sent back to its backlog.
            confirm_max: seconds to wait for a subscription before going on from Postgres alone.
            facts_down_max: seconds without Postgres after which watches end with `WatchInterrupted`.
            clock: the time that control frames are stamped with, in UTC.
        """
        self._reader = FactsReader(facts, down_max=facts_down_max)
        self._backlogs = Backlogs(self._reader.facts, live)
        self._subscriber = subscriber
        self._head_every, self._queue_max, self._confirm_max = head_every, queue_max, confirm_max
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._fetches: dict[Topic, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        # Threads whose subscription was asked for, those in force, and those that may have to change.
        self._subscribed: set[str] = set()
        self._confirmed: set[str] = set()
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        # Threads whose head somebody waits for; the number of the last reading that was begun.
        self._due: set[str] = set()
        self._due_soon = asyncio.Event()
        self._reading = 0
        self._overflows_before = 0
        self._closed = False

    async def start(self) -> None:
        """Begin to listen."""
        jobs = {"pump": self._pump, "heads": self._follow_heads, "subscriptions": self._keep_subscriptions}
        self._tasks = [
            asyncio.create_task(self._supervise(name, job), name=f"hub-{name}") for name, job in jobs.items()
        ]

    async def aclose(self) -> None:
        """End all watches with `WatchInterrupted`, and stop listening."""
        self._closed = True
        self._reader.close()
        self._fail_all("this process is shutting down")
        tasks = [*self._tasks, *self._fetches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._backlogs.aclose()

    def stats(self) -> HubStats:
        """Return what the hub is doing."""
        topics = self._topics.values()
        return HubStats(
            threads=len(topics),
            watchers=sum(len(topic.watchers) for topic in topics),
            overflows=self._overflows_before + sum(topic.overflows for topic in topics),
            healthy=not self._closed and self._subscriber.healthy and self._reader.healthy,
        )

    async def watch(
        self, thread: str, position: Position, *, until: Literal["idle"] | None = None
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what comes after `position`: facts and live frames in order, without gap or repetition.

        Where live frames are gone for good, a `gap` frame says so. `head` frames come while the watcher is up
        to date.

        Args:
            thread: the thread; the caller has checked that it may be watched.
            position: the last that was seen.
            until: "idle" to finish, with an `end` frame, once the thread is idle or paused.

        Raises:
            WatchInterrupted: if Postgres is away for too long, or the hub is closed.
        """
        topic, watcher = self._enter(thread, position)
        try:
            await self._begin(topic, watcher)
            while watcher.failure is None:
                delivery = watcher.take()
                if delivery is None and watcher.stale:
                    await self._catch_up(topic, watcher)
                    continue
                if delivery is None:
                    delivery = await self._rest(topic, watcher, until_idle=until == "idle")
                if delivery is not None:
                    yield delivery
                    if delivery.frame.kind == "end":
                        return
                    if until == "idle" and closes_attempt(delivery.frame):
                        self._ask_head(thread)
            raise FactsDown(watcher.failure)
        except FactsDown as error:
            cursor = watcher.delivered.cursor()
            raise WatchInterrupted(thread=thread, cursor=cursor, reason=str(error)) from error
        finally:
            self._leave(topic, watcher)

    # A watcher's steps

    def _enter(self, thread: str, position: Position) -> tuple[Topic, Watcher]:
        topic = self._topics.get(thread)
        if topic is None:
            topic = self._topics[thread] = Topic(thread)
            if thread in self._confirmed:
                topic.confirmed.set()
            self._changed.put_nowait(thread)
        watcher = Watcher(position, queue_max=self._queue_max, joined=self._reading)
        if self._closed:
            watcher.fail("this process is shutting down")
        topic.watchers.add(watcher)
        return topic, watcher

    def _leave(self, topic: Topic, watcher: Watcher) -> None:
        topic.watchers.discard(watcher)
        if not topic.watchers and self._topics.get(topic.thread) is topic:
            del self._topics[topic.thread]
            self._overflows_before += topic.overflows
            self._changed.put_nowait(topic.thread)

    async def _begin(self, topic: Topic, watcher: Watcher) -> None:
        """Wait for the subscription, as far as Redis is there, and learn where the thread stands now."""
        self._ask_head(topic.thread)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._confirm_max):
                await topic.confirmed.wait()
        while topic.head_no <= watcher.joined and watcher.failure is None:
            await watcher.wait()
        if topic.head is not None and topic.head.seq < watcher.position.seq:
            await self._reset(topic, watcher, topic.head)

    async def _catch_up(self, topic: Topic, watcher: Watcher) -> None:
        # Before the reading, so that what goes wrong during it is seen after it.
        watcher.stale = False
        page = await self._backlogs.page(topic.thread, watcher.position)
        watcher.ready.extend(page.deliveries)
        watcher.position = page.position
        if page.more:
            watcher.stale = True
            return
        topic.learn(page.position.seq)
        self._fetch_soon(topic)

    async def _rest(self, topic: Topic, watcher: Watcher, *, until_idle: bool) -> Delivery | None:
        """Return the control frame due to a watcher that has delivered all it has, or wait for news."""
        decision = outlook(topic, watcher, until_idle=until_idle)
        if topic.head is None or topic.head_item is None or decision == "wait":
            await watcher.wait()
        elif decision == "reset":
            await self._reset(topic, watcher, topic.head)
        elif decision == "head":
            watcher.beaten = topic.head_no
            return topic.head_item.at(watcher.position)
        else:
            return Item(self._control(topic.head, "end")).at(watcher.position)
        return None

    async def _reset(self, topic: Topic, watcher: Watcher, head: Head) -> None:
        """Bring a watcher, whose position is of another life of this log, to what exists."""
        newest = await self._reader.facts(topic.thread, head.seq - 1, 1)
        fence = newest[0].fence if newest else 0
        topic.set_back(head.seq)
        watcher.position = Position(seq=head.seq, fence=fence, n=0)
        gap = self._control(head, "gap", {"reason": "reset"})
        watcher.ready.append(Item(gap).at(watcher.position))
        watcher.mark_stale()

    def _control(self, head: Head, kind: Kind, data: dict[str, Any] | None = None) -> Frame:
        return Frame(
            thread=head.thread,
            run=None,
            fence=0,
            n=0,
            seq=head.seq,
            kind=kind,
            at=self._clock().isoformat(),
            data={"state": head.state} if data is None else data,
        )

    # What comes from Redis

    async def _pump(self) -> None:
        items = signals = 0
        async for signal in self._subscriber.signals():
            items += self._hear(signal)
            signals += 1
            if items >= _TURN_ITEMS or signals >= _TURN_SIGNALS:
                items = signals = 0
                await asyncio.sleep(0)

    def _hear(self, signal: Signal) -> int:
        """Take a signal in; return how many watchers it was for."""
        if isinstance(signal, Dropped):
            self._confirmed.clear()
            for dropped in self._topics.values():
                dropped.confirmed.clear()
            return 0
        if isinstance(signal, Confirmed) and signal.thread in self._subscribed:
            self._confirmed.add(signal.thread)
        topic = self._topics.get(signal.frame.thread if isinstance(signal, LiveArrived) else signal.thread)
        if topic is None:
            return 0
        if isinstance(signal, LiveArrived):
            topic.live(signal.frame)
        elif isinstance(signal, Rung):
            topic.ring(signal.seq)
        else:
            topic.confirmed.set()
            topic.mark_stale()
        self._fetch_soon(topic)
        return len(topic.watchers)

    async def _keep_subscriptions(self) -> None:
        """Have exactly the watched threads subscribed. One after the other, so that no two orders cross."""
        while True:
            thread = await self._changed.get()
            wanted = thread in self._topics
            if wanted and thread not in self._subscribed:
                self._subscribed.add(thread)
                await self._subscriber.subscribe(thread)
            elif not wanted and thread in self._subscribed:
                self._subscribed.discard(thread)
                self._confirmed.discard(thread)
                await self._subscriber.unsubscribe(thread)

    # What comes from Postgres

    def _fetch_soon(self, topic: Topic) -> None:
        if topic.wants_facts and topic not in self._fetches and not self._closed:
            self._fetches[topic] = asyncio.create_task(self._fetch(topic))

    async def _fetch(self, topic: Topic) -> None:
        """Read the facts that a thread's watchers lack, once for all of them."""
        try:
            while topic.wants_facts and topic.watchers:
                topic.facts(await self._reader.facts(topic.thread, topic.known or 0, FACTS_PAGE))
        except FactsDown as error:
            topic.fail(str(error))
        finally:
            del self._fetches[topic]

    def _ask_head(self, thread: str) -> None:
        self._due.add(thread)
        self._due_soon.set()

    async def _follow_heads(self) -> None:
        loop = asyncio.get_running_loop()
        next_beat = loop.time() + self._head_every
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_beat):
                    await self._due_soon.wait()
            self._due_soon.clear()
            beat = loop.time() >= next_beat
            if beat:
                next_beat = loop.time() + self._head_every
            due, self._due = self._due, set()
            await self._read_heads(self._topics if beat else due, beat=beat)
            await asyncio.sleep(_HEADS_PAUSE)

    async def _read_heads(self, threads: Iterable[str], *, beat: bool) -> None:
        watched = [thread for thread in threads if thread in self._topics]
        for start in range(0, len(watched), _HEADS_PER_QUERY):
            chunk = watched[start : start + _HEADS_PER_QUERY]
            self._reading += 1
            number = self._reading
            try:
                found = {head.thread: head for head in await self._reader.heads(chunk)}
            except FactsDown as error:
                self._fail_all(str(error))
                return
            for thread in chunk:
                self._set_head(thread, found.get(thread), number=number, beat=beat)

    def _set_head(self, thread: str, head: Head | None, *, number: int, beat: bool) -> None:
        topic = self._topics.get(thread)
        if topic is None:
            return
        if head is None and topic.head is not None and topic.head.seq > 0:
            topic.fail("the thread does not exist any more")
            return
        head = head or Head(thread=thread, seq=0, state="idle")
        topic.set_head(head, Item(self._control(head, "head")), number=number, beat=beat)
        self._fetch_soon(topic)

    # Life

    def _fail_all(self, reason: str) -> None:
        for topic in self._topics.values():
            topic.fail(reason)

    async def _supervise(self, name: str, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a job for as long as the hub lives; a bug in it must not leave the watchers deaf."""
        while True:
            try:
                await job()
                return
            except Exception:
                log.exception("hub_job_failed", job=name)
                await asyncio.sleep(_RESTART_PAUSE)
                for topic in self._topics.values():
                    topic.mark_stale()
