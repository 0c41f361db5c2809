"""Within which bounds the proof looks, and what each guard is for."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.leases import Times
from tests.model.pieces import Limits
from tests.model.world import Bound

ALL_MODES = ("steer", "queue", "interrupt", "reject")
ASKED = ((("question", False, "never"), ("approval", True, "never")), (("approval", False, "later"),))
RETRY = Limits(starts=2, retries=1)

SMALL = {
    "claims": Bound(messages=1, stall=1, crash=1, lost=1, outage=1, strangers=1, limits=RETRY),
    "inbox": Bound(messages=2, modes=ALL_MODES, stall=1, lost=1, error=1),
    "stops": Bound(messages=2, modes=ALL_MODES, stops=("run", "thread"), stop=1, stall=1, crash=1),
    "stops lost": Bound(
        messages=2, modes=("steer", "queue"), stops=("run", "thread"), stop=2, lost=1, workers=1
    ),
    "pauses": Bound(messages=2, modes=("steer", "queue"), pauses=ASKED, pause=1, stop=1, stall=1),
    "drains": Bound(messages=2, drain=1, stop=1, stall=1, limits=RETRY),
    "locks": Bound(messages=2, unlock=1, stall=1, crash=1),
    "direct": Bound(messages=2, modes=ALL_MODES, direct=1, stop=1, stall=1, error=1),
}
LARGE = {
    "claims": Bound(
        workers=3, messages=2, stall=2, crash=1, lost=1, outage=1, unlock=1, strangers=1, limits=RETRY
    ),
    "inbox": Bound(messages=3, modes=ALL_MODES, stall=1, crash=1, lost=2, error=1, drain=1),
    "stops": Bound(
        messages=3, modes=ALL_MODES, stops=("run", "thread"), stop=2, stall=1, crash=1, lost=1, error=1
    ),
    "pauses": Bound(
        messages=3, modes=ALL_MODES, pauses=ASKED, pause=2, stop=1, stall=1, crash=1, lost=1, limits=RETRY
    ),
    "drains": Bound(
        workers=3, messages=2, modes=ALL_MODES, drain=2, stop=1, stall=2, crash=1, lost=1, limits=RETRY
    ),
    "direct": Bound(
        messages=3, modes=ALL_MODES, stops=("run", "thread"), direct=2, stop=1, stall=1, crash=1, lost=1, pause=1
    ),
    "all": Bound(
        messages=2, modes=ALL_MODES, stops=("run", "thread"), pauses=ASKED, limits=RETRY, stall=1, crash=1, lost=1,
        stop=1, pause=1, drain=1, unlock=1, outage=1, direct=1, error=1,
    ),
}  # fmt: skip

TIMES_SMALL = {
    "delays": Times(),
    "repeats": Times(repeat=True),
    "freeze": Times(freeze=1),
    "restart": Times(restart=1),
    "hint, cut": Times(hinted=True, cut=1),
    "hint, two cuts": Times(hinted=True, cut=2),
    "hint, restart": Times(hinted=True, restart=1),
}
TIMES_LARGE = {
    "two freezes, restart": Times(freeze=2, restart=1),
    "hint, cut, freeze, restart": Times(hinted=True, cut=1, freeze=1, restart=1, repeat=True),
    "hint, two cuts, longer": Times(ttl=7, margin=2, stopping=2, hinted=True, cut=2),
}


class Case(NamedTuple):
    """Which invariant breaks, within which bound, when a guard is taken away."""

    breaks: str
    bound: Bound


ONE = Bound(messages=1, stall=1, crash=1, lost=1, limits=RETRY)
TWO = Bound(messages=2, modes=("steer", "queue"), workers=1, crash=1, lost=1)
STOP = Bound(
    messages=2, modes=("steer", "queue", "interrupt"), stops=("run", "thread"), stop=2, workers=1, lost=1, crash=1
)  # fmt: skip
PAUSE = Bound(messages=2, modes=("steer", "queue"), pauses=ASKED, pause=1, stop=1, stall=1)
DRAIN = Bound(messages=1, drain=1, stop=1, stall=1, lost=1)
ZOMBIE, LIVE_CLAIM, SAME = (
    "no write of a zombie",
    "a live claim is left alone",
    "a repeat gets the same answer",
)
FINAL, RETURNS, SAW = "a stop is final", "a stop returns what waits", "a completed run saw its messages"
HITS, FIXED, RESTS = "a stop hits only its run", "a stop is fixed", "everything settles"
OPEN_ONES = "open requests while paused"

CASES = {
    "record_compares_token": Case(ZOMBIE, ONE),
    "end_compares_token": Case(ZOMBIE, ONE),
    "pause_compares_token": Case(ZOMBIE, PAUSE),
    "hand_over_compares_token": Case(ZOMBIE, DRAIN),
    "release_compares_token": Case(ZOMBIE, DRAIN),
    "partial_compares_token": Case(ZOMBIE, ONE),
    "start_makes_new_token": Case("one holder", ONE),
    "lapse_takes_token_away": Case("claim while running", ONE),
    "live_claim_is_left_alone": Case(LIVE_CLAIM, ONE),
    "sweep_looks_again": Case(LIVE_CLAIM, ONE),
    "hint_looks_at_lock_again": Case(LIVE_CLAIM, Bound(messages=1, unlock=1)),
    "agents_are_compared": Case("agents are compared", Bound(messages=1, strangers=1)),
    "start_knows_its_key": Case(SAME, ONE),
    "takeover_ends_what_was_left": Case("ran once", ONE),
    "unacknowledged_start_is_repeated": Case("abandoned only if it ran", TWO),
    "starts_in_a_row_are_bounded": Case("starts are bounded", Bound(messages=1, crash=3, workers=1)),
    "retries_are_bounded": Case("retries are bounded", Bound(messages=1, crash=2, workers=1)),
    "first_record_is_synchronous": Case("ran once", Bound(messages=1, outage=1)),
    "pending_runs_are_looked_for": Case(RESTS, Bound(messages=1)),
    "lapsed_claims_are_looked_for": Case(RESTS, Bound(messages=1, crash=1)),
    "send_decides_under_lock": Case("no message left behind", TWO),
    "send_knows_its_key": Case("one key, one message", TWO),
    "record_is_numbered": Case("consumed once", ONE),
    "end_knows_its_repeat": Case(SAME, ONE),
    "pause_knows_its_repeat": Case(SAME, Bound(messages=1, pause=1, lost=1)),
    "hand_over_knows_its_repeat": Case(SAME, DRAIN),
    "end_looks_at_inbox": Case(SAW, TWO),
    "end_looks_under_lock": Case(SAW, TWO),
    "continue_writes_nothing": Case(SAW, TWO),
    "next_blocks_no_end": Case(RESTS, Bound(messages=2, modes=("queue",))),
    "leftovers_start_next_run": Case("no message left behind", TWO),
    "oldest_starts_next_run": Case("oldest first", Bound(messages=3, modes=("queue",), workers=1)),
    "poison_returns_messages": Case(RETURNS, Bound(messages=1, crash=2, workers=1)),
    "direct_run_queues_messages": Case(RESTS, Bound(messages=1, direct=1, workers=1)),
    "end_after_stop_is_stopped": Case(FINAL, STOP),
    "pause_after_stop_is_refused": Case(FINAL, PAUSE),
    "hand_over_after_stop_is_stopped": Case(FINAL, DRAIN),
    "lapse_after_stop_is_stopped": Case(FINAL, STOP),
    "record_after_stop_delivers_nothing": Case("a stopped run takes nothing new", STOP),
    "stop_names_its_run": Case(HITS, STOP),
    "thread_stop_knows_its_key": Case(HITS, STOP),
    "first_stop_fixes_its_cut": Case(FIXED, STOP),
    "first_thread_stop_fixes_its_cut": Case(FIXED, STOP),
    "thread_stop_adds_its_cut": Case("a thread stop covers what is queued", STOP),
    "stop_ends_what_is_not_running": Case(FINAL, STOP),
    "stop_returns_now": Case(RETURNS, STOP),
    "thread_stop_returns_next": Case(RETURNS, STOP),
    "message_after_stop_is_next": Case("a stopped run takes nothing new", STOP),
    "interrupting_message_is_next": Case("returned only by a stop or poison", STOP),
    "pause_ignores_inbox": Case("the pause wins", PAUSE),
    "pause_consumes_nothing": Case(SAW, PAUSE),
    "message_to_paused_is_reply": Case("a message to a paused run is the reply", PAUSE),
    "text_denies_approvals": Case("text never approves", PAUSE),
    "request_is_answered_once": Case("a request is answered once", PAUSE),
    "last_answer_resumes": Case(OPEN_ONES, PAUSE),
    "open_request_keeps_pause": Case(OPEN_ONES, PAUSE),
    "requester_does_not_approve": Case("nobody approves for himself", PAUSE),
    "stop_leaves_what_others_decide": Case("others decide", PAUSE),
    "expired_request_takes_no_answer": Case("expired is denied", PAUSE),
    "expired_requests_are_looked_for": Case(RESTS, Bound(messages=1, pauses=ASKED[1:], pause=1)),
    "end_cancels_requests": Case(OPEN_ONES, PAUSE),
}

ALONE, BESIDE = "no overlap", "nothing starts beside the holder"
TIME_CASES = {
    "trust_counts_from_request": (ALONE, "delays"),
    "repeated_claim_counts_from_first_try": (ALONE, "repeats"),
    "margin_covers_stopping": (ALONE, "delays"),
    "trust_is_checked_at_each_start": (BESIDE, "freeze"),
    "clock_counts_sleep": (BESIDE, "freeze"),
    "gate_closes": (BESIDE, "hint, cut"),
    "gate_is_shorter_than_hint": (BESIDE, "hint, cut"),
    "hint_looks_at_last_renewal": (BESIDE, "hint, two cuts"),
    "restart_holds_lapses": (ALONE, "restart"),
    "restart_holds_hints": ("a restart takes no claim", "hint, restart"),
    "renewal_names_its_claim": (BESIDE, "hint, cut"),
}
