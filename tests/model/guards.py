"""The guards of the protocol. Each can be taken away, to see that the proof notices."""

from __future__ import annotations

from typing import NamedTuple


class Guards(NamedTuple):
    """All on. Every name says what is done, and no transaction asks anything else about them."""

    # Claims
    record_compares_token: bool = True
    end_compares_token: bool = True
    pause_compares_token: bool = True
    hand_over_compares_token: bool = True
    release_compares_token: bool = True
    partial_compares_token: bool = True
    start_makes_new_token: bool = True
    lapse_takes_token_away: bool = True
    live_claim_is_left_alone: bool = True
    sweep_looks_again: bool = True
    hint_looks_at_lock_again: bool = True
    agents_are_compared: bool = True
    # Starts
    takeover_ends_what_was_left: bool = True
    start_knows_its_key: bool = True
    unacknowledged_start_is_repeated: bool = True
    starts_in_a_row_are_bounded: bool = True
    retries_are_bounded: bool = True
    first_record_is_synchronous: bool = True
    pending_runs_are_looked_for: bool = True
    lapsed_claims_are_looked_for: bool = True
    # Messages
    send_decides_under_lock: bool = True
    send_knows_its_key: bool = True
    record_is_numbered: bool = True
    end_knows_its_repeat: bool = True
    pause_knows_its_repeat: bool = True
    hand_over_knows_its_repeat: bool = True
    end_looks_at_inbox: bool = True
    end_looks_under_lock: bool = True
    continue_writes_nothing: bool = True
    next_blocks_no_end: bool = True
    leftovers_start_next_run: bool = True
    oldest_starts_next_run: bool = True
    poison_returns_messages: bool = True
    direct_run_queues_messages: bool = True
    # Stops
    end_after_stop_is_stopped: bool = True
    pause_after_stop_is_refused: bool = True
    hand_over_after_stop_is_stopped: bool = True
    lapse_after_stop_is_stopped: bool = True
    record_after_stop_delivers_nothing: bool = True
    stop_names_its_run: bool = True
    thread_stop_knows_its_key: bool = True
    first_stop_fixes_its_cut: bool = True
    first_thread_stop_fixes_its_cut: bool = True
    thread_stop_adds_its_cut: bool = True
    stop_ends_what_is_not_running: bool = True
    stop_returns_now: bool = True
    thread_stop_returns_next: bool = True
    message_after_stop_is_next: bool = True
    interrupting_message_is_next: bool = True
    # Pauses
    pause_ignores_inbox: bool = True
    pause_consumes_nothing: bool = True
    message_to_paused_is_reply: bool = True
    text_denies_approvals: bool = True
    request_is_answered_once: bool = True
    last_answer_resumes: bool = True
    open_request_keeps_pause: bool = True
    requester_does_not_approve: bool = True
    stop_leaves_what_others_decide: bool = True
    expired_request_takes_no_answer: bool = True
    expired_requests_are_looked_for: bool = True
    end_cancels_requests: bool = True


ALL = Guards()


def without(*names: str) -> Guards:
    """Return the guards with some taken away."""
    return ALL._replace(**dict.fromkeys(names, False))
