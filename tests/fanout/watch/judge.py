"""What a watcher is promised, judged from what its client sees and from what really happened."""

from __future__ import annotations

from tests.fanout.watch.world import ASLEEP, DONE, ENDED, OUT, Key, Seat, World, key_of
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery
from threadhold.fanout.ports import Head


class Broken(Exception):
    """An invariant does not hold; the text begins with its name."""


def demand(holds: bool, invariant: str, detail: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise Broken(f"{invariant}: {detail}")


def see(w: World, seen: tuple[int, int, int], delivery: Delivery, head: Head | None) -> tuple[int, int, int]:
    """Judge one delivery; return what the client has seen after it."""
    frame, position = delivery.frame, delivery.position
    if frame.kind == "gap":
        return _see_gap(w, seen, str(frame.data["reason"]), position)
    if frame.kind in ("head", "end"):
        _see_control(w, seen, frame.kind, head)
    elif frame.kind == "fact":
        seen = _see_fact(w, seen, key_of(frame))
    else:
        seen = _see_live(w, seen, key_of(frame))
    demand((position.seq, *position.live) == seen, "a cursor is where one stands", f"{position} after {seen}")
    return seen


def _see_gap(w: World, seen: tuple[int, int, int], reason: str, position: Position) -> tuple[int, int, int]:
    now = (position.seq, *position.live)
    if reason == "reset":
        demand(w.astray, "no reset without a cause", "the log was never set back")
    elif reason == "pruned":
        demand(w.pruned > seen[0] or w.astray, "no gap without a loss", "all facts are there")
    else:
        demand(w.loss, "no gap without a loss", "no live frame was ever lost")
        demand(now[0] == seen[0] and now[1:] > seen[1:], "a gap is a hole", f"from {seen} to {now}")
    return now


def _see_control(w: World, seen: tuple[int, int, int], kind: str, head: Head | None) -> None:
    demand(head is not None and seen[0] >= head.seq, "facts before the end", f"{kind} of {head} at {seen}")
    if kind == "end" and seen[0] and not w.astray:
        rests = w.facts[seen[0] - 1][2] == ENDED
        demand(rests, "an end when it rests", f"the thread goes on after {seen[0]}")


def _see_fact(w: World, seen: tuple[int, int, int], key: Key) -> tuple[int, int, int]:
    _, seq, name, fence, _ = key
    demand(seq > seen[0], "nothing twice", f"fact {seq} after {seen}")
    demand(seq == seen[0] + 1, "facts have no holes", f"fact {seq} after {seen}")
    demand(w.astray or w.facts[seq - 1] == key, "facts are true", f"{key} is not in the log")
    if name == ENDED and fence <= len(w.attempts):
        last = (fence, w.attempts[fence - 1].numbered)
        demand(seen[1:] >= last, "the tail before the end", f"{last} was numbered, {seen} were seen")
    return (seq, *seen[1:])


def _see_live(w: World, seen: tuple[int, int, int], key: Key) -> tuple[int, int, int]:
    _, fence, n, seq = key
    demand((fence, n) > seen[1:], "nothing twice", f"live {fence}-{n} after {seen}")
    follows = n == seen[2] + 1 if fence == seen[1] else n == 1
    demand(follows, "no hole unmarked", f"live {fence}-{n} after {seen}")
    there = max(seen[0], w.pruned)
    demand(
        w.astray or seq <= there, "a frame after its fact", f"{fence}-{n} came after fact {seq}, not {seen}"
    )
    if fence > seen[1] > 0 and not (w.loss or w.lost or w.astray):
        left = w.attempts[seen[1] - 1].stored
        demand(
            left <= seen[2], "no hole unmarked", f"{seen[1]}-{left} was stored, {fence}-1 came after {seen}"
        )
    return (seen[0], fence, n)


def check_state(w: World) -> None:
    """Check that who has nothing left to wait for has all there is, without the looks and beats that heal a loss."""
    t = w.topic
    quiet = t is not None and w.on and w.confirmed and not w.sock and not w.half and w.fetched is None
    if not quiet or t is None or w.lost or w.astray or (t.known is not None and t.rung > t.known):
        return
    for seat in w.seats:
        if seat.phase == ASLEEP and not seat.news and not w.loss:
            demand(
                seat.seen[0] >= w.belled, "told at once", f"fact {w.belled} is known, {seat.seen} were seen"
            )
            demand(_has_live(w, seat), "told at once", f"{w.stream[-1:]} are stored, {seat.seen} were seen")


def settled(w: World, *, until_idle: bool) -> bool:
    """Tell whether every watcher has all there is."""
    head = w.head()
    rests = until_idle and (head is None or head.state == "idle")
    return all(
        seat.phase in (OUT, DONE)
        or (
            seat.phase == ASLEEP
            and not rests
            and seat.seen[0] == len(w.facts)
            and (_has_live(w, seat) or w.astray)
        )
        for seat in w.seats
    )


def _has_live(w: World, seat: Seat) -> bool:
    return not w.stream or w.stream[-1][1:3] <= seat.seen[1:]
