"""What workers do, one function per transaction: values in, values and an answer out."""

from __future__ import annotations

from tests.model.guards import Guards
from tests.model.pieces import Limits, back_to_pending, close_attempt, deliver, end, lapse, release_claim
from tests.model.state import (
    COMPLETED,
    DISOWNED,
    LIVE,
    PAUSED,
    PENDING,
    RUNNING,
    STOPPED,
    Broken,
    Db,
    Lease,
    Message,
    Request,
    Run,
)

FENCED = "fenced"


def claim(db: Db, g: Guards, limits: Limits, key: int, token: int, has_agent: bool = True) -> tuple[Db, str]:
    """Take the thread and start its pending run. `token` is what the database would make up."""
    run = db.run()
    if run is not None and run.status == RUNNING and run.key == key and g.start_knows_its_key:
        return db, "started"
    lease = db.lease
    if lease is not None and lease.phase == LIVE and g.live_claim_is_left_alone:
        return db, "held"
    if lease is not None and db.quiet and lease.phase != DISOWNED:
        return db, "held"
    if run is not None and run.status == RUNNING:
        left = g.takeover_ends_what_was_left
        db = lapse(db, g, limits)[0] if left else back_to_pending(db, "abandoned", run.ran)
        run = db.run()
    if run is None or run.status != PENDING:
        return db, "nothing"
    if not has_agent and g.agents_are_compared:
        return db, "not_mine"
    return _start(db, g, run, key, token), "started"


def _start(db: Db, g: Guards, run: Run, key: int, token: int) -> Db:
    if run.ran & 2:
        raise Broken("ran once: an agent that ran is started again, and nobody allowed it")
    if run.token and not g.start_makes_new_token:
        token = run.token
    started = run._replace(
        status=RUNNING, token=token, key=key, unacked=run.unacked + 1, attempts=(*run.attempts, (token, ""))
    )
    return db.with_run(db.cur, started)._replace(claim=token, rec=0, lease=Lease(), loose=True)


def hold(db: Db, g: Guards, limits: Limits, key: int, token: int) -> tuple[Db, str]:
    """Hold a thread that rests, for code that is not an agent of ours."""
    run = db.run()
    if run is not None and run.status == RUNNING and run.key == key:
        return db, "held"
    if db.lease is not None and (db.lease.phase == DISOWNED or (db.lease.phase != LIVE and not db.quiet)):
        db = lapse(db, g, limits)[0]
    if db.cur >= 0:
        return db, "thread_busy"
    started = Run(RUNNING, token=token, key=key, direct=True, attempts=((token, ""),), ran=3)
    runs = (*db.runs, started)
    # Nobody can tell what the code has done by the time its claim lapses: it counts as acknowledged.
    return db._replace(runs=runs, cur=len(runs) - 1, claim=token, rec=1, lease=Lease()), "held"


def fenced(db: Db, compared: bool, token: int, what: str) -> bool:
    """Tell whether this token may not write; with the guard off, a running run is all that is asked for."""
    run = db.run()
    if compared and db.claim != token:
        return True
    if run is None or run.status != RUNNING:
        if compared:
            raise Broken(f"no write of a zombie: {what}, and nothing runs")
        return True
    if run.token != token:
        raise Broken(f"no write of a zombie: {what} under a token that is not the present one")
    return False


def record(db: Db, g: Guards, token: int, number: int, positions: tuple[int, ...]) -> tuple[Db, str]:
    """Record what a run did, and consume messages together with the history that shows them."""
    if fenced(db, g.record_compares_token, token, "a record"):
        return db, FENCED
    if number <= db.rec and g.record_is_numbered:
        return db, "ok"
    if number > db.rec + 1:
        return db, FENCED  # records of this claim were lost: what follows them would be a story with a hole
    run = db.runs[db.cur]
    db = db.with_run(db.cur, run._replace(unacked=0 if number == 1 else run.unacked, ran=3))
    db = db._replace(rec=number, loose=number == 1 and db.loose and not g.first_record_is_synchronous)
    if run.cut < 0 or not g.record_after_stop_delivers_nothing:
        db = deliver(db, positions)._replace(partial=db.partial and not positions)
    return db, "ok"


def partial(db: Db, g: Guards, token: int) -> tuple[Db, str]:
    """Keep the text in progress, in case its process dies."""
    if fenced(db, g.partial_compares_token, token, "text in progress"):
        return db, FENCED
    return db._replace(partial=True), "ok"


