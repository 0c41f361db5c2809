"""What workers do next, and what can happen to each of them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import work
from tests.model.moves import Move, left, onto, spend
from tests.model.state import (
    COMPLETED,
    DELIVERED,
    FAILED,
    LAPSED,
    LIVE,
    PENDING,
    RUNNING,
    STOPPED,
    Broken,
    Db,
    Request,
)
from tests.model.world import (
    ASKING,
    CHECKED,
    DIRECT,
    ENDING,
    HANDING,
    IDLE,
    PAUSING,
    RECORDING,
    STARTED,
    WORKING,
    Setting,
    Worker,
    World,
)

# How an attempt is closed by the call whose answer was lost; otherwise it was closed by somebody else.
CLOSED_BY_ITSELF = {
    ENDING: ("completed", "stopped", "failed"),
    PAUSING: ("interrupted",),
    HANDING: ("handed_over", "stopped"),
    CHECKED: (),
}


def seated(w: World, i: int, worker: Worker) -> World:
    """Return the world with one worker changed."""
    workers = (*w.workers[:i], worker, *w.workers[i + 1 :])
    return World(w.db, workers, w.budget, w.aim, w.told, w.suspect, w.half)


def fresh_token(w: World) -> int:
    """Return a token that stands nowhere yet, as a database makes them."""
    used = [w.db.claim, *(x.token for x in w.workers)]
    for run in w.db.runs:
        used += [run.token, run.key, *(token for token, _ in run.attempts)]
    return max(used) + 1


def bits(positions: tuple[int, ...]) -> int:
    """Return positions as a set of bits."""
    return sum(1 << i for i in positions)


def positions(mask: int) -> tuple[int, ...]:
    """Return a set of bits as positions."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def told(w: World, db: Db) -> int:
    """Return which messages an agent has seen that loads the present history."""
    return w.told | bits(
        tuple(i for i, m in enumerate(db.inbox) if m.state == DELIVERED and m.run == db.cur and m.kept)
    )


def moves_of(s: Setting, w: World, i: int) -> Iterator[Move]:
    """Yield everything that worker `i` may do, and that may happen to it."""
    x = w.workers[i]
    if x.phase == IDLE:
        yield from _takes(s, w, i)
        return
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    if left(w, "crash"):
        yield Move(f"w{i} dies", False, idle._replace(budget=spend(w, "crash")))
    if x.phase == ASKING:
        yield from _asks_again(s, w, i)
        return
    lease = w.db.lease
    if w.db.claim != x.token or (lease is not None and lease.phase == LAPSED):
        yield Move(f"w{i} notices that its claim is lost", True, idle)
    if w.db.claim == x.token and lease is not None and lease.phase == LAPSED:
        yield Move(f"w{i} renews a lapsed claim", True, onto(w, work.renew(w.db, x.token)[0]))
    if x.phase in (STARTED, WORKING):
        yield from _records(s, w, i)
    if x.phase in (WORKING, DIRECT):
        yield from _ends(s, w, i)
    if x.phase in (STARTED, WORKING):
        yield from _leaves(s, w, i)
    if x.phase in (RECORDING, ENDING, PAUSING, HANDING, CHECKED):
        yield from _repeats(s, w, i)


def _takes(s: Setting, w: World, i: int) -> Iterator[Move]:
    x, db, g = w.workers[i], w.db, s.guards
    token = fresh_token(w)
    if left(w, "direct") and db.cur < 0 and x.has_agent:
        after, _ = work.hold(db, g, s.bound.limits, token, token)
        holding = seated(w._replace(budget=spend(w, "direct")), i, Worker(DIRECT, True, after.cur, token, 1))
        yield Move(f"w{i} holds the thread for code of its own", False, onto(holding, after))
    run = db.run()
    if run is None or run.status not in (PENDING, RUNNING):
        return
    after, result = work.claim(db, g, s.bound.limits, token, token, x.has_agent)
    if after == db:
        return
    if db.lease is not None and db.lease.phase == LIVE:
        raise Broken("a live claim is left alone: it was taken over")
    fair = run.status == PENDING and g.pending_runs_are_looked_for
    if result != "started":
        yield Move(f"w{i} takes over, and finds {result}", fair, onto(w, after))
        return
    started = _began(w, after, i)
    yield Move(f"w{i} starts the run", fair, started)
    if left(w, "lost"):
        asking = onto(seated(w, i, Worker(ASKING, x.has_agent, token=token)), after)
        yield Move(
            f"w{i} starts the run, the answer is lost", False, asking._replace(budget=spend(w, "lost"))
        )


