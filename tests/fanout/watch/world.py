"""The state of the model: a thread, its stores, the hub of one process, and the watchers there."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import Head, LiveArrived, Rung, Signal

THREAD = "t1"
START = Position()

# Frames by what tells them apart. A fact: seq, name, the fence of its attempt, the live frame that it names; a live
# frame: fence, n, and the seq it came after; a gap: its reason.
FactKey = tuple[str, int, str, int, "tuple[int, int] | None"]
LiveKey = tuple[str, int, int, int]
Key = tuple[Any, ...]

STARTED, LAPSED, CALLED, ACCEPTED, ENDED = (
    "run_started",
    "attempt_closed",
    "model_called",
    "message_accepted",
    "run_ended",
)


class Left(NamedTuple):
    """How often each misfortune, or liberty, may still happen."""

    takeover: int = 0  # an attempt starts while its predecessor goes on
    late: int = 0  # a live frame waits in the outbox
    outbox: int = 0  # the outbox drops its oldest frame
    others: int = 0  # somebody else commits a fact
    mute: int = 0  # a doorbell is not rung
    trim: int = 0  # the stream loses its oldest frame
    flush: int = 0  # the stream loses all
    cut: int = 0  # the connection breaks
    lose: int = 0  # a single message is lost
    dup: int = 0  # a live frame comes again
    away: int = 0  # Redis does not answer a reading
    slow: int = 0  # what was read is used only later
    leave: int = 0  # a watcher leaves, and may come back
    hasty: int = 0  # a watcher does not wait for the confirmation
    setback: int = 0  # the database loses its newest commit
    prune: int = 0  # the oldest fact is removed


class Bound(NamedTuple):
    """How far the proof looks. A script is what an attempt does: L a live frame, F a fact, C its closing fact."""

    scripts: tuple[str, ...] = ("LFLC",)
    left: Left = Left()
    watchers: int = 1
    paced: bool = False  # a client takes one frame at a time, rather than all that wait for it
    until_idle: bool = True
    queue: int = 9
    cap: int = 99
    facts_page: int = 9
    live_page: int = 9
    held: int = 9
    future: int = 0  # so many frames of a fence that the database does not know are in the stream


class Attempt(NamedTuple):
    """One attempt and its outbox. `at` is its place in its script, -1 before it starts."""

    at: int = -1
    numbered: int = 0
    stored: int = 0
    pending: tuple[LiveKey, ...] = ()
    silent: bool = False
    knows: int = 0
    closed: bool = False


class Subject(NamedTuple):
    """A `Topic`, put aside."""

    known: int | None
    rung: int
    head: Head | None
    head_no: int
    asked_no: int
    beat_no: int
    heard: tuple[int, int]
    heard_then: tuple[int, int] | None
    held: tuple[LiveKey, ...]
    confirmed: bool


OUT, BEGIN, LOOP, ASLEEP, PAGE, DONE = "out", "begin", "loop", "asleep", "page", "done"


class Seat(NamedTuple):
    """A `Watcher`, put aside; `seen` is what its client has seen, which the product does not know of."""

    phase: str = OUT
    cursor: Position = START
    position: Position = START
    ready: tuple[tuple[Key, Position], ...] = ()
    stale: bool = False
    partial: bool = False
    queue: tuple[Key, ...] = ()
    retried: bool = False
    ahead: tuple[Position, int] | None = None
    joined: int = 0
    beaten: int = 0
    news: bool = False
    asked: Position = START
    answers: tuple[Any, ...] = ()
    seen: tuple[int, int, int] = (0, 0, 0)


class World(NamedTuple):
    """All of it."""

    left: Left
    attempts: tuple[Attempt, ...]
    seats: tuple[Seat, ...]
    facts: tuple[FactKey, ...] = ()
    pruned: int = 0
    ousted: int = 0  # attempts before this one lost their claim with the database
    belled: int = 0  # the newest fact whose doorbell was rung
    stream: tuple[LiveKey, ...] = ()
    half: tuple[LiveKey, ...] = ()  # published, not yet stored: only without a guard
    sock: tuple[Key, ...] = ()
    link: bool = True
    on: bool = False
    subscribed: bool = False
    confirmed: bool = False
    topic: Subject | None = None
    fetched: tuple[FactKey, ...] | None = None
    begun: int = 0
    reading: tuple[int, Head | None] | None = None
    # Whether anything happened that excuses a gap, a frame that nobody announced, and a reset.
    loss: bool = False
    lost: bool = False
    astray: bool = False

    def seat(self, i: int, **changes: Any) -> World:
        """Return the same with one watcher changed."""
        return self._replace(seats=(*self.seats[:i], self.seats[i]._replace(**changes), *self.seats[i + 1 :]))

    def attempt(self, i: int, **changes: Any) -> World:
        """Return the same with one attempt changed."""
        return self._replace(
            attempts=(*self.attempts[:i], self.attempts[i]._replace(**changes), *self.attempts[i + 1 :])
        )

    def spend(self, what: str) -> World:
        """Return the same after a misfortune."""
        return self._replace(left=self.left._replace(**{what: getattr(self.left, what) - 1}))

    def head(self) -> Head | None:
        """Return where the thread stands in Postgres."""
        if not self.facts:
            return None
        last = self.facts[-1]
        return Head(
            thread=THREAD, seq=len(self.facts), fence=last[3], state="idle" if last[2] == ENDED else "busy"
        )

    def facts_after(self, seq: int, limit: int) -> tuple[FactKey, ...]:
        """Return what a reading of facts returns now."""
        return self.facts[max(seq, self.pruned) :][:limit]


def beginning(bound: Bound) -> World:
    """Return the state in which nothing has happened."""
    future = tuple(("l", 9, n, 0) for n in range(1, bound.future + 1))
    return World(
        left=bound.left,
        attempts=tuple(Attempt() for _ in bound.scripts),
        seats=tuple(Seat() for _ in range(bound.watchers)),
        stream=future,
        astray=bool(future),
        loss=bool(future),
    )


def canonical(w: World) -> World:
    """Forget what makes no difference: signals without news, frames that were seen, the numbers of readings."""
    t = w.topic
    if t is not None:
        t = t._replace(heard_then=None)
        if not w.left.leave:
            w = w._replace(sock=_news_only(w.sock, t.rung))
    seats = tuple(_seat_as_it_matters(seat) for seat in w.seats)
    if not (w.left.setback or w.astray):
        # Where nothing is ever set back, a head that has come up to a watcher stays there.
        seats = tuple(
            s._replace(ahead=None) if t is None or t.head is None or t.head.seq >= s.position.seq else s
            for s in seats
        )
    return _renumbered(w._replace(topic=t, seats=seats))


def _news_only(sock: tuple[Key, ...], rung: int) -> tuple[Key, ...]:
    """Leave out doorbells that ring for what is known by then."""
    kept = []
    for signal in sock:
        if signal[0] == "r" and signal[1] <= rung:
            continue
        rung = max(rung, signal[1] if signal[0] == "r" else signal[3] if signal[0] == "l" else 0)
        kept.append(signal)
    return tuple(kept)


def _seat_as_it_matters(seat: Seat) -> Seat:
    ahead = seat.ahead if seat.ahead and seat.ahead[0] == seat.position else None
    queue = seat.queue
    if not seat.retried:
        queue = tuple(key for key in queue if not _was_seen(key, seat.position))
    return seat._replace(ahead=ahead, queue=queue)


def _was_seen(key: Key, position: Position) -> bool:
    return key[1] <= position.seq if key[0] == "f" else key[1:3] <= position.live


def _renumbered(w: World) -> World:
    """Number the readings of heads anew, since only their order matters."""
    t = w.topic
    numbers = {w.begun, *(s.joined for s in w.seats), *(s.beaten for s in w.seats)}
    numbers |= {s.ahead[1] for s in w.seats if s.ahead}
    if w.reading:
        numbers.add(w.reading[0])
    if t:
        numbers |= {t.head_no, t.asked_no, t.beat_no}
    numbers.discard(0)
    rank = {0: 0} | {number: place for place, number in enumerate(sorted(numbers), 1)}
    if t:
        t = t._replace(head_no=rank[t.head_no], asked_no=rank[t.asked_no], beat_no=rank[t.beat_no])
    seats = tuple(
        s._replace(
            joined=rank[s.joined],
            beaten=rank[s.beaten],
            ahead=(s.ahead[0], rank[s.ahead[1]]) if s.ahead else None,
        )
        for s in w.seats
    )
    reading = (rank[w.reading[0]], w.reading[1]) if w.reading else None
    return w._replace(topic=t, seats=seats, reading=reading, begun=rank[w.begun])


@cache
def frame_of(key: Key) -> Frame:
    """Return the frame that a key stands for."""
    data: dict[str, Any] = {"key": key}
    if key[0] == "f":
        _, seq, name, fence, live = key
        data["fact"] = name
        if live is not None:
            data["live"] = {"fence": live[0], "n": live[1]}
        return _frame("fact", data, seq=seq, fence=fence)
    if key[0] == "l":
        _, fence, n, seq = key
        return _frame("attempt" if n == 1 else "event", data, seq=seq, fence=fence, n=n)
    return _frame("gap", data | {"reason": key[1]})


def _frame(kind: Any, data: dict[str, Any], *, seq: int = 0, fence: int = 0, n: int = 0) -> Frame:
    return Frame(thread=THREAD, run="r1", fence=fence, n=n, seq=seq, kind=kind, at="", data=data)


def key_of(frame: Frame) -> Key:
    """Return the key of a frame."""
    return frame.data.get("key") or ("g", frame.data["reason"])


def signal_of(key: Key) -> Signal:
    """Return what the subscriber says when a frame, or a doorbell, comes in."""
    return Rung(thread=THREAD, seq=key[1]) if key[0] == "r" else LiveArrived(frame=frame_of(key), body="x")
