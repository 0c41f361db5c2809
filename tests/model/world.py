"""The thread, and all that acts on it: workers, people who aim stops, and what is left of each kind of fault."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.guards import ALL, Guards
from tests.model.pieces import Limits
from tests.model.state import (
    ACTIVE,
    COMPLETED,
    DELIVERED,
    NONE,
    OPEN,
    RUNNING,
    WAITING,
    Db,
    Message,
    Run,
)

# What a worker is doing. The last four have sent something whose answer was lost, and send it again.
IDLE, STARTED, WORKING, DIRECT, CHECKED = "idle", "started", "working", "direct", "checked"
ASKING, RECORDING, ENDING, PAUSING, HANDING = "asking", "recording", "ending", "pausing", "handing over"
REPEATING = frozenset({RECORDING, ENDING, PAUSING, HANDING})
STALE = -2  # a token that no longer stands anywhere


class Worker(NamedTuple):
    """One worker process. `view`: the inbox as it read it, one bit per message."""

    phase: str = IDLE
    has_agent: bool = True
    run: int = NONE
    token: int = 0
    rec: int = 0
    view: int = 0


AT_REST, STRANGER = Worker(), Worker(has_agent=False)


class Bound(NamedTuple):
    """How much happens at most: workers, messages, and how often each fault strikes."""

    workers: int = 2
    messages: int = 2
    modes: tuple[str, ...] = ("steer",)
    stops: tuple[str, ...] = ("run",)  # which kinds are aimed: run, thread
    pauses: tuple[tuple[tuple[str, bool, str], ...], ...] = ((("question", False, "never"),),)
    limits: Limits = Limits(starts=2, retries=0)
    strangers: int = 0  # workers without the agent, besides
    crash: int = 0  # a worker dies
    stall: int = 0  # a claim runs out while its holder goes on, frozen, late or cut off
    lost: int = 0  # an answer is lost
    stop: int = 0
    pause: int = 0
    drain: int = 0
    error: int = 0
    unlock: int = 0  # a holder's lock vanishes while it lives
    outage: int = 0  # the database restarts
    direct: int = 0


COUNTED = (
    "messages",
    "crash",
    "stall",
    "lost",
    "stop",
    "pause",
    "drain",
    "error",
    "unlock",
    "outage",
    "direct",
)
PLACE = {name: i for i, name in enumerate(COUNTED)}


class Aim(NamedTuple):
    """A stop that somebody means: of a run by its number, or of the thread by a key. `hit`: what it did first."""

    kind: str
    run: int = NONE
    hit: int = NONE
    key: int = 0


class World(NamedTuple):
    """One state of everything."""

    db: Db
    workers: tuple[Worker, ...]
    budget: tuple[int, ...]
    aim: Aim | None = None
    told: int = 0  # messages that the agent of their run was shown, one bit each
    suspect: bool = False  # a sweeper saw the holder's lock absent for long enough
    half: tuple[str, str] | None = None  # a send that has read the state and not yet written


class Setting(NamedTuple):
    """What does not change while a world is explored."""

    bound: Bound
    guards: Guards = ALL


def beginning(bound: Bound) -> World:
    """Return the world in which nothing has happened."""
    workers = (Worker(),) * bound.workers + (Worker(has_agent=False),) * bound.strangers
    return World(Db(), workers, tuple(getattr(bound, name) for name in COUNTED))


def canonical(w: World) -> World:
    """Return the one world that stands for all that cannot be told apart from now on.

    What is settled and can never be looked at again is left out: ended runs, messages that were returned or that their
    agent has seen, closed requests. Tokens are numbered anew, workers are put in order.
    """
    db = w.db
    repeated = {x.token for x in w.workers if x.phase in REPEATING}
    looked_at = {x.run for x in w.workers if x.phase in REPEATING}
    if w.aim is not None:
        looked_at.update((w.aim.run, w.aim.hit))
    keep = [i for i, r in enumerate(db.runs) if i == db.cur or i in looked_at or r.status in ACTIVE]
    place = {old: new for new, old in enumerate(keep)}
    bits = _kept_messages(w)
    names = {0: 0}
    runs = tuple([_canonical_run(db.runs[i], i == db.cur, repeated, names, bits) for i in keep])
    claim = names.setdefault(db.claim, len(names))
    inbox = tuple([_canonical_message(db.inbox[b], n, place) for n, b in enumerate(bits)])
    requests = tuple(
        [q._replace(run=place[q.run]) for q in db.requests if q.status == OPEN and q.run in place]
    )
    stops = tuple([(k, place.get(r, NONE)) for k, r in db.stops]) if w.aim is not None else ()
    holder_rec, db_rec = _records(w)
    workers = [_canonical_worker(x, db, names, place, bits, holder_rec) for x in w.workers]
    workers.sort()
    cur = place.get(db.cur, NONE)
    db = Db(cur, claim, db_rec, db.lease, runs, inbox, requests, stops, db.quiet, loose=db.loose)
    aim = w.aim and w.aim._replace(run=place.get(w.aim.run, NONE), hit=place.get(w.aim.hit, NONE))
    return World(db, tuple(workers), w.budget, aim, _moved(w.told, bits), w.suspect, w.half)


def _kept_messages(w: World) -> list[int]:
    """Return the positions of the messages that may still matter."""
    cur, told = w.db.cur, w.told
    return [
        i
        for i, m in enumerate(w.db.inbox)
        if m.state == WAITING or (m.state == DELIVERED and m.run == cur and not told >> i & 1)
    ]


def _moved(mask: int, bits: list[int]) -> int:
    moved = 0
    if mask:
        for n, b in enumerate(bits):
            moved |= (mask >> b & 1) << n
    return moved


def _canonical_run(
    run: Run, current: bool, repeated: set[int], names: dict[int, int], bits: list[int]
) -> Run:
    open_one = run.token if run.status == RUNNING else 0
    attempts = tuple(
        [(names.setdefault(t, len(names)), o) for t, o in run.attempts if t == open_one or t in repeated]
    )
    if not current and run.status not in ACTIVE:
        return Run(COMPLETED, attempts=attempts, ends=1)
    token = names.setdefault(open_one, len(names))
    key = names.setdefault(run.key, len(names)) if token else 0
    cut = NONE if run.cut < 0 else sum([b < run.cut for b in bits])
    cut_next = NONE if run.cut_next < 0 else sum([b < run.cut_next for b in bits])
    return Run(
        run.status, "", cut, cut_next, token, key, run.unacked, run.retried, run.direct, attempts, 0, run.ran
    )


def _canonical_message(m: Message, position: int, place: dict[int, int]) -> Message:
    return Message(position, m.mode, "", NONE, m.state, place.get(m.run, NONE), "", m.kept)


def _records(w: World) -> tuple[int, int]:
    """Return the numbers of the holder's and of the database's last record, as small as their difference allows."""
    claim, rec = w.db.claim, w.db.rec
    if claim:
        for x in w.workers:
            if x.token == claim and x.phase not in (IDLE, ASKING):
                less = max(0, x.rec - 1)
                return x.rec - less, rec - less
    return 0, min(rec, 1)


def _canonical_worker(
    x: Worker, db: Db, names: dict[int, int], place: dict[int, int], bits: list[int], rec: int
) -> Worker:
    if x.phase == IDLE:
        return AT_REST if x.has_agent else STRANGER
    token = names.get(x.token, STALE)
    if x.phase == ASKING:  # its token is the key of its try
        return Worker(ASKING, x.has_agent, token=token)
    present = x.token == db.claim
    view = _moved(x.view, bits) if present or x.phase == RECORDING else 0
    run = place.get(x.run, NONE) if present or x.phase in REPEATING else NONE
    return Worker(x.phase, x.has_agent, run, token, rec if present else min(x.rec, 1), view)
