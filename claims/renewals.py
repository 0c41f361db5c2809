"""Renews a process's claims, in any loop: a process of its own hosts it, so that no tool can hold it up."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import structlog

from threadhold.claims.board import Board
from threadhold.claims.claim import Claim, ClaimTimes, Renewal
from threadhold.claims.clock import Clock, now
from threadhold.claims.ports import Line, Renewer

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 500
# Well below the time for which a proof counts.
PROVE_EVERY_S: Final = 0.75
# A main loop that has not ticked for this long is dead: its claims are left to lapse.
LOOP_DEAD_AFTER_S: Final = 60.0
FROZEN_LOOK_S: Final = 0.1


class Watched(Protocol):
    """The process whose claims these are."""

    def frozen(self) -> bool:
        """Tell whether it has been stopped from running."""
        ...

    def blocked_s(self) -> float:
        """Return for how many seconds its main loop has not ticked, although it could have."""
        ...


@dataclass(slots=True, eq=False)
class Kept:
    """A claim that is renewed until its deadline comes, and never after."""

    claim: Claim
    slot: int
    owner: int
    deadline: float


class Renewals:
    """Renews what it is told to, and publishes how long each claim may be trusted.

    Args:
        renewer: renews in the store.
        times: ttl, interval and margin.
        board: where deadlines and proofs are published.
        watched: the process whose claims these are.
        tell: passes a line to it and returns False if it cannot take one now.
        clock: seconds that only grow; a parameter for tests.
    """

    def __init__(
        self,
        renewer: Renewer,
        *,
        times: ClaimTimes,
        board: Board,
        watched: Watched,
        tell: Callable[[Line], bool],
        clock: Clock = now,
    ) -> None:
        self._renewer = renewer
        self._times = times
        self._board = board
        self._watched = watched
        self._tell = tell
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._asked: set[str] = set()
        self._gone: list[str] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._failing = False
        self._dead = False
        self._hinted: bool | None = None
        self._due = 0.0
        self._proven = 0.0

    def take(self, line: Line) -> None:
        """Take a line of the keeper's: hold, drop or look."""
        match line:
            case ["hold", slot, owner, thread, claim_id, fence, deadline]:
                claim = Claim(thread=thread, claim_id=claim_id, fence=fence)
                self._kept[claim_id] = Kept(claim, slot, owner, deadline)
            case ["drop", claim_id]:
                self._kept.pop(claim_id, None)
            case ["look", claim_id]:
                self._asked.add(claim_id)
                self._wake.set()

    def close(self) -> None:
        """End `run` soon. Claims still kept are left to their owner or to lapse."""
        self._closing = True
        self._wake.set()

    async def run(self) -> None:
        """Renew until closed."""
        try:
            while not self._closing:
                await self._sleep(await self._step())
        finally:
            await self._renewer.reset()

    async def _step(self) -> float:
        """Do what is due, and return in how many seconds something is again."""
        if self._watched.frozen():
            # Who cannot run does not deserve its claims, and would not notice that it lost them.
            return FROZEN_LOOK_S
        asked, self._asked = self._asked, set()
        if self._clock() >= self._due:
            await self._renew_all()
        elif asked:
            await self._renew([kept for id in asked if (kept := self._kept.get(id)) is not None])
        elif self._renewer.hinted and self._clock() >= self._proven + PROVE_EVERY_S:
            await self._prove()
        self._gone = [id for id in self._gone if not self._tell(["lost", id])]
        proof_due = self._proven + PROVE_EVERY_S if self._renewer.hinted else self._due
        return max(0.001, min(self._due, proof_due) - self._clock())

    async def _renew_all(self) -> None:
        renewed = await self._renew(list(self._kept.values()))
        self._due = self._clock() + (self._times.renew_every if renewed else self._times.retry_after)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _renew(self, keeping: Sequence[Kept]) -> bool:
        """Renew in batches; returns False when one failed, to try again sooner."""
        if self._loop_dead(len(keeping)):
            return True
        alive = [kept for kept in keeping if not self._expired(kept)]
        batches = [alive[i : i + BATCH_MAX] for i in range(0, len(alive), BATCH_MAX)] or [[]]
        results = [await self._renew_batch(batch) for batch in batches]
        return all(results)

    def _loop_dead(self, claims: int) -> bool:
        blocked, was = self._watched.blocked_s(), self._dead
        self._dead = blocked > LOOP_DEAD_AFTER_S
        if self._dead and not was:
            log.error("main_loop_dead", seconds=round(blocked, 1), claims=claims)
        return self._dead

    def _expired(self, kept: Kept) -> bool:
        """Forget a claim that is not trusted any more: its run is being cancelled."""
        if self._clock() < kept.deadline:
            return False
        self._kept.pop(kept.claim.claim_id, None)
        return True

    async def _renew_batch(self, batch: Sequence[Kept]) -> bool:
        began = self._clock()
        try:
            async with asyncio.timeout(self._times.attempt_timeout):
                renewals = await self._renewer.renew(
                    [kept.claim for kept in batch], blocked_s=self._watched.blocked_s()
                )
        except Exception as error:
            self._count("failures")
            await self._failed(error)
            return False
        self._count("renewals")
        self._succeeded(began)
        by_id = {kept.claim.claim_id: kept for kept in batch}
        for renewal in renewals:
            self._settle(by_id[renewal.claim_id], renewal, began)
        return all(renewal.result != "busy" for renewal in renewals)

    def _count(self, what: Literal["renewals", "failures"]) -> None:
        """Count a statement; a process that was started anew goes on from where the one before it was."""
        self._board.write(what, self._board.read(what) + 1)

    async def _prove(self) -> None:
        """Publish between two renewals that the connection stands, and with it the lock."""
        began = self._clock()
        try:
            async with asyncio.timeout(self._times.attempt_timeout):
                await self._renewer.prove()
        except Exception as error:
            await self._failed(error)
            return
        self._succeeded(began)

    def _settle(self, kept: Kept, renewal: Renewal, began: float) -> None:
        """Act on what the store says of one claim, unless it was given up meanwhile."""
        id = renewal.claim_id
        if self._kept.get(id) is not kept:
            return
        if renewal.result == "lost":
            del self._kept[id]
            self._gone.append(id)
            return
        # An answer that comes after trust has ended counts for nothing: the run is being cancelled.
        if renewal.result == "renewed" and self._clock() < kept.deadline:
            kept.deadline = max(kept.deadline, self._times.trusted_until(began))
            self._board.extend(kept.slot, kept.owner, kept.deadline)
        if renewal.stop or renewal.waiting:
            # Said again with each renewal, so that it may be dropped while nobody listens.
            self._tell(["news", id, renewal.stop, renewal.waiting])

    def _succeeded(self, began: float) -> None:
        self._proven = began
        self._board.write("failing", 0.0)
        self._board.write("renewed", began)
        # Below 0 says that there is no lock to be proven.
        self._board.write("proof", began if self._renewer.hinted else -1.0)
        if self._failing:
            self._failing = False
            log.info("renewal_recovered")
        if self._hinted is not self._renewer.hinted:
            self._hinted = self._renewer.hinted
            log.info("keeper_ready", hinted=self._hinted)

    async def _failed(self, error: Exception) -> None:
        """Say it once per outage, not once per try."""
        self._board.write("failing", self._clock())
        if not self._failing:
            self._failing = True
            log.warning(
                "renewal_failed",
                error=type(error).__name__,
                detail=str(error)[:200],
                claims=len(self._kept),
            )
        await self._renewer.reset()
        # Whatever is wrong with the connection, claims are renewed over another at once; a renewal that failed itself
        # sets a time of its own.
        self._due = self._clock()
