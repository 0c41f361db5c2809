"""One thread as this process watches it: what has arrived, and the queues of its watchers.

Nothing here waits or reads a store. A watcher takes from its own bounded queue; when the queue overflows, or
something is missing, the watcher is marked stale and reads its backlog again.
"""

import asyncio
from collections import deque
from typing import Final, Literal

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery, Frame
from threadhold.fanout.merge import Accept, accept, interleave, merge, position_after
from threadhold.fanout.ports import Head, Place

# Live frames kept while the facts that go before them are being read.
_HELD_MAX: Final = 1024
# How often Redis is asked for what is missing before a frame, while it does not answer.
_READINGS_MAX: Final = 5


class Item:
    """A frame in the queues of all watchers of a thread.

    Watchers mostly stand at the same position, so the step that the last one took is kept for the next one.
    """

    __slots__ = ("_after", "_before", "_body", "frame")

    def __init__(self, frame: Frame, body: str | None = None) -> None:
        self.frame = frame
        self._body = body
        self._before: Position | None = None
        self._after: Delivery | None = None

    @property
    def body(self) -> str:
        """The frame's JSON: as it came, or encoded when the first watcher needs it."""
        if self._body is None:
            self._body = self.frame.body()
        return self._body

    def step(self, position: Position) -> Delivery | Accept:
        """Return the delivery to a watcher at `position`, or why there is none."""
        if self._after is not None and (position is self._before or position == self._before):
            return self._after
        verdict = accept(position, self.frame)
        if verdict != "deliver":
            return verdict
        self._before, self._after = position, self.at(position_after(position, self.frame))
        return self._after

    def at(self, position: Position) -> Delivery:
        """Return the delivery that leaves its watcher at `position`."""
        return Delivery(frame=self.frame, body=self.body, position=position)


