"""The guards of the watch. Each can be taken away, to see that the proof notices.

Some stand in the model itself, where it stands for a store or a loop; the others are parts of the product, and
`taken_away` puts in their place what they would be without the guard. Where one guard covers for another, both
are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

from threadhold.fanout import backlog, hub, merge, topic
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.memory import MemoryLive
from threadhold.fanout.ports import Confirmed, Head, LiveArrived, LivePage, Place, Signal


class Guards(NamedTuple):
    """Those of the model; all on. Every name says what is done."""

    reading_follows_the_confirmation: bool = True
    frames_are_stored_before_they_are_published: bool = True
    closing_facts_name_the_last_frame: bool = True
    news_during_a_reading_counts: bool = True
    tops_are_looked_at: bool = True
    heads_are_read_again: bool = True
    heads_are_as_new_as_the_watcher: bool = True


ALL = Guards()

Patch = tuple[Any, str, Any]
_hear, _outlook, _live, _read_live = (
    hub.Hub._hear,
    topic.outlook,
    topic.Topic.live,
    backlog.Backlogs._read_live,
)
_merged, _offer = backlog._merged, topic.Watcher.offer


def _newer_always(position: Position, frame: Frame) -> bool:
    return True


def _accept_with_holes(position: Position, frame: Frame) -> str:
    if not merge._is_newer(position, frame):
        return "drop"
    ready = frame.seq <= position.seq if frame.n else frame.seq == position.seq + 1
    return "deliver" if ready else "reread"


def _accept_before_the_tail(position: Position, frame: Frame) -> str:
    if frame.n:
        return merge.accept(position, frame)
    newer = merge._is_newer(position, frame)
    return "drop" if not newer else "deliver" if frame.seq == position.seq + 1 else "reread"


def _accept_before_its_fact(position: Position, frame: Frame) -> str:
    if not frame.n:
        return merge.accept(position, frame)
    newer = merge._is_newer(position, frame)
    return "drop" if not newer else "deliver" if merge._follows(position, frame) else "reread"


def _no_position_before(position: Position, frame: Frame) -> Position:
    return position


def _hear_confirmations_only(self: hub.Hub, signal: Signal) -> int:
    if isinstance(signal, Confirmed):
        self._confirmed.add(signal.thread)
        if signal.thread in self._topics:
            self._topics[signal.thread].confirmed.set()
        return 0
    return _hear(self, signal)


def _offer_or_drop(self: topic.Watcher, item: topic.Item) -> bool:
    return len(self._queue) < self._queue_max and _offer(self, item)


def _reread_for_ever(self: topic.Watcher, item: topic.Item) -> None:
    self.stale = True


def _is_ahead_at_once(self: topic.Watcher, head_no: int, *, asked_no: int) -> bool:
    return True


def _end_at_rest(of: topic.Topic, watcher: topic.Watcher, *, until_idle: bool) -> str:
    if until_idle and of.head is not None and of.head.state != "busy":
        return "end"
    return _outlook(of, watcher, until_idle=until_idle)


def _end_of_an_old_head(of: topic.Topic, watcher: topic.Watcher, *, until_idle: bool) -> str:
    watcher.joined = -1
    return _outlook(of, watcher, until_idle=until_idle)


def _live_at_once(self: topic.Topic, item: topic.Item) -> None:
    self.ring(item.frame.seq)
    self.hear((item.frame.fence, item.frame.n))
    self._offer(item)


def _set_head_in_silence(self: topic.Topic, head: Head, item: topic.Item, *, number: int, beat: bool) -> None:
    self.head, self.head_item, self.head_no = head, item, number
    for watcher in self.watchers:
        watcher.rouse()


async def _append_anybody(self: MemoryLive, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
    self._streams.setdefault(thread, []).extend(frames)
    for frame in frames:
        self._tell(thread, LiveArrived(frame=frame))
    return None


async def _clear_nothing(self: MemoryLive, thread: str, top: Place) -> None:
    return None


async def _read_live_in_full(self: backlog.Backlogs, thread: str, position: Position) -> LivePage | None:
    page = await _read_live(self, thread, position)
    return page and LivePage(frames=page.frames, more=False)


def _merged_in_full(*args: Any, **kwargs: Any) -> backlog.Page:
    return replace(_merged(*args, **kwargs), more=False)


def _learn_once(self: topic.Topic, seq: int) -> None:
    if self.known is None:
        self.known = seq
    self.ring(seq)


def _interleave_facts_first(facts: Sequence[Frame], live: Sequence[Frame]) -> Iterator[Frame]:
    yield from facts
    yield from live


def _look_for_all(self: topic.Topic, top: Place) -> None:
    if top > self.heard:
        self.hear(top)
        self.mark_stale()


def _nothing(*_: Any, **__: Any) -> None:
    return None


_DEDUPE: Patch = (merge, "_is_newer", _newer_always)
_HOLES: Patch = (topic, "accept", _accept_with_holes)

PATCHES: dict[str, tuple[Patch, ...]] = {
    "what_was_seen_is_dropped": (_DEDUPE,),
    "ids_shut_zombies_out_and_what_was_seen_is_dropped": (
        (MemoryLive, "append", _append_anybody),
        _DEDUPE,
    ),
    "holes_are_read_again": (_HOLES,),
    "closing_facts_wait_for_the_tail": ((topic, "accept", _accept_before_the_tail),),
    "holes_are_marked": ((merge, "_position_before", _no_position_before),),
    "live_frames_go_before_later_facts": ((merge, "interleave", _interleave_facts_first),),
    "a_confirmation_is_a_reason_to_read": ((hub.Hub, "_hear", _hear_confirmations_only),),
    "an_overflow_is_a_reason_to_read": ((topic.Watcher, "offer", _offer_or_drop),),
    "a_hole_is_read_again_once": ((topic.Watcher, "_reread", _reread_for_ever),),
    "only_a_later_head_resets": ((topic.Watcher, "is_ahead", _is_ahead_at_once),),
    "facts_come_before_the_end": ((hub, "outlook", _end_at_rest),),
    "frames_wait_for_their_facts": (
        (topic.Topic, "live", _live_at_once),
        (topic, "accept", _accept_before_its_fact),
    ),
    "heads_tell_of_facts": ((topic.Topic, "set_head", _set_head_in_silence),),
    "frames_of_a_lost_future_are_cleared": ((MemoryLive, "clear", _clear_nothing),),
    "a_cut_page_is_followed_by_the_next": ((backlog, "_merged", _merged_in_full),),
    "facts_wait_for_unread_live_frames": ((backlog.Backlogs, "_read_live", _read_live_in_full),),
    "a_late_reader_is_handed_what_it_lacks": ((topic.Topic, "learn", _learn_once),),
    "a_failed_reading_is_taken_up_again": ((topic.Topic, "look", _look_for_all),),
}

# What another guard covers for: without it a watcher reads more often, or is told later, and nothing worse.
COVERED: dict[str, tuple[Patch, ...]] = {
    "ids_shut_zombies_out": ((MemoryLive, "append", _append_anybody),),
    "frames_are_held": ((topic.Topic, "live", _live_at_once),),
    "a_reset_sets_the_topic_back": ((topic.Topic, "set_back", _nothing),),
}

NAMES: tuple[str, ...] = (*Guards._fields, *PATCHES)


@contextmanager
def taken_away(name: str) -> Iterator[Guards]:
    """Do without a guard; yield those that are left in the model."""
    with ExitStack() as stack:
        for where, what, instead in (PATCHES | COVERED).get(name, ()):
            stack.enter_context(mock.patch.object(where, what, instead))
        yield ALL._replace(**{name: False}) if name in Guards._fields else ALL
