"""The pieces that transactions share. Each expects that its caller holds the thread's lock."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.guards import Guards
from tests.model.state import (
    CANCELLED,
    DELIVERED,
    FAILED,
    NEXT,
    NONE,
    NOW,
    OPEN,
    PENDING,
    RETURNED,
    RUNNING,
    STOPPED,
    WAITING,
    Broken,
    Db,
    Message,
    Run,
)


class Limits(NamedTuple):
    """Starts in a row without an acknowledgement, and restarts after an abandonment."""

    starts: int = 5
    retries: int = 0


def close_attempt(run: Run, outcome: str) -> Run:
    """Close the open attempt, if there is one."""
    if not run.attempts or run.attempts[-1][1]:
        return run
    return run._replace(attempts=(*run.attempts[:-1], (run.attempts[-1][0], outcome)))


def give_back(db: Db, mode: str, cut: int, reason: str) -> Db:
    """Return the waiting messages of a mode among the first `cut` ones to their senders."""
    inbox = tuple(
        m._replace(state=RETURNED, reason=reason) if m.state == WAITING and m.mode == mode and i < cut else m
        for i, m in enumerate(db.inbox)
    )
    return db._replace(inbox=inbox)


def deliver(db: Db, positions: tuple[int, ...]) -> Db:
    """Give waiting messages to the current run, together with the history that holds them."""
    inbox = list(db.inbox)
    for i in positions:
        if inbox[i].state != WAITING:
            raise Broken("consumed once: a message is delivered that does not wait any more")
        inbox[i] = inbox[i]._replace(state=DELIVERED, run=db.cur, kept=True)
    return db._replace(inbox=tuple(inbox))


def release_claim(db: Db) -> Db:
    """Take the token and the row of the claim away."""
    return db._replace(claim=0, lease=None, partial=False)


def end(db: Db, g: Guards, status: str, reason: str, outcome: str) -> Db:
    """End the current run. What still waits starts the next one, as if it had come just after the end."""
    run = close_attempt(db.runs[db.cur], outcome)
    if run.cut >= 0 and g.stop_returns_now:
        db = give_back(db, NOW, run.cut, "stopped")
    if run.cut_next >= 0 and g.thread_stop_returns_next:
        db = give_back(db, NEXT, run.cut_next, "stopped")
    if reason == "poison" and g.poison_returns_messages:
        db = give_back(db, NOW, len(db.inbox), "poison")
    if g.end_cancels_requests:
        requests = tuple(
            q._replace(status=CANCELLED) if q.run == db.cur and q.status == OPEN else q for q in db.requests
        )
        db = db._replace(requests=requests)
    db = db.with_run(db.cur, run._replace(status=status, reason=reason, ends=run.ends + 1))
    return _go_on(release_claim(db), g)


def _go_on(db: Db, g: Guards) -> Db:
    """Make the next run if something waits, otherwise let the thread rest."""
    waiting = [i for i, m in enumerate(db.inbox) if m.state == WAITING]
    if not waiting or not g.leftovers_start_next_run:
        return db._replace(cur=NONE)
    first = waiting[0 if g.oldest_starts_next_run else -1]
    new = len(db.runs)

    def placed(i: int, m: Message) -> Message:
        if m.state != WAITING or (i != first and m.mode != NOW):
            return m
        return m._replace(mode=NOW, for_run=new)

    inbox = tuple(placed(i, m) for i, m in enumerate(db.inbox))
    return db._replace(cur=new, inbox=inbox, runs=(*db.runs, Run()))


def back_to_pending(db: Db, outcome: str, ran: int, retried: int = 0, *, unstarted: bool = False) -> Db:
    """Let the current run wait for its next attempt; a start that was given back unstarted was no failed one."""
    run = close_attempt(db.runs[db.cur], outcome)
    run = run._replace(
        status=PENDING, ran=ran, retried=run.retried + retried, unacked=run.unacked - unstarted
    )
    return release_claim(db.with_run(db.cur, run))


def lapse(db: Db, g: Guards, limits: Limits) -> tuple[Db, str]:
    """Record what a lapsed or given up claim leaves."""
    run = db.runs[db.cur]
    if run.status != RUNNING:
        raise Broken("claim while running: a claim lapses without a running run")
    before = db.claim
    after, result = _lapse(db, g, limits, run)
    if not g.lapse_takes_token_away:
        after = after._replace(claim=before)
    return after, result


def _lapse(db: Db, g: Guards, limits: Limits, run: Run) -> tuple[Db, str]:
    if run.cut >= 0 and g.lapse_after_stop_is_stopped:
        return end(db, g, STOPPED, "stopped", "abandoned"), "stopped"
    if db.rec > 0 or not g.unacknowledged_start_is_repeated:
        if not run.direct and (run.retried < limits.retries or not g.retries_are_bounded):
            return back_to_pending(db, "abandoned", run.ran & 1, retried=1), "pending"
        return end(db, g, FAILED, "abandoned", "abandoned"), "abandoned"
    if run.unacked >= limits.starts and g.starts_in_a_row_are_bounded:
        return end(db, g, FAILED, "poison", "abandoned"), "poison"
    return back_to_pending(db, "abandoned", run.ran), "pending"
