"""Keeps a process's claims alive from a thread of its own, and ends trust in them in time.

Renewals run in another thread with its own loop and connection, so that a tool that blocks the main loop loses nobody's
claim. Trust ends on the local clock, by a timer of the main loop that waits for no database.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from threadhold.claims.claim import Claim, ClaimTimes, Renewal
from threadhold.claims.clock import Clock, now
from threadhold.claims.ports import Renewer

log = structlog.get_logger(__name__)

BATCH_MAX = 500
# A main loop that has not ticked for this long is dead: its claims are left to lapse.
LOOP_DEAD_AFTER_S = 60.0
BUSY_RETRY_S = 0.05
TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """What a renewal brought along for the holder."""

    stop: bool
    waiting: int


@dataclass(slots=True, eq=False)
class Held:
    """A claim in our hands. `lost` is set once, and a lost claim is never renewed again.

    `on_lost` and `on_news` are called in the main loop.
    """

    claim: Claim
    deadline: float
    on_lost: Callable[[str], None]
    on_news: Callable[[News], None]
    lost: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class Keeper:
    """Holds claims for one process.

    Args:
        renewer: renews in the store; used from the keeper's thread only.
        times: ttl, interval and margin.
        clock: seconds that only grow; a parameter for tests.
    """

    def __init__(self, renewer: Renewer, *, times: ClaimTimes, clock: Clock = now) -> None:
        self._renewer = renewer
        self._times = times
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._ticked = clock()
        self._main: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._asked: deque[str] = deque()
        self._closing = False
        self._failing = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="claim-keeper", daemon=True)
        self._ticker: asyncio.Task[None] | None = None

    # In the main loop

    def start(self) -> None:
        """Start the thread; call it from the main loop."""
        self._main = asyncio.get_running_loop()
        self._ticker = self._main.create_task(self._tick(), name="claim-keeper-tick")
        self._thread.start()
        self._ready.wait()

    async def aclose(self) -> None:
        """End the thread. Claims still held are left to their owner or to lapse."""
        self._closing = True
        self._poke()
        if self._ticker is not None:
            self._ticker.cancel()
        await asyncio.to_thread(self._thread.join, 5.0)
        for held in list(self._held.values()):
            self.drop(held)

    def hold(
        self, claim: Claim, *, began: float, on_lost: Callable[[str], None], on_news: Callable[[News], None]
    ) -> Held:
        """Keep a claim that was requested at `began` (of the keeper's clock) alive from now on."""
        held = Held(claim, self._times.trusted_until(began), on_lost, on_news)
        self._held[claim.claim_id] = held
        self._arm(held)
        return held

    def drop(self, held: Held) -> None:
        """Stop renewing a claim, because it was given up or its run has ended."""
        self._held.pop(held.claim.claim_id, None)
        if held.timer is not None:
            held.timer.cancel()

    def trusted(self, held: Held) -> bool:
        """Tell whether nobody else can hold the thread yet."""
        return not held.lost and self._clock() < held.deadline

    def look(self, held: Held) -> None:
        """Renew this claim at once, to learn news that a nudge hinted at."""
        self._asked.append(held.claim.claim_id)
        self._poke()

    def _arm(self, held: Held) -> None:
        assert self._main is not None
        delay = max(0.0, held.deadline - self._clock())
        held.timer = self._main.call_later(delay, self._check, held)

    def _check(self, held: Held) -> None:
        """End trust when the deadline has really come; a renewal may have moved it since the timer was set."""
        if held.claim.claim_id not in self._held:
            return
        if self._clock() >= held.deadline:
            self._lose(held, "no renewal in time")
        else:
            self._arm(held)

    def _lose(self, held: Held, why: str) -> None:
        if held.lost:
            return
        held.lost = True
        self.drop(held)
        log.warning("claim_lost", thread=held.claim.thread, fence=held.claim.fence, why=why)
        held.on_lost(why)

    async def _tick(self) -> None:
        while True:
            self._ticked = self._clock()
            for held in list(self._held.values()):
                # The loop's timers stand still while the machine sleeps; the clock of claims does not.
                if self._ticked >= held.deadline:
                    self._lose(held, "no renewal in time")
            await asyncio.sleep(TICK_S)

    def _poke(self) -> None:
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    # In the keeper's thread

    def _run_thread(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._ready.set()
        due = self._clock()
        while not self._closing:
            asked = self._take_asked()
            if self._clock() >= due:
                renewed = await self._renew(list(self._held.values()))
                due = self._clock() + (self._times.renew_every if renewed else self._times.retry_after)
            elif asked:
                await self._renew(asked)
            await self._sleep(due - self._clock())
        await self._renewer.reset()

    def _take_asked(self) -> list[Held]:
        ids = {self._asked.popleft() for _ in range(len(self._asked))}
        return [held for id in ids if (held := self._held.get(id)) is not None]

    async def _sleep(self, seconds: float) -> None:
        assert self._wake is not None
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.001, seconds))
        except TimeoutError:
            return
        self._wake.clear()

    async def _renew(self, holding: Sequence[Held]) -> bool:
        """Renew in batches; returns False when one failed, to try again sooner."""
        if self._clock() - self._ticked > LOOP_DEAD_AFTER_S:
            log.error("main_loop_dead", seconds=round(self._clock() - self._ticked, 1), claims=len(holding))
            return True
        batches = [holding[i : i + BATCH_MAX] for i in range(0, len(holding), BATCH_MAX)] or [[]]
        results = [await self._renew_batch(batch) for batch in batches]
        return all(results)

    async def _renew_batch(self, batch: Sequence[Held]) -> bool:
        began = self._clock()
        try:
            async with asyncio.timeout(self._times.attempt_timeout):
                renewals = await self._renewer.renew([held.claim for held in batch])
        except Exception as error:
            self._failed(error, len(batch))
            await self._renewer.reset()
            return False
        if self._failing:
            self._failing = False
            log.info("renewal_recovered")
        by_id = {held.claim.claim_id: held for held in batch}
        for renewal in renewals:
            self._settle(by_id[renewal.claim_id], renewal, began)
        if any(renewal.result == "busy" for renewal in renewals):
            await asyncio.sleep(BUSY_RETRY_S)
            return False
        return True

    def _settle(self, held: Held, renewal: Renewal, began: float) -> None:
        """Act on what the store says of one claim."""
        if held.lost or self._main is None or self._main.is_closed():
            return
        if renewal.result == "lost":
            self._main.call_soon_threadsafe(self._lose_if_held, held)
            return
        # An answer that comes after trust has ended counts for nothing: the run is being cancelled.
        if renewal.result == "renewed" and self._clock() < held.deadline:
            held.deadline = max(held.deadline, self._times.trusted_until(began))
        if renewal.stop or renewal.waiting:
            self._main.call_soon_threadsafe(held.on_news, News(renewal.stop, renewal.waiting))

    def _lose_if_held(self, held: Held) -> None:
        """A claim that was given up meanwhile is gone from the store, but not lost."""
        if held.claim.claim_id in self._held:
            self._lose(held, "taken over")

    def _failed(self, error: Exception, claims: int) -> None:
        """Say it once per outage, not once per try."""
        if not self._failing:
            self._failing = True
            log.warning("renewal_failed", error=type(error).__name__, detail=str(error)[:200], claims=claims)
