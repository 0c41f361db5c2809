"""Everything that can happen next, in any order: people, the passing of time, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model import people, work
from tests.model.state import (
    APPROVAL,
    LAPSED,
    LATER,
    LIVE,
    NONE,
    OPEN,
    PAST,
    Broken,
    Db,
)
from tests.model.world import ASKING, IDLE, PLACE, Aim, Setting, World


class Move(NamedTuple):
    """One step. A fair one will be taken in the end if it stays possible; faults and people's wishes are not fair."""

    label: str
    fair: bool
    world: World


def left(w: World, name: str) -> int:
    """Return how often this may still happen."""
    return w.budget[PLACE[name]]


def spend(w: World, name: str) -> tuple[int, ...]:
    """Return the budget after it happened once more."""
    place = PLACE[name]
    return (*w.budget[:place], w.budget[place] - 1, *w.budget[place + 1 :])


def onto(w: World, db: Db) -> World:
    """Return the world with another thread. Whatever commits later takes a start that was not on disk along."""
    if db == w.db:
        return w
    still_loose = left(w, "outage") and (not w.db.loose or db.rec != w.db.rec)
    if db.loose and not still_loose:
        db = db._replace(loose=False)
    suspect = w.suspect and db.claim == w.db.claim
    return World(db, w.workers, w.budget, w.aim, w.told, suspect, w.half)


def messages(s: Setting, w: World) -> Iterator[Move]:
    """People send, and send again what they do not know to have arrived."""
    if left(w, "messages") and s.guards.send_decides_under_lock:
        for on_busy in s.bound.modes:
            db, receipt = people.send(w.db, s.guards, len(w.db.inbox), on_busy)
            if receipt.outcome == "ok":
                spent = w._replace(budget=spend(w, "messages"))
                yield Move(f"a message ({on_busy}) is {receipt.disposition}", False, onto(spent, db))
    elif left(w, "messages"):
        yield from _messages_without_lock(s, w)
    if w.db.inbox and w.half is None:
        key = w.db.inbox[-1].key
        db, _ = people.send(w.db, s.guards, key, s.bound.modes[0])
        if db != w.db:
            raise Broken("one key, one message: a repeated send was accepted again")


def _messages_without_lock(s: Setting, w: World) -> Iterator[Move]:
    for on_busy in s.bound.modes:
        if w.half is None:
            half = (people.state_of(w.db), on_busy)
            yield Move(f"a send reads that the thread is {half[0]}", False, w._replace(half=half))
        elif w.half[1] == on_busy:
            db, receipt = people.send(w.db, s.guards, len(w.db.inbox), on_busy, w.half[0])
            spent = w._replace(budget=spend(w, "messages"), half=None)
            yield Move(f"the send goes on, its message is {receipt.disposition}", True, onto(spent, db))


def stops(s: Setting, w: World) -> Iterator[Move]:
    """People mean a stop, which arrives at any later time, and again when they did not hear of it."""
    db = w.db
    if w.aim is None and left(w, "stop") and db.cur >= 0:
        for kind in s.bound.stops:
            aim = Aim(kind, run=db.cur if kind == "run" else NONE, key=1)
            yield Move(
                f"somebody means to stop the {kind}", False, w._replace(aim=aim, budget=spend(w, "stop"))
            )
    if w.aim is None:
        return
    if w.aim.kind == "run":
        after, result = people.stop_run(db, s.guards, w.aim.run)
        meant = w.aim.run
    else:
        after, result = people.stop_thread(db, s.guards, w.aim.key)
        meant = w.aim.hit if w.aim.hit != NONE else db.cur
    if result in ("requested", "stopped") and meant != db.cur:
        raise Broken("a stop hits only its run: a later run was hit")
    if result in ("requested", "stopped") and w.aim.kind == "thread" and after.runs[db.cur].cut_next < 0:
        raise Broken("a thread stop covers what is queued: it fixed no cut")
    yield Move(f"the stop of the {w.aim.kind} arrives: {result}", False, onto(w._replace(aim=None), after))
    if left(w, "lost"):
        again = w._replace(aim=w.aim._replace(hit=meant), budget=spend(w, "lost"))
        yield Move(
            f"the stop of the {w.aim.kind} arrives: {result}, the answer is lost", False, onto(again, after)
        )