def _began(w: World, db: Db, i: int) -> World:
    worker = Worker(STARTED, w.workers[i].has_agent, db.cur, db.claim, 0, bits(db.visible()))
    return onto(seated(w, i, worker), db)._replace(told=told(w, db))


def _asks_again(s: Setting, w: World, i: int) -> Iterator[Move]:
    x = w.workers[i]
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    yield Move(f"w{i} gives its start up", True, idle)
    token = fresh_token(w)
    # A key that nothing stands under is as good as a fresh one.
    after, result = work.claim(w.db, s.guards, s.bound.limits, max(x.token, 0) or token, token, x.has_agent)
    lease = w.db.lease
    run = w.db.run()
    if run is not None and run.status == RUNNING and run.key == x.token and result != "started":
        raise Broken(f"a repeat gets the same answer: a start that stands is {result}")
    if after != w.db and lease is not None and lease.phase == LIVE:
        raise Broken("a live claim is left alone: it was taken over")
    if result == "started":
        yield Move(f"w{i} asks again: started", True, _began(w, after, i))
    else:
        yield Move(f"w{i} asks again: {result}", True, onto(idle, after))


def _records(s: Setting, w: World, i: int) -> Iterator[Move]:
    x, db = w.workers[i], w.db
    mine = db.claim == x.token
    work.partial(db, s.guards, x.token)
    if mine and x.phase == WORKING and bits(db.visible()) & ~x.view:
        read = seated(w, i, x._replace(view=bits(db.visible())))
        yield Move(f"w{i} reads the inbox", True, read)
    if x.phase == STARTED or x.view or not mine:
        yield from _record(s, w, i, x.view)
    if x.phase == STARTED and x.view:
        yield from _record(s, w, i, 0)


def _record(s: Setting, w: World, i: int, view: int) -> Iterator[Move]:
    x = w.workers[i]
    after, result = work.record(w.db, s.guards, x.token, x.rec + 1, positions(view))
    if result == work.FENCED:
        return  # the same as noticing the loss
    what = "records and shows what it read" if view else "records"
    done = x._replace(phase=WORKING, rec=x.rec + 1, view=0)
    yield Move(f"w{i} {what}", True, onto(seated(w, i, done), after)._replace(told=told(w, after)))
    if left(w, "lost"):
        unsure = seated(w, i, x._replace(phase=RECORDING, view=view))._replace(budget=spend(w, "lost"))
        yield Move(f"w{i} {what}, the answer is lost", False, onto(unsure, after))


def _ends(s: Setting, w: World, i: int) -> Iterator[Move]:
    x, db, g = w.workers[i], w.db, s.guards
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    if not g.end_looks_under_lock:
        if db.claim == x.token and not db.visible():
            yield Move(f"w{i} looks at the inbox: empty", True, seated(w, i, x._replace(phase=CHECKED)))
    else:
        yield from _completes(s, w, i)
    run = db.run()
    if db.claim == x.token and run is not None and run.cut >= 0:
        after, result = work.end_run(db, g, x.token, x.run, STOPPED, "stopped")
        yield Move(f"w{i} sees the stop: {result}", True, onto(idle, after))
    if left(w, "error"):
        after, result = work.end_run(db, g, x.token, x.run, FAILED, "error")
        if result == "ended" and after != db:
            yield Move(f"w{i} fails", False, onto(idle, after)._replace(budget=spend(w, "error")))


