"""Holds a process's claims, and ends trust in them in time.

Renewals run in a process of their own, so that no tool can hold them up, not even one that never lets go of the
interpreter. Until when a claim may be trusted stands in shared memory. Trust ends on the local clock, by a timer of the
main loop that waits for nobody.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import structlog

from threadhold.claims.blocks import Lookout
from threadhold.claims.board import SLOTS_MAX, Board
from threadhold.claims.claim import Claim, ClaimTimes
from threadhold.claims.clock import Clock, now
from threadhold.claims.doing import Blocker
from threadhold.claims.ports import Line, Link

log = structlog.get_logger(__name__)

TICK_S: Final = 1.0
# Without a proof that it holds its lock for this long, a keeper may already be taken for dead.
SURE_S: Final = 2.0
READY_LOOK_S: Final = 0.02
# A pause between two ticks that is worth a line in the log.
RESUMED_AFTER_S: Final = 2.5


class TooManyClaims(Exception):
    """One process cannot hold more claims."""

    code = "too_many_claims"

    def __init__(self) -> None:
        super().__init__(f"one process keeps at most {SLOTS_MAX} claims")


@dataclass(frozen=True, slots=True)
class News:
    """What a renewal brought along for the holder."""

    stop: bool
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStats:
    """What a keeper is doing. `age_s` is how long ago renewing worked last, None if it never did.

    `renewed` and `failed` count statements, each for up to 500 claims, and `lost` claims by why they were lost.
    """

    held: int
    renewed: int
    failed: int
    age_s: float | None
    lost: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Held:
    """A claim in our hands. `lost` is set once, and a lost claim is never renewed again.

    `on_lost` and `on_news` are called in the main loop. What `on_lost` is told: `taken over`, `storage` (renewals
    failed) or `no renewal in time`.
    """

    claim: Claim
    deadline: float
    on_lost: Callable[[str], None]
    on_news: Callable[[News], None]
    slot: int
    owner: int
    lost: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class Keeper:
    """Holds claims for one process.

    Args:
        link: leads to whoever renews.
        board: where that one publishes deadlines and proofs; closed with the keeper.
        times: ttl, interval and margin.
        lookout: says who blocks the main loop; nobody does without. Closed with the keeper.
        clock: seconds that only grow; a parameter for tests.
    """

    def __init__(
        self,
        link: Link,
        board: Board,
        *,
        times: ClaimTimes,
        lookout: Lookout | None = None,
        clock: Clock = now,
    ) -> None:
        self._link = link
        self._board = board
        self._times = times
        self._lookout = lookout
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._lost: Counter[str] = Counter()
        self._slots = list(range(SLOTS_MAX))
        self._owners = itertools.count(1)
        self._main: asyncio.AbstractEventLoop | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def hinted(self) -> bool:
        """Whether this process now holds the lock that shows others that it lives: its claims are to be marked so."""
        return self._board.read("proof") > self._clock() - SURE_S

    def sure(self) -> bool:
        """Tell whether nobody can take this process for dead: without a lock, or with a fresh proof of it.

        While it is not sure, it must start nothing. It need not give anything up before its claims' deadlines.
        """
        return self._board.read("proof") < 0 or self.hinted

    @property
    def able(self) -> bool:
        """Whether renewals have worked lately: who cannot keep a claim must not take one."""
        recent = max(self._times.ttl / 2, self._times.renew_every + self._times.attempt_timeout)
        return self._board.read("renewed") > self._clock() - recent

    def doing(self, who: Blocker) -> AbstractContextManager[None]:
        """Show a call as under way for as long as the body lasts: it may be what blocks the main loop."""
        return nullcontext() if self._lookout is None else self._lookout.doing.call(who)

    async def ready(self, *, within: float) -> bool:
        """Return when it is able to keep claims, or False after so many seconds."""
        end = self._clock() + within
        while not self.able:
            if self._clock() > end:
                return False
            await asyncio.sleep(READY_LOOK_S)
        return True

    def start(self) -> None:
        """Start whoever renews; call it from the main loop. Claims are kept from `hold` on, even before it is ready."""
        self._main = asyncio.get_running_loop()
        self._board.write("tick", self._clock())
        if self._lookout is not None:
            self._lookout.start()
        self._link.start(hear=self._hear, greet=self._holding)
        self._ticker = self._main.create_task(self._tick(), name="claim-keeper-tick")

    async def aclose(self) -> None:
        """End the renewals. Claims still held are left to their owner or to lapse."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait({self._ticker})
        for held in list(self._held.values()):
            self.drop(held)
        await self._link.aclose()
        if self._lookout is not None:
            self._lookout.close()
        self._board.close()

    def hold(
        self, claim: Claim, *, began: float, on_lost: Callable[[str], None], on_news: Callable[[News], None]
    ) -> Held:
        """Keep a claim that was requested at `began` (of the keeper's clock) alive from now on.

        Raises:
            TooManyClaims: if this process holds tens of thousands already.
        """
        if not self._slots:
            raise TooManyClaims
        deadline = self._times.trusted_until(began)
        held = Held(claim, deadline, on_lost, on_news, slot=self._slots.pop(), owner=next(self._owners))
        self._held[claim.claim_id] = held
        self._link.send(_hold(held))
        self._arm(held)
        return held

    def drop(self, held: Held) -> None:
        """Stop renewing a claim, because it was given up or its run has ended."""
        if held.timer is not None:
            held.timer.cancel()
        if self._held.pop(held.claim.claim_id, None) is not None:
            self._slots.append(held.slot)
            self._link.send(["drop", held.claim.claim_id])

    def trusted(self, held: Held) -> bool:
        """Tell whether nobody else can hold the thread yet."""
        return not held.lost and self._clock() < self._deadline(held)

    def look(self, held: Held) -> None:
        """Renew this claim at once, to learn news that a nudge hinted at."""
        self._link.send(["look", held.claim.claim_id])

    def stats(self) -> KeeperStats:
        """Return what this keeper is doing; call it before it is closed."""
        renewed_at = self._board.read("renewed")
        return KeeperStats(
            held=len(self._held),
            renewed=int(self._board.read("renewals")),
            failed=int(self._board.read("failures")),
            age_s=max(0.0, self._clock() - renewed_at) if renewed_at else None,
            lost=dict(self._lost),
        )

    def _deadline(self, held: Held) -> float:
        """Return until when the claim is trusted; what was once read counts, whoever has the slot now."""
        if held.claim.claim_id in self._held:
            held.deadline = max(held.deadline, self._board.deadline(held.slot, held.owner))
        return held.deadline

    def _holding(self) -> Sequence[Line]:
        return [_hold(held) for held in self._held.values() if self.trusted(held)]

    def _arm(self, held: Held) -> None:
        assert self._main is not None
        delay = max(0.0, held.deadline - self._clock())
        held.timer = self._main.call_later(delay, self._check, held)

    def _check(self, held: Held) -> None:
        """End trust when the deadline has really come; a renewal may have moved it since the timer was set."""
        if held.claim.claim_id not in self._held:
            return
        if self.trusted(held):
            self._arm(held)
        else:
            self._lose(held, self._why())

    def _why(self) -> str:
        return "storage" if self._board.read("failing") else "no renewal in time"

    def _lose(self, held: Held, why: str) -> None:
        if held.lost:
            return
        held.lost = True
        self._lost[why] += 1
        self.drop(held)
        log.warning("claim_lost", thread=held.claim.thread, fence=held.claim.fence, why=why)
        held.on_lost(why)

    def _hear(self, line: Line) -> None:
        """Take what a renewal brought; a claim that was given up meanwhile is gone from the store, but not lost."""
        kind, claim_id, *rest = line
        held = self._held.get(claim_id)
        if held is None:
            return
        if kind == "lost":
            self._lose(held, "taken over")
        elif kind == "news":
            stop, waiting = rest
            held.on_news(News(stop, waiting))

    async def _tick(self) -> None:
        """Show that the main loop lives, and end trust that has run out.

        The loop's timers stand still while the machine sleeps; the clock of claims does not.
        """
        ticked = self._clock()
        while True:
            self._board.write("tick", self._clock())
            if self._lookout is not None:
                self._lookout.tick()
            if (paused := self._clock() - ticked) > RESUMED_AFTER_S:
                log.info("loop_resumed", seconds=round(paused, 1))
            ticked = self._clock()
            for held in list(self._held.values()):
                if not self.trusted(held):
                    self._lose(held, self._why())
            await asyncio.sleep(TICK_S)


def _hold(held: Held) -> Line:
    claim = held.claim
    return ["hold", held.slot, held.owner, claim.thread, claim.claim_id, claim.fence, held.deadline]
