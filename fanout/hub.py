"""The hub: all watchers of this process, fed by one subscription per thread and one reading per fact."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog

from threadhold.fanout.backlog import FACTS_PAGE, Backlogs
from threadhold.fanout.counts import Deliveries, HubStats
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable, WatchInterrupted
from threadhold.fanout.frame import Delivery, Frame, Kind
from threadhold.fanout.heads import Heads
from threadhold.fanout.merge import closes_attempt, shows
from threadhold.fanout.ports import (
    Confirmed,
    Dropped,
    FactLog,
    Head,
    LiveArrived,
    LiveLog,
    Missed,
    Rung,
    Signal,
    Subscriber,
)
from threadhold.fanout.reading import FactsDown, FactsReader
from threadhold.fanout.topic import Item, Topic, Watcher, is_behind, outlook

log = structlog.get_logger(__name__)

# So many items are queued before the watchers get a turn; half a queue at most, for one watcher or for
# thousands.
_TURN_ITEMS: Final = 4000
_TURN_SIGNALS: Final = 64
_RESTART_PAUSE: Final = 1.0
# Between two looks at the streams of threads that have gone quiet in the middle of a run.
_TOPS_EVERY: Final = 1.0


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
        queue_chars_max: int = 1024 * 1024,
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
            queue_max, queue_chars_max: frames, and characters of JSON, that a watcher may be behind before it is sent
                back to its backlog.
            confirm_max: seconds to wait for a subscription before going on from Postgres alone.
            facts_down_max: seconds without Postgres after which watches end with `WatchInterrupted`.
            clock: the time that control frames are stamped with, in UTC.
        """
        self._reader = FactsReader(facts, down_max=facts_down_max)
        self._backlogs = Backlogs(self._reader.facts, live)
        self._subscriber = subscriber
        self._live = live
        self._confirm_max = confirm_max
        self._queue_max, self._queue_chars_max = queue_max, queue_chars_max
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._fetches: dict[Topic, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        # Threads whose subscription was asked for, those in force, and those that may have to change.
        self._subscribed: set[str] = set()
        self._confirmed: set[str] = set()
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._heads = Heads(
            self._reader, self._topics, every=head_every, found=self._set_head, down=self._fail_all
        )
        self._overflows_before = 0
        self._deliveries = Deliveries()
        self._closed = False

    async def start(self) -> None:
        """Begin to listen."""
        jobs = {
            "pump": self._pump,
            "heads": self._heads.follow,
            "tops": self._follow_tops,
            "subscriptions": self._keep_subscriptions,
        }
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
            deliveries=self._deliveries.total,
            gaps=dict(self._deliveries.gaps),
            overflows=self._overflows_before + sum(topic.overflows for topic in topics),
            healthy=not self._closed and self._subscriber.healthy and self._reader.healthy,
        )

    async def watch(
        self,
        thread: str,
        position: Position,
        *,
        until: Literal["idle"] | None = None,
        kinds: Collection[Kind] | None = None,
        own: bool = False,
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what comes after `position`: facts and live frames in order, without gap or repetition.

        Where live frames are gone for good, a `gap` frame says so. `head` frames come while the watcher is up
        to date.

        Args:
            thread: the thread; the caller has checked that it may be watched.
            position: the last that was seen.
            until: "idle" to finish, with an `end` frame, once the thread is idle or paused.
            kinds: the kinds of frames to yield, beside control frames; None for all. What is left out moves the
                position of the frames after it.
            own: this process watches for itself, and what it gets is not counted.

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
                    if shows(delivery.frame, kinds):
                        if not own:
                            self._deliveries.add(delivery.frame)
                        yield delivery
                    if delivery.frame.kind == "end":
                        return
                    if until == "idle" and closes_attempt(delivery.frame):
                        self._heads.ask(thread)
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
        watcher = Watcher(
            position,
            queue_max=self._queue_max,
            queue_chars_max=self._queue_chars_max,
            joined=self._heads.begun,
        )
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
        self._heads.ask(topic.thread)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._confirm_max):
                await topic.confirmed.wait()
        while topic.head_no <= watcher.joined and watcher.failure is None:
            await watcher.wait()
        if topic.head is not None and is_behind(topic.head, watcher.position):
            await self._reset(topic, watcher, topic.head)

    async def _catch_up(self, topic: Topic, watcher: Watcher) -> None:
        # Before the reading, so that what goes wrong during it is seen after it.
        watcher.stale = False
        page = await self._backlogs.page(topic.thread, watcher.position)
        watcher.ready.extend(page.deliveries)
        watcher.position = page.position
        watcher.partial = not page.whole
        if page.more:
            watcher.stale = True
            return
        topic.learn(page.position.seq)
        topic.hear(page.position.live)
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
        if head.fence < watcher.position.fence:
            await self._clear(topic.thread, watcher.position.fence)
        topic.set_back(head.seq)
        watcher.set_back(Position(seq=head.seq, fence=fence, n=0))
        gap = self._control(head, "gap", {"reason": "reset"})
        watcher.ready.append(Item(gap).at(watcher.position))
        watcher.mark_stale()

    async def _clear(self, thread: str, fence: int) -> None:
        """Forget stored frames of a fence that was never given out in this life of the log: nobody else would."""
        with contextlib.suppress(LiveUnavailable):
            top = (await self._live.tops([thread])).get(thread)
            if top is not None and top[0] == fence:
                await self._live.clear(thread, top)

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
        async with contextlib.aclosing(self._subscriber.signals()) as arriving:
            async for signal in arriving:
                items += self._hear(signal)
                signals += 1
                if items >= _TURN_ITEMS or signals >= _TURN_SIGNALS:
                    items = signals = 0
                    await asyncio.sleep(0)

    def _hear(self, signal: Signal) -> int:
        """Take a signal in; return how many watchers it was for."""
        if isinstance(signal, Dropped):
            self._forget(signal.threads)
            return 0
        if isinstance(signal, Confirmed) and signal.thread in self._subscribed:
            self._confirmed.add(signal.thread)
        topic = self._topics.get(signal.frame.thread if isinstance(signal, LiveArrived) else signal.thread)
        if topic is None:
            return 0
        match signal:
            case LiveArrived():
                topic.live(Item(signal.frame, signal.body))
            case Rung():
                topic.ring(signal.seq)
            case Confirmed():
                topic.confirmed.set()
                topic.mark_stale()
            case Missed():
                topic.mark_stale()
        self._fetch_soon(topic)
        return len(topic.watchers)

    def _forget(self, threads: Iterable[str]) -> None:
        """Note that nothing is heard of these threads for now."""
        for thread in threads:
            self._confirmed.discard(thread)
            if (topic := self._topics.get(thread)) is not None:
                topic.confirmed.clear()

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

    async def _follow_tops(self) -> None:
        """Look whether the newest live frame of a thread was lost on its way; the one after it would tell, too."""
        while True:
            await asyncio.sleep(_TOPS_EVERY)
            quiet = [thread for thread, topic in self._topics.items() if topic.was_quiet()]
            # Where Redis is away, the confirmation after it makes all watchers read.
            with contextlib.suppress(LiveUnavailable):
                for thread, top in (await self._live.tops(quiet)).items():
                    if (topic := self._topics.get(thread)) is not None:
                        topic.look(top)

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

    def _set_head(self, topic: Topic, head: Head | None, *, number: int, beat: bool) -> None:
        if head is None and topic.head is not None and topic.head.seq > 0:
            topic.fail("the thread does not exist any more")
            return
        head = head or Head(thread=topic.thread, seq=0, fence=0, state="idle")
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