def end_run(
    db: Db, g: Guards, token: int, index: int, status: str, reason: str = "", checked: bool = False
) -> tuple[Db, str]:
    """End a run, or go on with it. `checked`: the inbox was looked at before the lock was taken."""
    if fenced(db, g.end_compares_token, token, "an end"):
        mine = [outcome for t, outcome in db.runs[index].attempts if t == token] if index >= 0 else []
        ours = mine and mine[0] in ("completed", "stopped", "failed") and g.end_knows_its_repeat
        return db, "ended" if ours else FENCED
    run = db.runs[db.cur]
    if run.cut >= 0 and g.end_after_stop_is_stopped:
        status, reason = STOPPED, "stopped"
    if status == COMPLETED and g.end_looks_at_inbox and not checked and _unseen(db, g):
        return (db if g.continue_writes_nothing else _consumed_unseen(db)), "continue"
    return end(db, g, status, reason, status), "ended"


def _unseen(db: Db, g: Guards) -> bool:
    return bool(db.visible()) or (not g.next_blocks_no_end and any(m.state == "waiting" for m in db.inbox))


def _consumed_unseen(db: Db) -> Db:
    """Mark what waits as consumed although no history holds it: what a careless transaction would do."""

    def taken(i: int, m: Message) -> Message:
        return m._replace(state="delivered", run=db.cur) if i in seen else m

    seen = db.visible()
    return db._replace(inbox=tuple(taken(i, m) for i, m in enumerate(db.inbox)))


def _closed_as(db: Db, index: int, token: int, outcome: str) -> bool:
    return index >= 0 and (token, outcome) in db.runs[index].attempts


def pause(db: Db, g: Guards, token: int, index: int, requests: tuple[Request, ...]) -> tuple[Db, str]:
    """Close the attempt and wait for people. What waits in the inbox goes on waiting."""
    if fenced(db, g.pause_compares_token, token, "a pause"):
        ours = _closed_as(db, index, token, "interrupted") and g.pause_knows_its_repeat
        return db, "paused" if ours else FENCED
    run = db.runs[db.cur]
    if run.cut >= 0 and g.pause_after_stop_is_refused:
        return db, "stop"
    if db.visible() and not g.pause_ignores_inbox:
        return db, "continue"
    if not g.pause_consumes_nothing:
        db = _consumed_unseen(db)
    run = close_attempt(run._replace(status=PAUSED, ran=run.ran & 1), "interrupted")
    asked = tuple(q._replace(run=db.cur) for q in requests)
    return release_claim(db.with_run(db.cur, run)._replace(requests=db.requests + asked)), "paused"


def hand_over(db: Db, g: Guards, token: int, index: int) -> tuple[Db, str]:
    """Let another worker go on with the run; after a stop it ends instead."""
    if fenced(db, g.hand_over_compares_token, token, "a hand-over"):
        if not g.hand_over_knows_its_repeat:
            return db, FENCED
        stopped = _closed_as(db, index, token, "stopped")
        return db, "handed_over" if _closed_as(
            db, index, token, "handed_over"
        ) else "stopped" if stopped else FENCED
    run = db.runs[db.cur]
    if run.cut >= 0 and g.hand_over_after_stop_is_stopped:
        return end(db, g, STOPPED, "stopped", "stopped"), "stopped"
    return back_to_pending(db, "handed_over", run.ran & 1, unstarted=db.rec == 0), "handed_over"


def release(db: Db, g: Guards, limits: Limits, token: int) -> tuple[Db, str]:
    """Give a claim up early."""
    if fenced(db, g.release_compares_token, token, "giving up"):
        return db, FENCED
    return lapse(db, g, limits)


def sweep(db: Db, g: Guards, limits: Limits, dead: bool = False) -> tuple[Db, str]:
    """Take a lapsed claim; `dead`: its holder's lock was seen to be absent for long enough."""
    lease = db.lease
    if lease is None or (db.quiet and lease.phase != DISOWNED):
        return db, ""
    absent = dead and (not lease.lock or not g.hint_looks_at_lock_again)
    if lease.phase == LIVE and not absent and g.sweep_looks_again:
        return db, ""
    return lapse(db, g, limits)


def renew(db: Db, token: int) -> tuple[Db, str]:
    """Extend a claim; a lapsed one that nobody took is as good as new. One that its holder gave up is not lost."""
    if db.claim != token or db.lease is None:
        given_up = any(t == token and o not in ("", "abandoned") for run in db.runs for t, o in run.attempts)
        return db, "busy" if given_up else "lost"
    return db._replace(lease=db.lease._replace(phase=LIVE)), "renewed"


def lose_last_commit(db: Db) -> Db:
    """Return what a database that crashed holds when its last commit, a start, had not reached the disk."""
    run = db.runs[db.cur]
    last = run.token
    inbox = tuple(
        m._replace(state="waiting", run=-1, kept=False) if m.run == db.cur and db.rec else m for m in db.inbox
    )
    before = run._replace(
        status=PENDING,
        token=0,
        key=0,
        unacked=max(0, run.unacked - 1),
        attempts=tuple(a for a in run.attempts if a[0] != last),
    )
    return release_claim(db.with_run(db.cur, before)._replace(inbox=inbox, rec=0, loose=False))
