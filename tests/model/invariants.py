"""What must hold in every state, in every step, and when nothing is left to do."""

from __future__ import annotations

from tests.model.people import REQUESTER
from tests.model.pieces import Limits
from tests.model.state import (
    ACTIVE,
    ANSWERED,
    APPROVAL,
    CANCELLED,
    COMPLETED,
    DELIVERED,
    FAILED,
    LATER,
    NEXT,
    NONE,
    NOW,
    OPEN,
    PAST,
    PAUSED,
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
from tests.model.world import ASKING, IDLE, World


def demand(holds: bool, invariant: str, detail: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise Broken(f"{invariant}: {detail}")


def check_state(w: World, limits: Limits) -> None:
    """Look at one state."""
    db = w.db
    active = [i for i, r in enumerate(db.runs) if r.status in ACTIVE]
    demand(len(active) < 2, "one active run", "two of a thread")
    demand(active == ([] if db.cur < 0 else [db.cur]), "one active run", "it is not the current one")
    strays = any(q.status == OPEN and q.run != db.cur for q in db.requests)
    demand(not strays, "open requests while paused", "one of a run that has ended")
    run = db.run()
    running = run is not None and run.status == RUNNING
    demand(
        running == (db.claim != 0) == (db.lease is not None), "claim while running", "one without the other"
    )
    if run is None:
        left_behind = any(m.state == WAITING for m in db.inbox)
        demand(not left_behind, "no message left behind", "one waits in a thread that rests")
    else:
        _check_run(db, run, limits)
    known = [x for x in w.workers if x.phase not in (IDLE, ASKING)]
    demand(sum(x.token == db.claim != 0 for x in known) < 2, "one holder", "two hold the same claim")
    demand(
        all(x.has_agent for x in known), "agents are compared", "a worker runs an agent that it does not have"
    )


def _check_run(db: Db, run: Run, limits: Limits) -> None:
    if run.status == RUNNING:
        demand(run.token == db.claim, "claim while running", "run and thread name different claims")
    demand(run.cut < 0 or run.status == RUNNING, "a stop is final", f"a stopped run is {run.status}")
    demand(run.unacked <= limits.starts, "starts are bounded", "too many in a row without a record")
    demand(run.retried <= limits.retries, "retries are bounded", "more than allowed")
    asked = any(q.status == OPEN and q.run == db.cur for q in db.requests)
    demand(
        asked == (run.status == PAUSED), "open requests while paused", f"{asked=}, the run is {run.status}"
    )


def check_step(before: World, after: World) -> None:
    """Look at what one step changed."""
    old, new = before.db, after.db
    for i, run in enumerate(old.runs):
        _check_change_of_run(run, new.runs[i])
    for i in range(len(new.runs)):
        demand(new.runs[i].ends < 2, "one end per run", "two were written")
    if old.cur >= 0 and new.runs[old.cur].status not in ACTIVE:
        _check_end(old, after, new.runs[old.cur])
    for i, m in enumerate(new.inbox):
        _check_message(old, new, i, old.inbox[i] if i < len(old.inbox) else None, m)
    if len(new.inbox) > len(old.inbox) and old.cur >= 0 and old.runs[old.cur].status == PAUSED:
        demand(
            new.cur != old.cur or new.runs[new.cur].status != PAUSED,
            "a message to a paused run is the reply",
            "the run goes on waiting",
        )
    _check_requests(old, new)


def _check_change_of_run(old: Run, new: Run) -> None:
    demand(old.cut in (NONE, new.cut), "a stop is fixed", "its cut moved")
    demand(old.cut_next in (NONE, new.cut_next), "a stop is fixed", "its cut for later messages moved")
    if old.status != new.status == FAILED and new.reason == "abandoned":
        demand(bool(new.ran & 1), "abandoned only if it ran", "its agent never ran")
    if old.status in (RUNNING, PAUSED, PENDING) and new.status == STOPPED:
        demand(new.cut >= 0, "stopped only by a stop", "nobody asked for it")


def _check_end(old: Db, after: World, ended: Run) -> None:
    """Look at the end of the run that was current: what it leaves is returned or starts the next one."""
    new = after.db
    demand(
        ended.cut < 0 or ended.status == STOPPED, "a stop is final", f"a stopped run ends as {ended.status}"
    )
    for i, m in enumerate(new.inbox):
        mode = old.inbox[i].mode if i < len(old.inbox) else NEXT if m.disposition == "queued" else NOW
        if mode == NOW and (i < ended.cut or ended.reason == "poison"):
            demand(m.state != WAITING, "a stop returns what waits", "a message goes on to the next run")
        if mode == NEXT and i < ended.cut_next:
            demand(
                m.state != WAITING, "a stop returns what waits", "a queued message goes on to the next run"
            )
        if ended.status == COMPLETED and mode == NOW:
            demand(m.state != WAITING, "a completed run saw its messages", "one for it came before its end")
        if ended.status == COMPLETED and m.state == DELIVERED and m.run == old.cur:
            demand(
                bool(after.told >> i & 1),
                "a completed run saw its messages",
                "one was never shown to its agent",
            )


def _check_message(old: Db, new: Db, i: int, was: Message | None, m: Message) -> None:
    if was is not None and was.state != WAITING:
        demand(was.state == m.state and was.run == m.run, "consumed once", "what was settled changed")
        return
    if m.state == RETURNED:
        ended = new.runs[old.cur] if old.cur >= 0 else Run()
        cut = ended.cut if (was or m).mode == NOW else ended.cut_next
        fair = i < cut or (ended.reason == "poison" and m.reason == "poison")
        demand(
            fair and was is not None,
            "returned only by a stop or poison",
            "a message came back without either",
        )
    current = old.runs[old.cur] if old.cur >= 0 else Run()
    stopped = current.cut >= 0 and (m.state == DELIVERED or (was is None and m.disposition == "steered"))
    demand(not stopped, "a stopped run takes nothing new", f"a message is {m.disposition}, {m.state}")
    if m.state == DELIVERED and was is not None:
        older = any(x.state == WAITING and x.mode == NOW for x in new.inbox[:i])
        demand(not older, "oldest first", "a message overtook another")
    if m.state == WAITING and m.mode == NOW and was is not None and was.mode == NEXT:
        older = any(x.state == WAITING and x.mode == NEXT for x in new.inbox[:i])
        demand(not older, "oldest first", "a queued message overtook another")


def _check_requests(old: Db, new: Db) -> None:
    left_open = [q.other_only and q.status == OPEN for q in old.requests]
    for i, q in enumerate(new.requests):
        by_stop = i < len(left_open) and left_open[i] and q.status == CANCELLED
        demand(not by_stop, "others decide", "a stop made the request go away")
        demand(q.answers < 2, "a request is answered once", "two answers were taken")
        was = old.requests[i] if i < len(old.requests) else None
        if q.status != ANSWERED or (was is not None and was.status == ANSWERED):
            continue
        granted = q.kind == APPROVAL
        demand(not (granted and q.answer == "text"), "text never approves", "a message did")
        own = granted and q.other_only and q.by == REQUESTER
        demand(not own, "nobody approves for himself", "the requester did")
        demand(was is None or was.expires != PAST, "expired is denied", "an answer came too late and counted")


def settled(w: World) -> bool:
    """Tell whether nothing is left to do, short of what only a person can do."""
    db = w.db
    run = db.run()
    if w.half is not None or db.quiet or any(x.phase != IDLE for x in w.workers):
        return False
    if run is None:
        return True
    waits = any(q.status == OPEN for q in db.requests)
    runs_out = any(q.status == OPEN and q.expires in (LATER, PAST) for q in db.requests)
    return run.status == PAUSED and waits and not runs_out
