"""Everything that can happen next. What is fair happens by itself as long as nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.fanout.watch.rig import Rig, Scene, run
from tests.fanout.watch.world import (
    ACCEPTED,
    ASLEEP,
    BEGIN,
    CALLED,
    DONE,
    ENDED,
    LAPSED,
    LOOP,
    OUT,
    PAGE,
    STARTED,
    THREAD,
    FactKey,
    LiveKey,
    World,
    frame_of,
    signal_of,
)
from threadhold.fanout.backlog import Page
from threadhold.fanout.ports import Confirmed, Dropped, Head
from threadhold.fanout.topic import is_behind

CONFIRMED, DROPPED = ("c",), ("d",)
_NO_HEAD = Head(thread=THREAD, seq=0, fence=0, state="idle")


class Move(NamedTuple):
    """One step."""

    label: str
    world: World
    fair: bool = False


def moves(rig: Rig, w: World) -> Iterator[Move]:
    """Yield everything that can happen next."""
    for i in range(len(w.attempts)):
        yield from _attempt(rig, w, i)
        yield from _outbox(rig, w, i)
    yield from _others(w)
    yield from _misfortunes(w)
    yield from _connection(rig, w)
    if w.topic is not None:
        yield from _topic(rig, w)
    for i in range(len(w.seats)):
        # Of watchers that are in the same state one is enough.
        if i == 0 or w.seats[i] != w.seats[i - 1]:
            yield from _watcher(rig, w, i)


# Attempts, and who else writes facts


def _attempt(rig: Rig, w: World, i: int) -> Iterator[Move]:
    attempt, script = w.attempts[i], rig.bound.scripts[i]
    if attempt.at < 0:
        yield from _start(w, i)
    elif attempt.at < len(script):
        w = w.attempt(i, at=attempt.at + 1)
        step = script[attempt.at]
        if step == "L":
            yield from _put(rig, w, i)
        elif i != _holder(w):
            yield Move(f"a{i} finds its claim lost", w.attempt(i, at=len(script)))
        elif step == "F":
            yield from _commit(w, i, CALLED)
        else:
            last = (i + 1, attempt.numbered) if rig.guards.closing_facts_name_the_last_frame else None
            closed = w.attempt(i, closed=True)._replace(loss=w.loss or bool(attempt.pending))
            yield from _commit(closed, i, ENDED, live=last)


def _holder(w: World) -> int:
    """Return the attempt that has the claim, or -1."""
    started = [i for i, a in enumerate(w.attempts) if a.at >= 0]
    last = started[-1] if started else -1
    return last if last >= w.ousted and not w.attempts[last].closed else -1


def _start(w: World, i: int) -> Iterator[Move]:
    if i and w.attempts[i - 1].at < 0:
        return
    w = w.attempt(i, at=0)
    previous = w.attempts[i - 1] if i else None
    if previous is None or previous.closed or i - 1 < w.ousted:
        yield from _commit(w, i, STARTED)
    elif w.left.takeover:
        yield from _commit(w.spend("takeover"), i, LAPSED)


def _commit(
    w: World, i: int, name: str, *, live: tuple[int, int] | None = None, fence: int = 0
) -> Iterator[Move]:
    """Commit a fact and ring the doorbell, or not."""
    seq = len(w.facts) + 1
    fact: FactKey = ("f", seq, name, fence or i + 1, live)
    w = w._replace(facts=(*w.facts, fact))
    if i >= 0:
        w = w.attempt(i, knows=seq)
    if w.left.mute:
        yield Move(f"fact {seq} {name}, not rung", w.spend("mute"))
    bell = (("r", seq),) if w.on else ()
    yield Move(f"fact {seq} {name}", w._replace(sock=w.sock + bell, belled=seq))


def _others(w: World) -> Iterator[Move]:
    if w.left.others and w.facts:
        yield from _commit(w.spend("others"), -1, ACCEPTED, fence=w.facts[-1][3])


def _put(rig: Rig, w: World, i: int) -> Iterator[Move]:
    """Number a live frame, and send it, now or later."""
    attempt = w.attempts[i]
    if attempt.silent:
        yield Move(f"a{i} is silent", w)
        return
    frame: LiveKey = ("l", i + 1, attempt.numbered + 1, attempt.knows)
    w = w.attempt(i, numbered=frame[2], pending=(*attempt.pending, frame))
    if attempt.pending:
        yield Move(f"a{i} keeps {i + 1}-{frame[2]}", w)
        return
    if w.left.late:
        yield Move(f"a{i} keeps {i + 1}-{frame[2]}", w.spend("late"))
    yield _send(rig, w, i)


def _outbox(rig: Rig, w: World, i: int) -> Iterator[Move]:
    pending = w.attempts[i].pending
    if pending:
        yield _send(rig, w, i)
        if w.left.outbox:
            dropped = w.spend("outbox").attempt(i, pending=pending[1:])
            yield Move(f"a{i} drops {i + 1}-{pending[0][2]}", dropped._replace(loss=True))
    if w.half and not i:
        rig.live.load(w.stream)
        run(rig.live.append(THREAD, w.half[0][1], [frame_of(w.half[0])]))
        stored = w._replace(half=w.half[1:], stream=rig.live.stream)
        yield Move("the published frame is stored", stored, fair=True)


def _send(rig: Rig, w: World, i: int) -> Move:
    """Send the oldest frame that waits; a later fence silences the outbox, unless its claim still stands."""
    attempt = w.attempts[i]
    frame, rest = attempt.pending[0], attempt.pending[1:]
    name = f"a{i} sends {i + 1}-{frame[2]}"
    rig.live.load(w.stream)
    newer = run(rig.live.append(THREAD, i + 1, [frame_of(frame)]))
    if newer is not None:
        if i != _holder(w):
            return Move(f"{name}, and falls silent", w.attempt(i, pending=(), silent=True))
        run(rig.live.clear(THREAD, newer))
        return Move(f"{name}, and clears the stream", w._replace(stream=rig.live.stream))
    trimmed = len(rig.live.stream) <= len(w.stream)
    heard = tuple(rig.live.published) if w.on else ()
    w = w._replace(sock=w.sock + heard, loss=w.loss or trimmed)
    if not rig.guards.frames_are_stored_before_they_are_published:
        w = w._replace(half=(*w.half, frame))
    else:
        w = w._replace(stream=rig.live.stream)
    late = any(later.stored for later in w.attempts[i + 1 :])
    return Move(name, w.attempt(i, pending=rest, stored=attempt.stored if late else frame[2]))


# Misfortunes


def _misfortunes(w: World) -> Iterator[Move]:
    left = w.left
    if left.trim and w.stream:
        yield Move("the stream is trimmed", w.spend("trim")._replace(stream=w.stream[1:], loss=True))
    if left.flush and w.stream:
        yield Move("the stream is flushed", w.spend("flush")._replace(stream=(), loss=True))
    if left.cut and w.link and w.subscribed:
        cut = w.spend("cut")._replace(link=False, on=False)
        yield Move("the connection breaks", cut._replace(sock=(*w.sock, DROPPED)))
        yield Move("the connection breaks with all under way", cut._replace(sock=(DROPPED,)))
    if left.setback and len(w.facts) > 1:
        started = sum(a.at >= 0 for a in w.attempts)
        back = w.spend("setback")._replace(facts=w.facts[:-1], ousted=started, astray=True, loss=True)
        yield Move("the database loses a commit", back)
    if left.prune and len(w.facts) > w.pruned + 1:
        yield Move("a fact is pruned", w.spend("prune")._replace(pruned=w.pruned + 1))
    yield from _in_the_socket(w)


def _in_the_socket(w: World) -> Iterator[Move]:
    for place, signal in enumerate(w.sock):
        if signal[0] in "lr" and w.left.lose:
            lost = w.spend("lose")._replace(sock=w.sock[:place] + w.sock[place + 1 :], lost=True)
            yield Move(f"{signal} is lost", lost)
    if w.left.dup and w.on:
        for frame in w.stream:
            yield Move(f"{frame} comes again", w.spend("dup")._replace(sock=(*w.sock, frame)))


# The process that watches


def _connection(rig: Rig, w: World) -> Iterator[Move]:
    wanted = w.topic is not None
    if wanted and not w.subscribed and rig.guards.reading_follows_the_confirmation:
        on = w._replace(subscribed=True, on=w.link, sock=w.sock + (CONFIRMED,) * w.link)
        yield Move("the thread is subscribed", on, fair=True)
    elif wanted and not w.subscribed and any(s.phase in (LOOP, ASLEEP) for s in w.seats):
        # Without the guard: a watcher has read first, and the confirmation tells it nothing.
        on = w._replace(subscribed=True, on=w.link, confirmed=True)
        yield Move("the thread is subscribed", on, fair=True)
    elif not wanted and w.subscribed:
        off = w._replace(subscribed=False, on=False, confirmed=False)
        yield Move("the thread is given up", off, fair=True)
    if not w.link:
        up = w._replace(link=True, on=w.subscribed, sock=w.sock + (CONFIRMED,) * w.subscribed)
        yield Move("the connection is back", up, fair=True)
    if w.sock:
        scene = Scene(rig, w._replace(sock=w.sock[1:]))
        key = w.sock[0]
        if key == CONFIRMED:
            scene.hub._hear(Confirmed(thread=THREAD))
        elif key == DROPPED:
            scene.hub._hear(Dropped(threads=frozenset((THREAD,))))
        else:
            scene.hub._hear(signal_of(key))
        yield Move(f"the hub hears {key}", scene.world(), fair=True)


def _topic(rig: Rig, w: World) -> Iterator[Move]:
    yield from _facts(rig, w)
    yield from _heads(rig, w)
    assert w.topic is not None
    lacked = w.stream and (w.stream[-1][1:3] > w.topic.heard or any(s.partial for s in w.seats))
    if rig.guards.tops_are_looked_at and lacked and (w.lost or w.left.slow):
        scene = Scene(rig, w if w.lost else w.spend("slow"))
        assert scene.topic is not None
        # Two looks in a row, with nothing heard between them.
        if scene.topic.was_quiet() or scene.topic.was_quiet():
            scene.topic.look((w.stream[-1][1], w.stream[-1][2]))
        yield Move("the hub looks at the top of the stream", scene.world(), fair=True)


def _facts(rig: Rig, w: World) -> Iterator[Move]:
    scene = Scene(rig, w)
    assert scene.topic is not None
    page = w.fetched
    if page is None and scene.topic.wants_facts:
        page = w.facts_after(scene.topic.known or 0, rig.bound.facts_page)
        if w.left.slow:
            yield Move("the hub reads facts", w.spend("slow")._replace(fetched=page), fair=True)
    if page is not None:
        scene.topic.facts([frame_of(key) for key in page])
        yield Move("the hub hands facts on", scene.world(fetched=None), fair=True)


def _heads(rig: Rig, w: World) -> Iterator[Move]:
    topic, reading = w.topic, w.reading
    assert topic is not None
    if reading is None and _wants_head(rig, w):
        w = w._replace(begun=w.begun + 1, topic=topic._replace(asked_no=w.begun + 1))
        reading = (w.begun, w.head())
        if w.left.slow:
            yield Move("the hub reads the head", w.spend("slow")._replace(reading=reading), fair=True)
    if reading is not None:
        scene = Scene(rig, w)
        assert scene.topic is not None
        scene.hub._set_head(scene.topic, reading[1], number=reading[0], beat=True)
        yield Move("the hub takes the head", scene.world(reading=None), fair=True)


def _wants_head(rig: Rig, w: World) -> bool:
    """Tell whether a reading could make a difference; as many as one likes could be made in between."""
    topic, head = w.topic, w.head() or _NO_HEAD
    assert topic is not None
    if topic.head is None or any(s.phase == BEGIN and topic.head_no <= s.joined for s in w.seats):
        return True
    if not rig.guards.heads_are_read_again:
        return False
    if w.left.slow or w.left.setback or w.astray:
        return topic.head != head or topic.rung < head.seq or any(s.ahead for s in w.seats)
    if topic.head.state != head.state or w.lost or w.belled < len(w.facts):
        return topic.head != head
    return head.state == "idle" and topic.head.seq < head.seq


def _watcher(rig: Rig, w: World, i: int) -> Iterator[Move]:
    seat = w.seats[i]
    if seat.phase == OUT:
        yield Move(f"w{i} comes", _enter(rig, w, i))
        return
    if seat.phase == DONE:
        return
    if w.left.leave and seat.phase in (LOOP, ASLEEP):
        yield Move(f"w{i} leaves", Scene(rig, w).leave(i, phase=OUT).spend("leave"))
    if seat.phase == BEGIN:
        yield from _begin(rig, w, i)
    elif seat.phase == PAGE:
        yield from _page(rig, w, i)
    elif seat.phase == LOOP or seat.news:
        woken = w.seat(i, phase=LOOP, news=False) if seat.phase == ASLEEP else w
        yield Move(f"w{i} goes on", Scene(rig, woken).advance(i), fair=True)


def _enter(rig: Rig, w: World, i: int) -> World:
    scene = Scene(rig, w)
    _, watcher = scene.hub._enter(THREAD, w.seats[i].cursor)
    while not scene.hub._changed.empty():
        scene.hub._changed.get_nowait()
    scene.topic = scene.hub._topics[THREAD]
    scene.watchers[i] = watcher
    return scene.world().seat(i, phase=BEGIN)


def _begin(rig: Rig, w: World, i: int) -> Iterator[Move]:
    """Take the first step of a watcher that has waited for the confirmation and for a head; as `Hub._begin`."""
    topic, seat = w.topic, w.seats[i]
    assert topic is not None
    if topic.head_no <= seat.joined and rig.guards.heads_are_as_new_as_the_watcher:
        return
    if topic.head is None:
        return
    ready = topic.confirmed or not rig.guards.reading_follows_the_confirmation
    if ready or w.left.hasty:
        w = w if ready else w.spend("hasty")
        scene = Scene(rig, w)
        assert scene.topic is not None
        if is_behind(topic.head, scene.watchers[i].position):
            run(scene.hub._reset(scene.topic, scene.watchers[i], topic.head))
        yield Move(f"w{i} begins", scene.advance(i), fair=True)


def _page(rig: Rig, w: World, i: int) -> Iterator[Move]:
    asks = rig.ask(w.seats[i])
    if isinstance(asks, Page):
        yield Move(f"w{i} takes its page", Scene(rig, w).turn(i, asks), fair=True)
        return
    what, after, limit = asks
    if what == "facts":
        yield from _take(rig, w, i, w.facts_after(after, min(limit, rig.bound.facts_page)))
        return
    if w.left.away:
        away = w.spend("away")._replace(loss=True, lost=True)
        yield from _take(rig, away, i, None, what="finds Redis away")
    limit = min(limit, rig.bound.live_page)
    newer = [key for key in w.stream if key[1:3] > after]
    yield from _take(rig, w, i, (tuple(newer[:limit]), len(newer) > limit))


def _take(rig: Rig, w: World, i: int, answer: object, *, what: str = "reads") -> Iterator[Move]:
    """Give a reading what it asked for; once it has all, the watcher takes its page, now or later."""
    fair = answer is not None
    w = w.seat(i, answers=(*w.seats[i].answers, answer))
    page = rig.ask(w.seats[i])
    if not isinstance(page, Page) or w.left.slow:
        later = w.spend("slow") if isinstance(page, Page) else w
        yield Move(f"w{i} {what}", later, fair=fair)
    if isinstance(page, Page):
        yield Move(f"w{i} {what} and takes its page", Scene(rig, w).turn(i, page), fair=fair)