def _completes(s: Setting, w: World, i: int) -> Iterator[Move]:
    x, db = w.workers[i], w.db
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    after, result = work.end_run(db, s.guards, x.token, x.run, COMPLETED)
    if result == "continue" and after != db:
        yield Move(
            f"w{i} ends: continue",
            True,
            onto(seated(w, i, _continued(x, after)), after)._replace(told=told(w, after)),
        )
    if result == "ended" and after != db:
        yield Move(f"w{i} completes", True, onto(idle, after))
    if left(w, "lost") and after != db:
        unsure = seated(w, i, x._replace(phase=ENDING))._replace(budget=spend(w, "lost"))
        yield Move(f"w{i} ends: {result}, the answer is lost", False, onto(unsure, after))


def _continued(x: Worker, db: Db) -> Worker:
    return x._replace(phase=WORKING if x.phase != DIRECT else DIRECT)


def _leaves(s: Setting, w: World, i: int) -> Iterator[Move]:
    """Pause, hand the run over, or give the claim up."""
    x, db, g = w.workers[i], w.db, s.guards
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    if left(w, "pause") and x.phase == WORKING:
        for kinds in s.bound.pauses:
            asked = tuple(Request(db.cur, kind, other_only, expires) for kind, other_only, expires in kinds)
            after, result = work.pause(db, g, x.token, x.run, asked)
            yield from _left(w, i, after, result, "pause", PAUSING)
    if left(w, "drain"):
        if x.phase == WORKING:
            after, result = work.hand_over(db, g, x.token, x.run)
            yield from _left(w, i, after, result, "drain", HANDING)
        after, result = work.release(db, g, s.bound.limits, x.token)
        if after != db:
            given = onto(idle, after)._replace(budget=spend(w, "drain"))
            yield Move(f"w{i} gives its claim up: {result}", False, given)


def _left(w: World, i: int, after: Db, result: str, fault: str, unsure: str) -> Iterator[Move]:
    x = w.workers[i]
    if result == "continue":
        raise Broken("the pause wins: a waiting message destroyed it")
    if after == w.db:
        return
    what = "pauses" if fault == "pause" else "hands over"
    spent = w._replace(budget=spend(w, fault))
    idle = Worker(has_agent=x.has_agent)
    yield Move(f"w{i} {what}: {result}", False, onto(seated(spent, i, idle), after))
    if left(w, "lost"):
        again = spent._replace(budget=spend(spent, "lost"))
        yield Move(
            f"w{i} {what}, the answer is lost", False, onto(seated(again, i, x._replace(phase=unsure)), after)
        )


def _repeats(s: Setting, w: World, i: int) -> Iterator[Move]:
    """Send again what was not answered."""
    x, db, g = w.workers[i], w.db, s.guards
    idle = seated(w, i, Worker(has_agent=x.has_agent))
    if x.phase == RECORDING:
        after, result = work.record(db, g, x.token, x.rec + 1, positions(x.view))
        done = x._replace(phase=WORKING, rec=x.rec + 1, view=0)
        if result == "ok":
            yield Move(
                f"w{i} records again", True, onto(seated(w, i, done), after)._replace(told=told(w, after))
            )
        return
    if x.phase in (ENDING, CHECKED):
        after, result = work.end_run(db, g, x.token, x.run, COMPLETED, checked=x.phase == CHECKED)
        then = seated(w, i, _continued(x, after)) if result == "continue" else idle
    elif x.phase == PAUSING:
        after, result = work.pause(db, g, x.token, x.run, (Request(db.cur, "question"),))
        then = idle
    else:
        after, result = work.hand_over(db, g, x.token, x.run)
        then = idle
    closed_as = [
        outcome for token, outcome in (db.runs[x.run].attempts if x.run >= 0 else ()) if token == x.token
    ]
    if result == work.FENCED and closed_as and closed_as[0] in CLOSED_BY_ITSELF[x.phase]:
        raise Broken(f"a repeat gets the same answer: what was {closed_as[0]} is {result}")
    yield Move(f"w{i} is {x.phase}, again: {result}", True, onto(then, after))