class Watcher:
    """One watcher: where it stands, and what waits for it."""

    __slots__ = (
        "_ahead",
        "_news",
        "_queue",
        "_queue_chars",
        "_queue_chars_max",
        "_queue_max",
        "_readings",
        "_retried",
        "_waiter",
        "beaten",
        "delivered",
        "failure",
        "joined",
        "partial",
        "position",
        "ready",
        "stale",
    )

    def __init__(self, position: Position, *, queue_max: int, queue_chars_max: int, joined: int) -> None:
        # The position after all that was decided, and the one after what was taken.
        self.position = position
        self.delivered = position
        # Deliveries of the backlog, already decided.
        self.ready: deque[Delivery] = deque()
        # Whether the backlog has to be read before the queue can be used.
        self.stale = True
        # Whether the last reading found no live frames because Redis did not answer.
        self.partial = False
        self.failure: str | None = None
        # The last reading of heads that was begun before this watcher came, and the last one it was told of.
        self.joined = joined
        self.beaten = 0
        self._queue: deque[Item] = deque()
        self._queue_chars = 0
        self._queue_max, self._queue_chars_max = queue_max, queue_chars_max
        self._retried: Item | None = None
        self._readings = 0
        self._ahead: tuple[Position, int] | None = None
        self._news = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, item: Item) -> bool:
        """Queue an item; tell whether there was room.

        Without room the queue is given up: the backlog has it all.
        """
        size = self._queue_chars + len(item.body)
        room = len(self._queue) < self._queue_max and (size <= self._queue_chars_max or not self._queue)
        if not room:
            self._queue.clear()
            self.stale = True
            size = len(item.body)
        self._queue.append(item)
        self._queue_chars = size
        self.rouse()
        return room

    def take(self) -> Delivery | None:
        """Return what comes next, or None if there is nothing or the watcher has become stale."""
        while not self.ready and self._queue and not self.stale:
            item = self._queue[0]
            step = item.step(self.position)
            if isinstance(step, Delivery):
                self._shift()
                self.position = self.delivered = step.position
                return step
            if step == "reread":
                self._reread(item)
            else:
                self._shift()
        if not self.ready:
            return None
        delivery = self.ready.popleft()
        self.delivered = delivery.position
        return delivery

    def _reread(self, item: Item) -> None:
        """Go back to the stores for what is missing before the item, once; then go on behind a gap.

        A reading that Redis did not answer says nothing, so it is repeated a few times.
        """
        self._readings = self._readings + 1 if self._retried is item else 1
        if self._readings == 1 or (self.partial and self._readings <= _READINGS_MAX):
            self._retried = item
            self.stale = True
            return
        self._shift()
        facts, live = ([], [item.frame]) if item.frame.is_live else ([item.frame], [])
        for frame, position in merge(facts, live, self.position):
            delivery = item if frame is item.frame else Item(frame)
            self.ready.append(delivery.at(position))
            self.position = position

    def _shift(self) -> None:
        self._queue_chars -= len(self._queue.popleft().body)

    def is_ahead(self, head_no: int, *, asked_no: int) -> bool:
        """Tell whether the watcher is ahead of the log; the head of the reading `head_no` says so.

        It, and every reading that is under way, may have begun before the newest fact was committed; the next one
        decides.
        """
        if self._ahead is None or self._ahead[0] != self.position:
            self._ahead = (self.position, asked_no)
        return head_no > self._ahead[1]

    def set_back(self, position: Position) -> None:
        """Go on from a position that exists; should it lie ahead again, only a later head says so."""
        self.position = position
        self._ahead = None

    def mark_stale(self) -> None:
        """Make the watcher read its backlog before anything else."""
        self.stale = True
        self.rouse()

    def fail(self, reason: str) -> None:
        """Make the watch end with a typed error."""
        self.failure = reason
        self.rouse()

    def rouse(self) -> None:
        """Let the watcher look around."""
        self._news = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something has happened since the last wait."""
        if not self._news:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._news = False


class Topic:
    """One thread: its watchers, and how far this process knows its log."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.watchers: set[Watcher] = set()
        self.confirmed = asyncio.Event()
        # The newest fact that was handed to the watchers, None before the first of them has read its backlog;
        # and the newest one that is said to exist.
        self.known: int | None = None
        self.rung = 0
        self.head: Head | None = None
        self.head_item: Item | None = None
        # The reading of heads that `head` is from, the last one that was begun, and the last one at a beat.
        self.head_no = 0
        self.asked_no = 0
        self.beat_no = 0
        self.overflows = 0
        # The newest live frame that has come by, and what it was at the last look at the stream.
        self.heard: Place = (0, 0)
        self._heard_then: Place | None = None
        self._held: deque[Item] = deque()

    @property
    def wants_facts(self) -> bool:
        """Tell whether facts exist that the watchers have not been handed."""
        return self.known is not None and self.rung > self.known

    def ring(self, seq: int) -> None:
        """Note that the log has grown to `seq`."""
        self.rung = max(self.rung, seq)

    def learn(self, seq: int) -> None:
        """Note that a watcher has read the log up to `seq` by itself.

        Another one may have read further meanwhile; what this one lacks is handed to all again, who know it by its seq.
        """
        if self.known is None or seq < self.known:
            self.known = seq
        self.ring(seq)

    def live(self, item: Item) -> None:
        """Hand a live frame on, or hold it while facts that go before it are missing."""
        frame = item.frame
        self.ring(frame.seq)
        self.hear((frame.fence, frame.n))
        if not self._held and (self.known is None or frame.seq <= self.known):
            self._offer(item)
        elif len(self._held) < _HELD_MAX:
            self._held.append(item)
        else:
            self._held.clear()
            self.mark_stale()

    def facts(self, page: list[Frame]) -> None:
        """Hand on the facts that were read after `known`, and the held live frames among them."""
        if page:
            self.known = max(self.known or 0, page[-1].seq)
        else:
            # What was said to exist does not (a false doorbell, a log set back): nothing to wait for.
            self.rung = self.known or 0
        ready: dict[int, Item] = {}
        while self._held and (not page or self._held[0].frame.seq <= (self.known or 0)):
            item = self._held.popleft()
            ready[id(item.frame)] = item
        for frame in interleave(page, [item.frame for item in ready.values()]):
            self._offer(ready.get(id(frame)) or Item(frame))

    def hear(self, place: Place) -> None:
        """Note that a live frame has come by, or was read."""
        self.heard = max(self.heard, place)

    def was_quiet(self) -> bool:
        """Tell whether no live frame has come by since the last time this was asked, though a run is in progress."""
        quiet = self.heard == self._heard_then and self.head is not None and self.head.state == "busy"
        self._heard_then = self.heard
        return quiet

    def look(self, top: Place) -> None:
        """Note what the newest stored live frame is; one that never came by is read by those who lack it."""
        lost = top > self.heard
        self.hear(top)
        for watcher in self.watchers:
            if lost or watcher.partial:
                watcher.mark_stale()

    def mark_stale(self) -> None:
        """Make all watchers read their backlogs."""
        for watcher in self.watchers:
            watcher.mark_stale()

    def fail(self, reason: str) -> None:
        """End all watches."""
        for watcher in self.watchers:
            watcher.fail(reason)

    def set_head(self, head: Head, item: Item, *, number: int, beat: bool) -> None:
        """Note where the thread stands, as read by the reading `number`, and let the watchers look.

        Args:
            head: the head.
            item: the head frame for watchers that are up to date.
            number: the number of the reading.
            beat: whether it is a regular one, which all watchers are told of.
        """
        self.head, self.head_item, self.head_no = head, item, number
        if beat:
            self.beat_no = number
        self.ring(head.seq)
        for watcher in self.watchers:
            watcher.rouse()

    def set_back(self, seq: int) -> None:
        """Note that the log ends at `seq`, below what was known: the database lost its newest commits."""
        self.heard = (0, 0)
        if self.known is not None and self.known > seq:
            self.known = self.rung = seq
            self._held.clear()

    def _offer(self, item: Item) -> None:
        for watcher in self.watchers:
            if not watcher.offer(item):
                self.overflows += 1


Outlook = Literal["wait", "head", "end", "reset"]


def is_behind(head: Head, position: Position) -> bool:
    """Tell whether a thread has not come as far as a position: that is of another life of its log."""
    return head.seq < position.seq or head.fence < position.fence


def outlook(topic: Topic, watcher: Watcher, *, until_idle: bool) -> Outlook:
    """Decide what a watcher does that has delivered all it has.

    "head": tell the client that it is up to date; "end": the thread rests, and every fact up to the head has
    been delivered; "reset": the log has been set back behind the watcher.
    """
    head = topic.head
    if head is None or topic.head_no <= watcher.joined or head.seq > watcher.position.seq:
        return "wait"
    if is_behind(head, watcher.position):
        return "reset" if watcher.is_ahead(topic.head_no, asked_no=topic.asked_no) else "wait"
    if until_idle and head.state != "busy":
        return "end"
    fresh = watcher.beaten == 0 or topic.beat_no > watcher.beaten
    return "head" if fresh else "wait"
