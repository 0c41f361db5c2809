"""Within which bounds the proof looks, and what each guard is for."""

from __future__ import annotations

from typing import NamedTuple

from tests.fanout.watch.world import Bound, Left

SMALL = {
    "one run": Bound(("LFLC",)),
    "slow reads": Bound(("LF",), Left(slow=1)),
    "connection": Bound(("LL",), Left(cut=1)),
    "takeover": Bound(("LL", "L"), Left(takeover=1)),
    "claim lost": Bound(("F", ""), Left(takeover=1)),
    "outbox": Bound(("LC",), Left(late=1, outbox=1)),
    "stream": Bound(("LC",), Left(trim=1, flush=1)),
    "messages": Bound(("L",), Left(lose=1, dup=1)),
    "pages": Bound(("LFLC",), facts_page=1, live_page=1, held=1),
    "overflow": Bound(("LLL",), queue=1, paced=True),
    "log": Bound(("F",), Left(setback=1, slow=1)),
    "pruned": Bound(("LC",), Left(prune=1, mute=1)),
    "lost future": Bound(("LL",), future=1),
    "comes back": Bound(("LC",), Left(leave=1), paced=True),
    "in haste": Bound(("LL",), Left(hasty=1)),
    "two watchers": Bound(("F",), watchers=2),
    "Redis away": Bound(("L",), Left(away=1, lose=1)),
    "Redis away, two watchers": Bound(("",), Left(away=1), watchers=2),
}
LARGE = {
    "two runs": Bound(("LFC", "LC")),
    "slow reads": Bound(("LFC",), Left(slow=2)),
    "somebody else": Bound(("LLC",), Left(slow=1, others=1)),
    "connection": Bound(("LFC",), Left(cut=2)),
    "takeover": Bound(("LLF", "LC"), Left(takeover=1, late=1)),
    "takeover, connection": Bound(("LL", "L"), Left(takeover=1, cut=1)),
    "outbox": Bound(("LLLC",), Left(late=2, outbox=1)),
    "stream": Bound(("LLC",), Left(trim=1, flush=1, cut=1)),
    "messages": Bound(("LF",), Left(lose=2, dup=1)),
    "pages": Bound(("LFLLFC",), Left(slow=1), facts_page=1, live_page=1, held=1),
    "overflow": Bound(("LLFLC",), Left(slow=1), queue=2, paced=True),
    "log": Bound(("LF",), Left(setback=1, slow=1, mute=1)),
    "pruned": Bound(("LFC",), Left(prune=2, mute=1)),
    "lost future": Bound(("LLC",), Left(slow=1), future=2),
    "comes back": Bound(("LFC",), Left(leave=2), paced=True),
    "two watchers": Bound(("LF",), watchers=2),
    "two watchers, connection": Bound(("L",), Left(cut=1), watchers=2),
    "Redis away": Bound(("LL",), Left(away=2, lose=1)),
    "Redis away, two watchers": Bound(("L",), Left(away=1), watchers=2),
}


class Case(NamedTuple):
    """Which invariant breaks, within which bound, when a guard is taken away."""

    breaks: str
    bound: Bound


TWICE, HOLES, HOLE, TAIL = (
    "nothing twice",
    "facts have no holes",
    "no hole unmarked",
    "the tail before the end",
)
SETTLES, ONCE, RESET = "all settles", "told at once", "no reset without a cause"
EARLY, ENDS, GAPS = "a frame after its fact", "an end when it rests", "no gap without a loss"

CASES = {
    "reading_follows_the_confirmation": Case(ONCE, Bound(("LL",))),
    "frames_are_stored_before_they_are_published": Case(ONCE, Bound(("LL",))),
    "closing_facts_name_the_last_frame": Case(TAIL, Bound(("LC",), Left(flush=1))),
    "news_during_a_reading_counts": Case(ONCE, Bound(("F",), Left(cut=1))),
    "tops_are_looked_at": Case(SETTLES, Bound(("LL",), Left(lose=1))),
    "heads_are_read_again": Case(SETTLES, Bound(("LC",), Left(mute=1))),
    "heads_are_as_new_as_the_watcher": Case(RESET, Bound(("F",), Left(leave=1), watchers=2)),
    "what_was_seen_is_dropped": Case(GAPS, Bound(("LL",))),
    "ids_shut_zombies_out_and_what_was_seen_is_dropped": Case(TWICE, Bound(("LL", "L"), Left(takeover=1))),
    "holes_are_read_again": Case(HOLE, Bound(("LL",), Left(lose=1))),
    "closing_facts_wait_for_the_tail": Case(TAIL, Bound(("LC",), Left(lose=1))),
    "holes_are_marked": Case(HOLE, Bound(("LL",), Left(trim=1))),
    "live_frames_go_before_later_facts": Case(GAPS, Bound(("LC",))),
    "a_confirmation_is_a_reason_to_read": Case(ONCE, Bound(("LL",), Left(cut=1))),
    "an_overflow_is_a_reason_to_read": Case(ONCE, Bound(("LLL",), queue=1, paced=True)),
    "a_hole_is_read_again_once": Case(SETTLES, Bound(("LL",), Left(flush=1))),
    "only_a_later_head_resets": Case(RESET, Bound(("LF",), Left(slow=1))),
    "facts_come_before_the_end": Case(ENDS, Bound(("LC",))),
    "frames_wait_for_their_facts": Case(EARLY, Bound(("LFL",), Left(mute=1))),
    "heads_tell_of_facts": Case(SETTLES, Bound(("LF",), Left(mute=1))),
    "frames_of_a_lost_future_are_cleared": Case(SETTLES, Bound(("LL",), future=1)),
    "a_cut_page_is_followed_by_the_next": Case(ONCE, Bound(("LLC",), live_page=1)),
    "facts_wait_for_unread_live_frames": Case(GAPS, Bound(("LLC",), live_page=1)),
    "a_late_reader_is_handed_what_it_lacks": Case(ONCE, Bound(("F",), watchers=2)),
    "a_failed_reading_is_taken_up_again": Case(SETTLES, Bound(("LL",), Left(away=1, lose=1))),
}

COVERED = {
    "ids_shut_zombies_out": Bound(("LL", "L"), Left(takeover=1)),
    "frames_are_held": Bound(("LFL",)),
    "a_reset_sets_the_topic_back": Bound(("LF",), Left(setback=1)),
}
