"""Time alone: one claim, two workers, a sweeper and a database that restarts, in ticks.

All times are distances from now, so the model is finite without a horizon. A worker's requests take up to `delay` ticks
to be executed and as many to be answered, or are lost on either way. The database's clock is the only one that is
compared with the database's stamps; each worker trusts its claim by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.state import NONE, Broken

IDLE, RUNNING, STOPPING = "idle", "running", "stopping"
CLAIM, RENEW = "claim", "renew"


class Times(NamedTuple):
    """Lengths in ticks, and how often each fault strikes."""

    ttl: int = 5
    margin: int = 1
    delay: int = 2
    stopping: int = 1  # how long an agent takes to stop
    gate: int = 2  # without proof of its lock for this long a worker starts nothing
    hint: int = 3  # a lock that was absent for this long means that its holder died
    hinted: bool = False
    freeze: int = 0
    restart: int = 0
    repeat: bool = False  # a claim whose answer was lost is asked for again
    cut: int = 0  # a worker's connection dies, and its lock with it


class TimeGuards(NamedTuple):
    """What makes it safe; each can be taken away."""

    trust_counts_from_request: bool = True
    repeated_claim_counts_from_first_try: bool = True
    margin_covers_stopping: bool = True
    trust_is_checked_at_each_start: bool = True
    clock_counts_sleep: bool = True
    gate_closes: bool = True
    gate_is_shorter_than_hint: bool = True
    hint_looks_at_last_renewal: bool = True
    restart_holds_lapses: bool = True
    restart_holds_hints: bool = True
    renewal_names_its_claim: bool = True


ALL = TimeGuards()


class Sent(NamedTuple):
    """A request under way: how long ago it was sent, and executed."""

    kind: str
    age: int = 0
    executed: int = NONE


class Holder(NamedTuple):
    """A worker by its own clock.

    `proof`: how long ago its last answered renewal was sent. `tried`: how long ago it first asked for the claim
    with the key that it still repeats.
    """

    phase: str = IDLE
    trust: int = 0
    proof: int = 0
    sent: Sent | None = None
    frozen: bool = False
    lock: bool = False
    tried: int = NONE
    stands: bool = False  # the present claim was started with that key


class Clock(NamedTuple):
    """One moment."""

    holder: int = NONE
    left: int = 0  # until the claim runs out
    before: int = 0  # the same without the last renewal, while a restart may lose that
    absent: int = 0  # for how long the sweeper has missed the holder's lock
    quiet: int = 0  # until lapses are taken again after a start of the database
    workers: tuple[Holder, ...] = (Holder(), Holder())
    faults: tuple[int, int, int] = (0, 0, 0)  # freeze, restart, cut


def seated(c: Clock, i: int, worker: Holder, **changes: object) -> Clock:
    """Return the moment with one worker changed, and what else changes."""
    return c._replace(workers=(*c.workers[:i], worker, *c.workers[i + 1 :]), **changes)  # type: ignore[arg-type]


def may_start(t: Times, g: TimeGuards, x: Holder) -> bool:
    """Tell whether this worker would begin a model request or a tool now."""
    trusted = x.trust > 0 or not g.trust_is_checked_at_each_start
    proven = x.proof < t.gate or not g.gate_closes or not t.hinted
    return x.phase == RUNNING and not x.frozen and trusted and proven


def check(t: Times, g: TimeGuards, c: Clock) -> None:
    """Look at one moment."""
    awake = [i for i, x in enumerate(c.workers) if x.phase != IDLE and not x.frozen]
    if len(awake) > 1 and not t.hinted and not t.freeze:
        raise Broken("no overlap: two attempts run at once")
    for i, x in enumerate(c.workers):
        if c.holder == 1 - i and c.workers[1 - i].phase == RUNNING and may_start(t, g, x):
            raise Broken("nothing starts beside the holder: an attempt that was replaced may begin a call")


def moves(t: Times, g: TimeGuards, c: Clock) -> Iterator[tuple[str, Clock]]:
    """Yield everything that can happen next."""
    for i in range(2):
        yield from _worker(t, g, c, i)
    yield from _sweep(t, g, c)
    if c.faults[1]:
        yield from _restart(t, c)
    if _may_tick(t, c):
        yield "a tick", _tick(t, g, c)


def _worker(t: Times, g: TimeGuards, c: Clock, i: int) -> Iterator[tuple[str, Clock]]:
    x = c.workers[i]
    freeze, restart, cut = c.faults
    if x.frozen:
        yield f"w{i} thaws", seated(c, i, x._replace(frozen=False))
    elif x.phase == RUNNING and freeze:
        yield f"w{i} freezes", seated(c, i, x._replace(frozen=True), faults=(freeze - 1, restart, cut))
    if cut and x.lock and x.phase == RUNNING:
        severed = x._replace(lock=False, sent=None)
        yield f"w{i}'s connection dies", seated(c, i, severed, faults=(freeze, restart, cut - 1))
    if x.sent is None:
        if not x.frozen and x.phase != STOPPING:
            yield from _sends(t, c, i)
        return
    yield f"w{i}'s {x.sent.kind} is lost", seated(c, i, x._replace(sent=None))
    if x.sent.executed == NONE:
        yield from _executed(t, g, c, i)
    elif not x.frozen:
        yield f"w{i} is answered", seated(c, i, _answered(t, g, x, x.sent))


def _sends(t: Times, c: Clock, i: int) -> Iterator[tuple[str, Clock]]:
    x = c.workers[i]
    if x.phase == RUNNING:
        yield f"w{i} sends a renewal", seated(c, i, x._replace(sent=Sent(RENEW)))
        return
    asked = x._replace(sent=Sent(CLAIM), tried=0 if t.repeat else NONE, stands=False)
    yield f"w{i} asks for the claim", seated(c, i, asked)
    if x.tried != NONE:
        yield f"w{i} asks again with the same key", seated(c, i, x._replace(sent=Sent(CLAIM)))


def _executed(t: Times, g: TimeGuards, c: Clock, i: int) -> Iterator[tuple[str, Clock]]:
    x = c.workers[i]
    sent = x.sent
    assert sent is not None
    done = x._replace(
        sent=sent._replace(executed=0), lock=True, stands=sent.kind == CLAIM and t.repeat
    )  # a new connection takes its lock first
    free = c.holder == NONE or (c.left == 0 and (not c.quiet or not g.restart_holds_lapses))
    if sent.kind == CLAIM and free:
        # A fresh key, or one whose start does not stand any more: the trust of a repeat counts from its first try.
        yield f"w{i} gets the claim", seated(c, i, done, holder=i, left=t.ttl, before=t.ttl, absent=0)
    elif sent.kind == CLAIM and c.holder == i and x.stands:
        yield f"w{i} is told of its start again", seated(c, i, done)
    elif sent.kind == RENEW and (c.holder == i or (c.holder != NONE and not g.renewal_names_its_claim)):
        yield f"w{i}'s claim is renewed", seated(c, i, done, left=t.ttl, before=c.left)
    elif sent.kind == RENEW:
        stopping = x._replace(sent=None, phase=STOPPING if x.phase == RUNNING else x.phase, trust=t.stopping)
        yield f"w{i} is told that its claim is lost", seated(c, i, stopping)


def _answered(t: Times, g: TimeGuards, x: Holder, sent: Sent) -> Holder:
    repeated = sent.kind == CLAIM and g.repeated_claim_counts_from_first_try
    age = max(sent.age, x.tried if repeated else 0) if g.trust_counts_from_request else 0
    trust = t.ttl - (t.margin if g.margin_covers_stopping else 0) - age
    x = x._replace(tried=NONE, stands=False)
    if trust <= 0 or x.phase == STOPPING or (sent.kind == RENEW and x.phase == IDLE):
        return x._replace(sent=None)
    if x.phase == RUNNING and x.trust == 0:
        return x._replace(sent=None)
    return x._replace(phase=RUNNING, trust=max(trust, x.trust), proof=sent.age, sent=None)


def _sweep(t: Times, g: TimeGuards, c: Clock) -> Iterator[tuple[str, Clock]]:
    if c.holder == NONE:
        return
    if c.left == 0 and (not c.quiet or not g.restart_holds_lapses):
        yield "a sweep takes the lapsed claim", c._replace(holder=NONE, before=0)
    wait = t.hint if g.gate_is_shorter_than_hint else t.gate - 1
    gone = c.absent >= wait and not c.workers[c.holder].lock
    # A lock that came back and went between two looks has left a renewal.
    silent = c.left <= t.ttl - wait or not g.hint_looks_at_last_renewal
    if t.hinted and gone and silent and (not c.quiet or not g.restart_holds_hints):
        if c.faults == (0, 0, 0) and t.cut == t.freeze == 0 and c.workers[c.holder].trust > 0:
            raise Broken("a restart takes no claim: one whose holder trusts it was taken")
        yield (
            "a sweep takes the claim of a holder without its lock",
            c._replace(holder=NONE, left=0, before=0),
        )


def _restart(t: Times, c: Clock) -> Iterator[tuple[str, Clock]]:
    freeze, restart, cut = c.faults
    workers = tuple(x._replace(lock=False, sent=None) for x in c.workers)
    up = c._replace(quiet=t.ttl, workers=workers, faults=(freeze, restart - 1, cut))
    yield "the database restarts", up
    if c.before != c.left:
        yield "the database restarts without the last renewal", up._replace(left=c.before)


def _may_tick(t: Times, c: Clock) -> bool:
    """Tell whether nothing has to happen first: requests take no longer than they may."""
    for x in c.workers:
        if x.sent is not None and (x.sent.age if x.sent.executed == NONE else x.sent.executed) >= t.delay:
            return False
    return True


def _tick(t: Times, g: TimeGuards, c: Clock) -> Clock:
    lock = c.holder == NONE or c.workers[c.holder].lock
    return Clock(
        c.holder,
        max(0, c.left - 1),
        max(0, c.left - 1),  # what was renewed a tick ago is on disk
        0 if lock else min(c.absent + 1, t.hint),
        max(0, c.quiet - 1),
        tuple(_older(t, g, x) for x in c.workers),
        c.faults,
    )


def _older(t: Times, g: TimeGuards, x: Holder) -> Holder:
    sent = x.sent
    if sent is not None:
        executed = NONE if sent.executed == NONE else sent.executed + 1
        sent = Sent(sent.kind, sent.age + 1, executed)
    if x.phase == IDLE:
        return x._replace(sent=sent, tried=NONE if x.tried == NONE else min(x.tried + 1, t.ttl))
    asleep = x.frozen and not g.clock_counts_sleep
    trust = x.trust if asleep else max(0, x.trust - 1)
    proof = x.proof if asleep else min(x.proof + 1, t.gate)
    if x.frozen or trust > 0:
        return Holder(x.phase, trust, proof, sent, x.frozen, x.lock)
    if x.phase == RUNNING and t.stopping:
        return Holder(STOPPING, t.stopping, proof, None, False, x.lock)
    return Holder(lock=x.lock)


def explore(t: Times, g: TimeGuards = ALL) -> tuple[str, tuple[str, ...], int]:
    """Visit every moment; return what is broken, the steps to it, and how many moments were seen."""
    begin = Clock(faults=(t.freeze, t.restart, t.cut))
    came: dict[Clock, tuple[Clock | None, str]] = {begin: (None, "")}
    queue = [begin]
    for c in queue:
        at = c
        try:
            for label, after in moves(t, g, c):
                if after not in came:
                    came[after] = (c, label)
                    queue.append(after)
                    at = after
                    check(t, g, after)
                    at = c
        except Broken as broken:
            return str(broken), _path(came, at), len(came)
    return "", (), len(came)


def _path(came: dict[Clock, tuple[Clock | None, str]], end: Clock | None) -> tuple[str, ...]:
    steps = []
    while end is not None:
        end, label = came[end]
        steps.append(label)
    return tuple(reversed(steps[:-1]))
