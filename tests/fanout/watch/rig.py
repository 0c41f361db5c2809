"""Takes the product's objects out of a state of the model, lets them do one thing, and puts them back."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from tests.fanout.watch.guards import Guards
from tests.fanout.watch.judge import see
from tests.fanout.watch.world import (
    ASLEEP,
    DONE,
    LOOP,
    PAGE,
    START,
    THREAD,
    Bound,
    Key,
    LiveKey,
    Seat,
    Subject,
    World,
    frame_of,
    key_of,
)
from threadhold.fanout.backlog import Backlogs, Page
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Delivery, Frame
from threadhold.fanout.hub import Hub
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.ports import Head, LiveArrived, LivePage, Place, Signal
from threadhold.fanout.topic import Item, Topic, Watcher

_Result = TypeVar("_Result")
_NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Pause(BaseException):
    """The code has come to something that takes time; what it asked for is in the arguments."""


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    raise AssertionError("it waits for something that the model does not know")


class Tape(MemoryLive):
    """The live log, which keeps what it publishes."""

    def __init__(self, *, cap: int) -> None:
        super().__init__(stream_frames_max=cap)
        self.published: list[LiveKey] = []

    def load(self, stream: Sequence[LiveKey]) -> None:
        """Hold these frames, and have published none."""
        self._streams = {THREAD: [frame_of(key) for key in stream]}
        self.published = []

    @property
    def stream(self) -> tuple[LiveKey, ...]:
        """The frames that are stored."""
        return tuple(key_of(frame) for frame in self._streams.get(THREAD, ()))

    def _tell(self, thread: str, signal: Signal) -> None:
        assert isinstance(signal, LiveArrived)
        self.published.append(key_of(signal.frame))


class _Seated(Watcher):
    """A watcher that says when it would wait."""

    __slots__ = ()

    async def wait(self) -> None:
        if not self._news:
            raise Pause("asleep")
        self._news = False


class _Log:
    """The log of facts, for what a step reads at once."""

    def __init__(self) -> None:
        self.world: World | None = None

    async def facts(self, thread: str, after: int, limit: int) -> list[Frame]:
        assert self.world is not None
        return [frame_of(key) for key in self.world.facts_after(after, limit)]


class _ModelHub(Hub):
    """A hub whose readings are steps of the model."""

    def _fetch_soon(self, topic: Topic) -> None:
        """Leave it to the step that reads."""


class _Answers:
    """The stores as one reading of a backlog has found them so far."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = deque(answers)

    async def facts(self, thread: str, after: int, limit: int) -> list[Frame]:
        if not self._answers:
            raise Pause("facts", after, limit)
        return [frame_of(key) for key in self._answers.popleft()]

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        if not self._answers:
            raise Pause("live", after, limit)
        answer = self._answers.popleft()
        if answer is None:
            raise LiveUnavailable("read live frames", "away")
        keys, more = answer
        return LivePage(frames=tuple(frame_of(key) for key in keys), more=more)


class _Turning:
    """The backlogs of a hub, seen by a watcher that comes to the reading or comes back with its page."""

    def __init__(self, watcher: Watcher, page: Page | None = None, *, stale: bool = False) -> None:
        self._watcher, self._page, self._stale = watcher, page, stale

    async def page(self, thread: str, position: Position) -> Page:
        if self._page is None:
            raise Pause("page", position)
        # What the code did before the reading was done long ago.
        self._watcher.stale = self._stale
        return self._page


