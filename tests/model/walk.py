"""A random walk over one thread: each operation on the machine and on the database, answers and states compared."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from tests.model import people, state, work
from tests.model.bench import ARGS_HASH, ME, WORKERS, Bench, comparable
from tests.model.facts import facts_of
from tests.model.guards import ALL
from tests.model.habits import ASKED, EAGER, LONG_UP, MESSAGES_MAX, QUIET
from tests.model.pieces import Limits


class Differs(AssertionError):
    """The database and the machine do not agree."""


@dataclass
class Hand:
    """A claim in a worker's hand; it may have been taken away since."""

    claim: UUID
    token: int
    run: int
    holder: str
    key: UUID
    rec: int


def agree(what: str, database: Any, machine: Any) -> None:
    """Raise unless both say the same."""
    if database != machine:
        raise Differs(f"{what}: the database says {database}, the machine {machine}")


class Walk:
    """One walk per seed; the connection holds the locks of the workers too."""

    def __init__(self, bench: Bench, connection: Any, seed: int) -> None:
        self.bench = bench
        self.connection = connection
        self.dice = random.Random(seed)
        self.limits = Limits(starts=5, retries=seed % 2)
        self.db = state.Db()
        self.hands: list[Hand] = []
        self.keys: dict[UUID, int] = {}
        self.unhinted: set[int] = set()
        self.locks = dict.fromkeys(WORKERS, False)
        self.seen: Counter[str] = Counter()
        self.history: list[str] = []

    async def go(self, steps: int) -> None:
        """Walk.

        Raises:
            Differs: when the database and the machine do not agree, or the database fails; names the steps so far.
        """
        await self.bench.run(self.connection, "up_for", LONG_UP)
        await self.bench.send(self.connection, "0")
        await self.bench.run(self.connection, "befriend", self.bench.thread, "other")
        self.db, _ = people.send(self.db, ALL, 0, "steer")
        await self.bench.see(self.connection)
        try:
            for _ in range(steps):
                await self._step()
        except (Differs, asyncpg.PostgresError) as error:
            raise Differs(f"{error!r}\n  after " + "\n  ".join(self.history)) from error
        finally:
            for worker in WORKERS:
                await self._set_lock(worker, False)

    async def _step(self) -> None:
        eager = self._eager()
        weights = [weight * (4 if name in eager else 1) for name, (weight, _) in STEPS.items()]
        name = self.dice.choices(list(STEPS), weights)[0]
        await (self.doom() if name == "doom" else self._take(name))

    def _eager(self) -> set[str]:
        """Return the steps that are likelier now, since they change something."""
        db = self.db
        run = db.run()
        eager = EAGER[run.status if run is not None else "idle"].copy()
        if any(q.status == state.OPEN and q.expires == state.PAST for q in db.requests):
            eager |= {"expire"}
        if db.lease is not None and db.lease.phase != state.LIVE:
            eager |= {"lapse"}
        return eager

    async def _take(self, name: str) -> None:
        before = self.db
        self.history.append(name)
        told = len(self.bench.look["facts"])
        await STEPS[name][1](self)
        found = await self.bench.see(self.connection)
        agree("state", found, comparable(self.db))
        facts = Counter(self.bench.look["facts"][told:])
        agree("facts", facts, facts_of(before, self.db))

    def _note(self, outcome: str) -> None:
        self.history[-1] += f" -> {outcome}"
        self.seen[f"{self.history[-1].split()[0]} {outcome}"] += 1

    def _hand(self) -> Hand | None:
        """Return the latest claim mostly, else one that was taken away."""
        if not self.hands:
            return None
        others = self.hands[:-1]
        return self.dice.choice(others) if others and self.dice.random() < 0.35 else self.hands[-1]

    def _has_begun(self, hand: Hand) -> bool:
        """Tell whether this is an agent's attempt whose start is on record: no other pauses or is handed over."""
        return hand.rec > 0 and not self.db.runs[hand.run].direct

    def _run_id(self, index: int) -> UUID:
        return self.bench.runs()[index]

    # People

    async def send(self) -> None:
        if len(self.db.inbox) >= MESSAGES_MAX:
            return
        key = len(self.db.inbox)
        on_busy = self.dice.choice(("steer", "steer", "queue", "interrupt", "reject"))
        row = await self.bench.send(self.connection, str(key), on_busy)
        self.db, receipt = people.send(self.db, ALL, key, on_busy)
        await self._same_receipt(row, receipt)

    async def _same_receipt(self, row: dict[str, Any], receipt: people.Receipt) -> None:
        self._note(f"{receipt.outcome} {receipt.disposition}")
        await self.bench.see(self.connection)
        run = self.bench.runs().index(row["run"]) if row["run"] else state.NONE
        found = people.Receipt(row["outcome"], row["disposition"] or "", run, row["duplicate"])
        agree("receipt", found, receipt)

    async def send_again(self) -> None:
        key = self.dice.randrange(len(self.db.inbox))
        other = await self.bench.send(self.connection, str(key), body="another text")
        agree("another text under a key", other["outcome"], "key_conflict")
        row = await self.bench.send(self.connection, str(key), self.dice.choice(("steer", "interrupt")))
        _, receipt = people.send(self.db, ALL, key, "steer")
        await self._same_receipt(row, receipt)

    async def stop_run(self) -> None:
        index = self.dice.choice([self.db.cur, self.dice.randrange(len(self.db.runs))])
        if index < 0:
            return
        row = await self.bench.stop(self.connection, run=self._run_id(index))
        self.db, result = people.stop_run(self.db, ALL, index)
        self._note(result)
        agree("stop", row["outcome"], result)

    async def stop_thread(self) -> None:
        key = self.dice.choice([len(self.db.stops), self.dice.randrange(len(self.db.stops) + 1)])
        row = await self.bench.stop(self.connection, key=str(key))
        self.db, result = people.stop_thread(self.db, ALL, key)
        self._note(result)
        agree("stop", row["outcome"], result)

    async def answer(self) -> None:
        if not self.db.requests:
            return
        places = [i for i, q in enumerate(self.db.requests) if q.status == state.OPEN]
        if not places or self.dice.random() < 0.25:
            places = list(range(len(self.db.requests)))
        index, by = self.dice.choice(places), self.dice.choice((people.REQUESTER, "other"))
        kind = self.dice.choice(("approve", "edit", "reject", "reply"))
        if self.dice.random() < 0.7:
            kind = "approve" if self.db.requests[index].kind == state.APPROVAL else "reply"
        hash = ARGS_HASH if self.dice.random() < 0.8 else "00"
        who = ME if by == people.REQUESTER else by
        row = await self.bench.answer(self.connection, self.bench.requests()[index], kind, who, hash)
        db, result = people.answer(self.db, ALL, index, by, kind)
        if hash != ARGS_HASH and result == "ok" and db != self.db:
            db, result = self.db, "args_changed"
        self._note(result)
        agree("answer", row["outcome"], result)
        self.db = db

    async def come_late(self) -> None:
        await self.bench.run(self.connection, "come_late", self.bench.thread)
        late = tuple(
            q._replace(expires=state.PAST) if q.status == state.OPEN and q.expires == state.LATER else q
            for q in self.db.requests
        )
        self.db = self.db._replace(requests=late)

    async def expire(self) -> None:
        row = await self.bench.expire(self.connection)
        due = [q for q in self.db.requests if q.status == state.OPEN and q.expires == state.PAST]
        self.db = people.expire(self.db, ALL)
        self._note(f"{len(due)}")
        agree("expired", row["expired"], len(due))

    # Workers

    def _key(self) -> UUID:
        if self.hands and self.dice.random() < 0.15:
            return self.dice.choice(self.hands).key
        key = uuid4()
        self.keys[key] = 1000 + len(self.keys)
        return key

    def _next_token(self) -> int:
        return sum(len(run.attempts) for run in self.db.runs) + 1

    async def claim(self) -> None:
        worker, key = self.dice.choice(WORKERS), self._key()
        has_agent, hinted = self.dice.random() < 0.9, self.dice.random() < 0.5
        agents = ("a",) if has_agent else ("b",)
        row = await self.bench.claim(
            self.connection, worker, key, agents=agents, retries=self.limits.retries, hinted=hinted
        )
        token = self._next_token()
        self.db, result = work.claim(self.db, ALL, self.limits, self.keys[key], token, has_agent)
        self._note(result)
        agree("claim", row["outcome"], result)
        if result == "started":
            if self.db.claim == token and not hinted:
                self.unhinted.add(token)
            await self._handed(row["claim_id"], key, worker)

    async def hold(self) -> None:
        worker, key = self.dice.choice(WORKERS), self._key()
        row = await self.bench.hold(self.connection, worker, key)
        token = self._next_token()
        self.db, result = work.hold(self.db, ALL, self.limits, self.keys[key], token)
        self._note(result)
        agree("hold", row["outcome"], result)
        if result == "held":
            self.unhinted.add(self.db.claim)
            await self._handed(row["claim_id"], key, worker)

    async def _handed(self, claim: UUID, key: UUID, worker: str) -> None:
        await self.bench.see(self.connection)
        agree("token", self.bench.tokens().index(claim) + 1, self.db.claim)
        if all(hand.claim != claim for hand in self.hands):
            self.hands.append(Hand(claim, self.db.claim, self.db.cur, worker, key, self.db.rec))

    async def record(self) -> None:
        hand = self._hand()
        if hand is None:
            return
        number = hand.rec + self.dice.choice((1, 1, 1, 1, 0, 2))
        shown = self.db.visible() if self.dice.random() < 0.6 else ()
        row = await self.bench.record(self.connection, hand.claim, number, [i + 1 for i in shown])
        self.db, result = work.record(self.db, ALL, hand.token, number, shown)
        self._note(result)
        agree("record", row["outcome"], result)
        if result == "ok":
            hand.rec = self.db.rec
            agree("waiting", row["waiting"], len(self.db.visible()))
            agree("stop", row["stop"], self.db.runs[self.db.cur].cut >= 0)

    async def end(self) -> None:
        hand = self._hand()
        if hand is None:
            return
        status = self.dice.choice((state.COMPLETED, state.COMPLETED, state.FAILED, state.STOPPED))
        if status == state.STOPPED and self.db.runs[hand.run].cut < 0:
            status = state.COMPLETED
        row = await self.bench.end(self.connection, self._run_id(hand.run), hand.claim, status)
        reason = {state.FAILED: "error", state.STOPPED: "stopped"}.get(status, "")
        self.db, result = work.end_run(self.db, ALL, hand.token, hand.run, status, reason)
        self._note(result)
        agree("end", row["outcome"], result)
        if result == "ended":
            agree("status", row["status"], self.db.runs[hand.run].status)

    async def pause(self) -> None:
        hand = self._hand()
        if hand is None or not self._has_begun(hand):
            return
        asked, first = self.dice.choice(ASKED), len(self.db.requests)
        row = await self.bench.pause(self.connection, self._run_id(hand.run), hand.claim, asked, first)
        self.db, result = work.pause(self.db, ALL, hand.token, hand.run, asked)
        self._note(result)
        agree("pause", row["outcome"], result)

    async def hand_over(self) -> None:
        hand = self._hand()
        if hand is None or not self._has_begun(hand):
            return
        row = await self.bench.hand_over(self.connection, self._run_id(hand.run), hand.claim)
        self.db, result = work.hand_over(self.db, ALL, hand.token, hand.run)
        self._note(result)
        agree("hand-over", row["outcome"], result)

    async def release(self) -> None:
        hand = self._hand()
        if hand is None:
            return
        row = await self.bench.release(self.connection, hand.claim)
        self.db, result = work.release(self.db, ALL, self.limits, hand.token)
        self._note(result)
        agree("release", row["outcome"], result)

    async def partial(self) -> None:
        hand = self._hand()
        if hand is None:
            return
        row = await self.bench.partial(self.connection, hand.claim)
        self.db, result = work.partial(self.db, ALL, hand.token)
        self._note(result)
        agree("partial", row["partial_v1"], result == "ok")

    async def renew(self) -> None:
        hand = self._hand()
        if hand is None:
            return
        row = await self.bench.renew(self.connection, hand.holder, hand.claim)
        self.db, result = work.renew(self.db, hand.token)
        self._note(result)
        agree("renew", row["result"], result)
        if result == "renewed":
            waiting = sum(m.state == state.WAITING for m in self.db.inbox)
            stop = self.db.runs[self.db.cur].cut >= 0
            agree("news", (row["stop"], row["waiting"]), (stop, waiting))

    # Time, sweeps and the database

    async def run_out(self) -> None:
        await self.bench.run(self.connection, "run_out", self.bench.thread)
        if self.db.lease is not None and self.db.lease.phase == state.LIVE:
            self.db = self.db._replace(lease=self.db.lease._replace(phase=state.LAPSED))

    async def _set_lock(self, worker: str, stands: bool) -> None:
        if self.locks[worker] != stands:
            await self.bench.row(self.connection, "take_lock" if stands else "drop_lock", worker)
            self.locks[worker] = stands

    async def lock(self) -> None:
        worker = self.dice.choice(WORKERS)
        await self._set_lock(worker, not self.locks[worker])

    def _holder(self) -> str | None:
        return next((hand.holder for hand in self.hands if hand.token == self.db.claim), None)

    async def lapse(self) -> None:
        dead = self.dice.choice((None, *WORKERS))
        holder = self._holder()
        await self.bench.run(self.connection, "fall_silent", self.bench.thread)
        row = await self.bench.lapse(self.connection, dead)
        db = self.db
        seen_dead = dead is not None and dead == holder and db.claim not in self.unhinted
        if db.lease is not None and dead is not None:
            db = db._replace(lease=db.lease._replace(lock=self.locks[dead]))
        self.db, result = work.sweep(db, ALL, self.limits, dead=seen_dead)
        self._note(result or "left alone")
        agree("lapse", row["result"] or "", result)

    async def disown(self) -> None:
        holder = self._holder()
        if holder is None or self.db.lease is None:
            return
        await self.bench.row(self.connection, "disown", holder.rpartition("-")[0])
        self.db = self.db._replace(lease=self.db.lease._replace(phase=state.DISOWNED))

    async def doom(self) -> None:
        """Let workers die before they have acknowledged their start, until somebody gives up."""
        for _ in range(self.limits.starts):
            for name in ("claim", "run_out", "lapse"):
                await self._take(name)

    async def restart(self) -> None:
        quiet = self.dice.random() < 0.4
        await self.bench.run(self.connection, "up_for", QUIET if quiet else LONG_UP)
        self.db = self.db._replace(quiet=quiet)


STEPS: Final[dict[str, tuple[int, Callable[[Walk], Awaitable[None]]]]] = {
    "send": (14, Walk.send),
    "send_again": (3, Walk.send_again),
    "stop_run": (4, Walk.stop_run),
    "stop_thread": (3, Walk.stop_thread),
    "answer": (12, Walk.answer),
    "come_late": (3, Walk.come_late),
    "expire": (3, Walk.expire),
    "claim": (22, Walk.claim),
    "hold": (3, Walk.hold),
    "record": (18, Walk.record),
    "end": (9, Walk.end),
    "pause": (7, Walk.pause),
    "hand_over": (4, Walk.hand_over),
    "release": (2, Walk.release),
    "partial": (2, Walk.partial),
    "renew": (4, Walk.renew),
    "run_out": (6, Walk.run_out),
    "lock": (3, Walk.lock),
    "lapse": (9, Walk.lapse),
    "disown": (2, Walk.disown),
    "doom": (1, Walk.doom),
    "restart": (3, Walk.restart),
}