def answers(s: Setting, w: World) -> Iterator[Move]:
    """People answer open requests, also those who may not and those who come too late."""
    for i, q in enumerate(w.db.requests):
        kind = "approve" if q.kind == APPROVAL else "reply"
        for by, says in (("other", kind), ("other", "reject"), (people.REQUESTER, kind)):
            db, result = people.answer(w.db, s.guards, i, by, says)
            if db != w.db:
                _settled_once_more(s, db, i)
                yield Move(f"{by} answers the {q.kind}: {says}, {result}", False, onto(w, db))


def _settled_once_more(s: Setting, db: Db, i: int) -> None:
    """Let somebody else answer the same request: it must change nothing."""
    again, _ = people.answer(
        db, s.guards, i, "a third", "reject" if db.requests[i].kind == APPROVAL else "reply"
    )
    if again.requests[i].answers > 1:
        raise Broken("a request is answered once: a second answer was taken")


def time_passes(s: Setting, w: World) -> Iterator[Move]:
    """What happens by itself: claims run out, requests expire, sweepers look, a database settles down."""
    db, g = w.db, s.guards
    if db.quiet:
        yield Move("the database has been up for one ttl", True, w._replace(db=db._replace(quiet=False)))
    for i, q in enumerate(db.requests):
        if q.status == OPEN and q.expires == LATER:
            late = (*db.requests[:i], q._replace(expires=PAST), *db.requests[i + 1 :])
            yield Move("a request runs out", True, w._replace(db=db._replace(requests=late)))
    if any(q.status == OPEN and q.expires == PAST for q in db.requests):
        swept = onto(w, people.expire(db, g))
        yield Move("a sweep denies what has expired", g.expired_requests_are_looked_for, swept)
    if db.lease is not None:
        yield from _lease_passes(s, w)


def _lease_passes(s: Setting, w: World) -> Iterator[Move]:
    db, g = w.db, s.guards
    lease = db.lease
    assert lease is not None
    if lease.phase == LIVE and not holders(w):
        lapsed = db._replace(lease=lease._replace(phase=LAPSED))
        yield Move("the claim of a dead holder runs out", True, w._replace(db=lapsed))
    after, result = work.sweep(db, g, s.bound.limits)
    if result and lease.phase == LIVE:
        raise Broken("a live claim is left alone: a sweep took one that had been renewed")
    if result:
        yield Move(
            f"a sweep takes the lapsed claim: {result}", g.lapsed_claims_are_looked_for, onto(w, after)
        )
    if not lease.lock:
        locked = db._replace(lease=lease._replace(lock=True))
        yield Move("the holder has its lock again", True, w._replace(db=locked))
        if not w.suspect:
            yield Move("a sweeper sees the lock absent for 3 s", True, w._replace(suspect=True))
    elif w.suspect:
        yield Move("a sweeper sees the lock again", True, w._replace(suspect=False))
    if w.suspect and lease.phase == LIVE:
        after, result = work.sweep(db, g, s.bound.limits, dead=True)
        if result and lease.lock:
            raise Broken("a live claim is left alone: the hint took one whose lock stands")
        if result:
            yield Move(f"a sweep takes the claim by the hint: {result}", True, onto(w, after))


def holders(w: World) -> list[int]:
    """Return the workers that know that they hold the present claim."""
    return [
        i for i, x in enumerate(w.workers) if x.token == w.db.claim != 0 and x.phase not in (IDLE, ASKING)
    ]


def misfortunes(w: World) -> Iterator[Move]:
    """Faults that strike no worker in particular."""
    db, lease = w.db, w.db.lease
    if lease is not None and holders(w):
        if left(w, "stall") and lease.phase == LIVE:
            lapsed = db._replace(lease=lease._replace(phase=LAPSED))
            world = w._replace(db=lapsed, budget=spend(w, "stall"))
            yield Move("the claim runs out, its holder goes on", False, world)
        if left(w, "unlock") and lease.lock:
            unlocked = db._replace(lease=lease._replace(lock=False))
            yield Move(
                "the holder's lock vanishes", False, w._replace(db=unlocked, budget=spend(w, "unlock"))
            )
    if left(w, "outage"):
        spent = w._replace(budget=spend(w, "outage"))
        up = db._replace(quiet=True, loose=False)
        yield Move("the database restarts", False, spent._replace(db=up))
        if db.loose:
            lost = work.lose_last_commit(db)._replace(quiet=True)
            yield Move("the database restarts, the last commit is lost", False, spent._replace(db=lost))
