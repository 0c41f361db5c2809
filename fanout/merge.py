"""The rules by which facts and live frames become one ordered sequence per watcher.

Two numberings meet here: facts by `seq`, live frames by `(fence, n)`. A position holds the last one seen of
each, and only grows; what is not newer was seen. A live frame names the fact it came after, so it goes before
later facts. A hole in either numbering is read again from the stores; if they do not have it either, a gap
frame says so.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Frame, Kind

Accept = Literal["deliver", "drop", "reread"]

# Facts that close an attempt: they name the last live frame it numbered.
_CLOSING: Final = frozenset({"run_ended", "paused", "attempt_closed"})
_LIVE_KINDS: Final = frozenset({"event", "draft"})
_LIVE_GAPS: Final = frozenset({"lost", "trimmed"})


def interleave(facts: Sequence[Frame], live: Sequence[Frame]) -> Iterator[Frame]:
    """Yield both in one order: each live frame after the facts up to the seq it carries, before later ones.

    Each of the two comes in its own order, which is kept.
    """
    at = 0
    for frame in live:
        while at < len(facts) and facts[at].seq <= frame.seq:
            yield facts[at]
            at += 1
        yield frame
    yield from facts[at:]


def accept(position: Position, frame: Frame) -> Accept:
    """Decide what a watcher at `position` does with a fact or live frame that just arrived.

    "reread": something is missing before it; the backlog after `position` has to be read first.
    """
    if not _is_newer(position, frame):
        return "drop"
    if frame.n > 0:
        ready = frame.seq <= position.seq and _follows(position, frame)
    else:
        ready = frame.seq == position.seq + 1 and position.live >= _last_live(frame)
    return "deliver" if ready else "reread"


def merge(facts: Sequence[Frame], live: Sequence[Frame], position: Position) -> list[tuple[Frame, Position]]:
    """Merge a backlog, as read from the stores, for a watcher at `position`.

    Returns the frames to deliver, each with the position after it. Where the stores have a hole, a gap frame
    stands in it; its position is the end of the hole, so nobody is told of it twice.
    """
    merged: list[tuple[Frame, Position]] = []
    seen_fence = 0
    for frame in interleave(facts, live):
        if not _is_newer(position, frame):
            continue
        ready = _position_before(position, frame)
        if ready != position:
            reason = _reason(position, frame, inside=frame.fence == seen_fence)
            merged.append((_gap(frame, ready, position, reason=reason), ready))
        position = position_after(ready, frame)
        merged.append((frame, position))
        if frame.n > 0:
            seen_fence = frame.fence
    return merged


def position_after(position: Position, frame: Frame) -> Position:
    """Return the position after a fact or live frame that was delivered at `position`."""
    return position.at_live(frame.fence, frame.n) if frame.n > 0 else position.at_fact(frame.seq)


def closes_attempt(frame: Frame) -> bool:
    """Tell whether a frame is a fact after which the thread may be idle or paused."""
    return frame.kind == "fact" and frame.data.get("fact") in _CLOSING


def shows(frame: Frame, kinds: Collection[Kind] | None) -> bool:
    """Tell whether a watcher who asked for these kinds gets a frame; what tells where it stands, it always gets."""
    if kinds is None or frame.kind in kinds or frame.kind in ("head", "end"):
        return True
    if frame.kind == "gap":
        # A hole in the log of facts concerns everybody, one among the live frames only those who asked for some.
        return frame.data.get("reason") not in _LIVE_GAPS or not _LIVE_KINDS.isdisjoint(kinds)
    return frame.kind == "attempt" and not _LIVE_KINDS.isdisjoint(kinds)


def _is_newer(position: Position, frame: Frame) -> bool:
    if frame.n > 0:
        return (frame.fence, frame.n) > position.live
    return frame.seq > position.seq


def _follows(position: Position, frame: Frame) -> bool:
    if frame.fence == position.fence:
        return frame.n == position.n + 1
    return frame.n == 1


def _last_live(fact: Frame) -> tuple[int, int]:
    last = fact.data.get("live") if closes_attempt(fact) else None
    if not isinstance(last, dict):
        return 0, 0
    return int(last["fence"]), int(last["n"])


def _position_before(position: Position, frame: Frame) -> Position:
    """Return the position at which the frame is the next one."""
    if frame.n > 0:
        return position if _follows(position, frame) else position.at_live(frame.fence, frame.n - 1)
    fence, n = max(position.live, _last_live(frame))
    return Position(seq=frame.seq - 1, fence=fence, n=n)


def _reason(position: Position, frame: Frame, *, inside: bool) -> str:
    if frame.n > 0:
        # A hole between two stored frames of one attempt was never stored: its outbox had to drop frames.
        # A hole before the first one was stored once, and the window has moved on or was flushed.
        return "lost" if inside else "trimmed"
    return "lost" if frame.seq == position.seq + 1 else "pruned"


def _gap(frame: Frame, ready: Position, position: Position, *, reason: str) -> Frame:
    return Frame(
        thread=frame.thread,
        run=frame.run,
        fence=ready.fence,
        n=0,
        seq=ready.seq,
        kind="gap",
        at=frame.at,
        data={"reason": reason, "after": position.cursor(), "until": ready.cursor()},
    )