class Rig:
    """The objects that all steps share."""

    def __init__(self, bound: Bound, guards: Guards) -> None:
        self.bound, self.guards = bound, guards
        self.live = Tape(cap=bound.cap)
        subscriber = MemorySubscriber(self.live)
        self.log = _Log()
        self.hub = _ModelHub(
            None,  # type: ignore[arg-type]  # its reader is replaced
            self.live,
            subscriber,
            queue_max=bound.queue,
            clock=lambda: _NOW,
        )
        self.hub._reader = self.log  # type: ignore[assignment]
        self._backlogs = Backlogs(self.log.facts, self.live)

    def ask(self, seat: Seat) -> Page | tuple[Any, ...]:
        """Return the page of a watcher, or what its reading asks for next."""
        answers = _Answers(seat.answers)
        self._backlogs._read_facts, self._backlogs._live = answers.facts, answers  # type: ignore[assignment]
        try:
            self._backlogs._waiting[THREAD, seat.asked] = None  # type: ignore[assignment]
            return run(self._backlogs._run((THREAD, seat.asked)))
        except Pause as pause:
            return pause.args


class Scene:
    """The product's objects, as a state says they are."""

    def __init__(self, rig: Rig, w: World) -> None:
        self.rig, self.hub, self.w = rig, rig.hub, w
        rig.log.world = w
        rig.live.load(w.stream)
        self.items: dict[tuple[Key, int], Item] = {}
        self.topic = self._topic(w.topic) if w.topic else None
        self.watchers = [self._watcher(seat) for seat in w.seats]
        hub = self.hub
        hub._topics.clear()
        if self.topic is not None:
            hub._topics[THREAD] = self.topic
        hub._subscribed = {THREAD} if w.subscribed else set()
        hub._confirmed = {THREAD} if w.confirmed else set()
        hub._heads.begun = w.begun

    def _topic(self, t: Subject) -> Topic:
        topic = Topic(THREAD)
        topic.known, topic.rung, topic.head = t.known, t.rung, t.head
        topic.head_item = _head_item(t.head) if t.head else None
        topic.head_no, topic.asked_no, topic.beat_no = t.head_no, t.asked_no, t.beat_no
        topic.heard, topic._heard_then = t.heard, t.heard_then
        topic._held.extend(Item(frame_of(key), "x") for key in t.held)
        if t.confirmed:
            topic.confirmed.set()
        return topic

    def _watcher(self, seat: Seat) -> Watcher:
        bound = self.rig.bound
        watcher = _Seated(seat.position, queue_max=bound.queue, queue_chars_max=10**9, joined=seat.joined)
        watcher.stale, watcher.beaten, watcher.delivered = seat.stale, seat.beaten, seat.cursor
        watcher._ahead, watcher._news, watcher.partial = seat.ahead, seat.news, seat.partial
        watcher.ready.extend(_delivery(*step) for step in seat.ready)
        for place, key in enumerate(seat.queue):
            # The queues of several watchers hold the same item.
            nth = seat.queue[:place].count(key)
            watcher._queue.append(self.items.setdefault((key, nth), Item(frame_of(key), "x")))
        if seat.retried:
            # How often does not matter: Redis answers again some time, and one more try until then is no other state.
            watcher._retried, watcher._readings = watcher._queue[0], 1
        if seat.phase not in ("out", DONE) and self.topic is not None:
            self.topic.watchers.add(watcher)
        return watcher

    def world(self, **changes: Any) -> World:
        """Put the objects back into a state."""
        seats = tuple(map(_seat, self.w.seats, self.watchers))
        hub = self.hub
        kept = {
            "topic": _subject(self.topic) if self.topic is not None else None,
            "seats": seats,
            "subscribed": THREAD in hub._subscribed,
            "confirmed": THREAD in hub._confirmed,
            "begun": hub._heads.begun,
            "stream": self.rig.live.stream,
        }
        return self.w._replace(**(kept | changes))

    def advance(self, i: int) -> World:
        """Let a watcher go on until it has yielded a frame, reads, or waits; this is the loop of `Hub.watch`."""
        topic, watcher = self.topic, self.watchers[i]
        assert topic is not None
        while True:
            delivery = watcher.take()
            if delivery is None and watcher.stale:
                return self._begin_page(topic, watcher, i)
            try:
                if delivery is None:
                    delivery = run(self.hub._rest(topic, watcher, until_idle=self.rig.bound.until_idle))
            except Pause:
                return self.world().seat(i, phase=ASLEEP)
            if delivery is not None:
                w = self._deliver(topic, watcher, delivery, i)
                if self.rig.bound.paced or w.seats[i].phase == DONE:
                    return w
                self.w = w

    def _begin_page(self, topic: Topic, watcher: Watcher, i: int) -> World:
        self.hub._backlogs = _Turning(watcher)  # type: ignore[assignment]
        try:
            run(self.hub._catch_up(topic, watcher))
        except Pause as pause:
            position = pause.args[1]
        else:
            raise AssertionError("a watcher catches up without reading")
        if not self.rig.guards.news_during_a_reading_counts:
            watcher.stale = True
        w = self.world().seat(i, phase=PAGE, asked=position, answers=())
        return w.seat(i, answers=(w.facts_after(position.seq, self.rig.bound.facts_page),))

    def turn(self, i: int, page: Page) -> World:
        """Let a watcher take its page."""
        topic, watcher = self.topic, self.watchers[i]
        assert topic is not None
        stale = watcher.stale and self.rig.guards.news_during_a_reading_counts
        self.hub._backlogs = _Turning(watcher, page, stale=stale)  # type: ignore[assignment]
        run(self.hub._catch_up(topic, watcher))
        self.w = self.w.seat(i, phase=LOOP, answers=(), asked=START)
        return self.advance(i)

    def _deliver(self, topic: Topic, watcher: Watcher, delivery: Delivery, i: int) -> World:
        seen = see(self.w, self.w.seats[i].seen, delivery, topic.head)
        done = delivery.frame.kind == "end"
        if done:
            return self.leave(i, phase=DONE).seat(i, seen=seen)
        return self.world().seat(i, phase=LOOP, seen=seen, cursor=delivery.position)

    def leave(self, i: int, *, phase: str) -> World:
        """Let a watcher go."""
        assert self.topic is not None
        self.hub._leave(self.topic, self.watchers[i])
        self.hub._changed.get_nowait() if not self.hub._changed.empty() else None
        gone = THREAD not in self.hub._topics
        w = self.world()
        if gone:
            # Readings that are under way come back to nobody.
            w = w._replace(topic=None, fetched=None, reading=None)
        seat = w.seats[i]
        return w._replace(
            seats=(*w.seats[:i], Seat(phase=phase, cursor=seat.cursor, seen=seat.seen), *w.seats[i + 1 :])
        )


