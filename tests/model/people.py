"""What people do, one function per transaction: values in, values and an answer out."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.guards import Guards
from tests.model.pieces import deliver, end
from tests.model.state import (
    ANSWERED,
    APPROVAL,
    CANCELLED,
    DENIED,
    NEXT,
    NONE,
    NOW,
    OPEN,
    PAST,
    PAUSED,
    PENDING,
    QUESTION,
    RUNNING,
    STOPPED,
    Db,
    Message,
    Run,
)

REQUESTER = "requester"


class Receipt(NamedTuple):
    """What a sender is told."""

    outcome: str
    disposition: str = ""
    run: int = NONE
    duplicate: bool = False


def state_of(db: Db) -> str:
    """Return what a sender finds: idle, busy or paused."""
    run = db.run()
    return "idle" if run is None else PAUSED if run.status == PAUSED else "busy"


def send(db: Db, g: Guards, key: int, on_busy: str, believed: str = "") -> tuple[Db, Receipt]:
    """Accept a message. `believed` is a state that was read before the lock was taken (with that guard off)."""
    for m in db.inbox:
        if m.key == key and g.send_knows_its_key:
            return db, Receipt("ok", m.disposition, m.for_run, True)
    state = believed or state_of(db)
    run = db.run()
    if state == PAUSED and not g.message_to_paused_is_reply and on_busy in ("queue", "interrupt"):
        state = "busy"
    if state == "idle":
        runs = (*db.runs, Run())
        db = _accepted(db._replace(runs=runs, cur=len(runs) - 1), Message(key, NOW, "started", len(runs) - 1))
        return db, Receipt("ok", "started", db.cur)
    if state == PAUSED:
        db = _accepted(db, Message(key, NOW, "replied", db.cur))
        return _reply(db, g, len(db.inbox) - 1), Receipt("ok", "replied", db.cur)
    if on_busy == "reject":
        return db, Receipt("thread_busy", run=db.cur)
    stopped = run is not None and run.cut >= 0 and g.message_after_stop_is_next
    direct = run is not None and run.direct and g.direct_run_queues_messages
    if on_busy == "steer" and not stopped and not direct:
        return _accepted(db, Message(key, NOW, "steered", db.cur)), Receipt("ok", "steered", db.cur)
    mode = NOW if on_busy == "interrupt" and not g.interrupting_message_is_next else NEXT
    db = _accepted(db, Message(key, mode, "queued", NONE))
    if on_busy == "interrupt" and run is not None:
        db = _stop(db, g, False)[0]
    return db, Receipt("ok", "queued")


def _accepted(db: Db, message: Message) -> Db:
    return db._replace(inbox=(*db.inbox, message))


def _reply(db: Db, g: Guards, position: int) -> Db:
    """Let a message answer the open questions of the paused run, and deny everything else with its text as reason."""
    run = db.run()
    if run is None or run.status != PAUSED:
        return db  # only with a state that was read before the lock
    requests = list(db.requests)
    for i, q in enumerate(requests):
        if q.run == db.cur and q.status == OPEN:
            says_yes = q.kind == QUESTION or not g.text_denies_approvals
            requests[i] = q._replace(
                status=ANSWERED if says_yes else DENIED, by=REQUESTER, answer="text", answers=q.answers + 1
            )
    return resumed(deliver(db._replace(requests=tuple(requests)), (position,)))


def resumed(db: Db) -> Db:
    """Let a paused run wait for its next attempt."""
    return db.with_run(db.cur, db.runs[db.cur]._replace(status=PENDING))


def answer(db: Db, g: Guards, index: int, by: str, kind: str) -> tuple[Db, str]:
    """Answer one request: approve, edit, reject or reply."""
    q = db.requests[index]
    if q.status == OPEN and q.expires == PAST and g.expired_request_takes_no_answer:
        return _settle(db, g, index, DENIED, "system", "expired"), "expired"
    if q.status == CANCELLED:
        return db, "closed"
    if q.status != OPEN and g.request_is_answered_once:
        return db, "ok" if q.by == by and q.answer == kind else "already_answered"
    fits = ("approve", "edit", "reject") if q.kind == APPROVAL else ("reply", "reject")
    if kind not in fits:
        return db, "wrong_decision"
    if q.other_only and kind in ("approve", "edit") and by == REQUESTER and g.requester_does_not_approve:
        return db, "own_request"
    return _settle(db, g, index, DENIED if kind == "reject" else ANSWERED, by, kind), "ok"


def _settle(db: Db, g: Guards, index: int, status: str, by: str, kind: str) -> Db:
    """Settle one request; the last one lets the run go on, in the same transaction."""
    q = db.requests[index]
    q = q._replace(status=status, by=by, answer=kind, answers=q.answers + 1)
    db = db._replace(requests=(*db.requests[:index], q, *db.requests[index + 1 :]))
    run = db.run()
    if run is None or run.status != PAUSED or not g.last_answer_resumes:
        return db
    still_open = any(q.run == db.cur and q.status == OPEN for q in db.requests)
    return db if still_open and g.open_request_keeps_pause else resumed(db)


def expire(db: Db, g: Guards) -> Db:
    """Deny what has expired, in the name of the system."""
    for i, q in enumerate(db.requests):
        if q.status == OPEN and q.expires == PAST:
            db = _settle(db, g, i, DENIED, "system", "expired")
    return db


def stop_run(db: Db, g: Guards, index: int) -> tuple[Db, str]:
    """Ask one run to stop."""
    if not g.stop_names_its_run:
        index = db.cur
    if index < 0:
        return db, "idle"
    if index != db.cur:
        return db, "ended"
    if must_be_decided(db) and g.stop_leaves_what_others_decide:
        return db, "decide_first"
    return _stop(db, g, False)


def must_be_decided(db: Db) -> bool:
    """Tell whether the paused run waits for somebody else than who asked; a stop must not make that go away."""
    return db.runs[db.cur].status == PAUSED and any(
        q.run == db.cur and q.status == OPEN and q.other_only and q.kind == APPROVAL for q in db.requests
    )


def stop_thread(db: Db, g: Guards, key: int) -> tuple[Db, str]:
    """Ask whatever runs to stop, with the messages for later runs; a repeat of the key means the same run again."""
    known = dict(db.stops).get(key)
    index = db.cur
    if known is None:
        db = db._replace(stops=(*db.stops, (key, db.cur)))
    elif g.thread_stop_knows_its_key:
        index = known
    if index < 0:
        return db, "idle"
    if index != db.cur:
        return db, "ended"
    if must_be_decided(db) and g.stop_leaves_what_others_decide:
        return db, "decide_first"
    return _stop(db, g, True)


def _stop(db: Db, g: Guards, whole_thread: bool) -> tuple[Db, str]:
    run = db.runs[db.cur]
    cut, cut_next = run.cut, run.cut_next
    if cut < 0 or not g.first_stop_fixes_its_cut:
        cut = len(db.inbox)
    if (
        whole_thread
        and g.thread_stop_adds_its_cut
        and (cut_next < 0 or not g.first_thread_stop_fixes_its_cut)
    ):
        cut_next = len(db.inbox)
    db = db.with_run(db.cur, run._replace(cut=cut, cut_next=cut_next))
    if run.status == RUNNING or not g.stop_ends_what_is_not_running:
        return db, "requested"
    return end(db, g, STOPPED, "stopped", "stopped"), "stopped"