def _seat(seat: Seat, watcher: Watcher) -> Seat:
    queue = tuple(key_of(item.frame) for item in watcher._queue)
    return seat._replace(
        position=watcher.position,
        ready=tuple((key_of(d.frame), d.position) for d in watcher.ready),
        stale=watcher.stale,
        partial=watcher.partial,
        queue=queue,
        retried=bool(watcher._queue) and watcher._retried is watcher._queue[0],
        ahead=watcher._ahead,
        joined=watcher.joined,
        beaten=watcher.beaten,
        news=watcher._news,
    )


def _subject(topic: Topic) -> Subject:
    return Subject(
        known=topic.known,
        rung=topic.rung,
        head=topic.head,
        head_no=topic.head_no,
        asked_no=topic.asked_no,
        beat_no=topic.beat_no,
        heard=topic.heard,
        heard_then=topic._heard_then,
        held=tuple(key_of(item.frame) for item in topic._held),
        confirmed=topic.confirmed.is_set(),
    )


@cache
def _delivery(key: Key, position: Position) -> Delivery:
    return Delivery(frame=frame_of(key), body="x", position=position)


@cache
def _head_item(head: Head) -> Item:
    frame = Frame(
        thread=THREAD, run=None, fence=0, n=0, seq=head.seq, kind="head", at="", data={"state": head.state}
    )
    return Item(frame, "x")
