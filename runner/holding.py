"""Holds a thread for code of one's own: the same claims, run records and stops as a worker's, without an agent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import structlog

from threadhold.claims import Claim, Held, Keeper, News
from threadhold.claims.clock import Clock, now
from threadhold.runner.credentials import PROCESS
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.machine import FailReason, RunStatus
from threadhold.runner.ports import Wires
from threadhold.runner.records import Principal, Start
from threadhold.runner.work_ports import HoldStore

log = structlog.get_logger(__name__)

READY_S_MAX: Final = 10.0
END_TRIES: Final = 3
END_RETRY_S: Final = 0.5
ERROR_CHARS_MAX: Final = 2_000


@dataclass(slots=True, eq=False)
class ThreadClaim:
    """A thread in our hands.

    `lost` is set when somebody asked for a stop or the claim is lost: finish at once then. `fence` grows with every
    claim of the thread; hand it to whatever must refuse an older holder.
    """

    thread: str
    run: str
    fence: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    why: str | None = None

    def lose(self, why: str) -> None:
        """Say that the time is over."""
        self.why = self.why or why
        self.lost.set()


class Holding:
    """Takes threads for code of this process.

    Args:
        work: the store.
        wires: hints to other processes.
        keeper: makes the keeper of the claims; called and started when the first one is taken.
        clock: the keeper's clock.
    """

    def __init__(
        self, *, work: HoldStore, wires: Wires, keeper: Callable[[], Keeper], clock: Clock = now
    ) -> None:
        self._work = work
        self._wires = wires
        self._make = keeper
        self._clock = clock
        self._keeper: Keeper | None = None

    @asynccontextmanager
    async def claim(self, thread: str, *, by: Principal) -> AsyncIterator[ThreadClaim]:
        """Hold a thread for the body of the `with`; messages that come meanwhile start the run after it.

        Leaving it ends the run as completed, or as failed when the body raised; after a stop as stopped.

        Raises:
            NotFound, Forbidden, ThreadArchived, ThreadBusy, Unavailable.
        """
        keeper = self._started()
        if not await keeper.ready(within=READY_S_MAX):
            raise Unavailable("the claims of this process cannot be renewed; is the database reachable?")
        began = self._clock()
        start = await self._held(thread, by)
        claim = ThreadClaim(thread=thread, run=start.run, fence=start.fence)
        held = keeper.hold(
            Claim(thread=thread, claim_id=start.claim_id, fence=start.fence),
            began=began,
            on_lost=claim.lose,
            on_news=lambda news: _hear(claim, news),
        )
        error: BaseException | None = None
        try:
            yield claim
        except BaseException as raised:
            error = raised
            raise
        finally:
            await asyncio.shield(asyncio.ensure_future(self._end(start, held, keeper, error)))

    async def _held(self, thread: str, by: Principal) -> Start:
        key = str(uuid4())
        try:
            start, nudge = await self._work.hold(thread, by=by, start_key=key)
        except Unavailable:
            # Its answer may have been lost: the same key returns the same claim.
            start, nudge = await self._work.hold(thread, by=by, start_key=key)
        self._wires.announce(nudge)
        return start

    async def _end(self, start: Start, held: Held, keeper: Keeper, error: BaseException | None) -> None:
        """Record how it ended; a claim that was lost leaves that to whoever took it."""
        failure = None
        if isinstance(error, Exception):
            failure = {"type": type(error).__name__, "message": PROCESS.text(str(error))[:ERROR_CHARS_MAX]}
        try:
            for remaining in reversed(range(END_TRIES)):
                with suppress(Unavailable):
                    _, nudge = await self._work.end(
                        start,
                        status=RunStatus.COMPLETED if failure is None else RunStatus.FAILED,
                        reason=None if failure is None else FailReason.ERROR,
                        error=failure,
                        data={},
                    )
                    self._wires.announce(nudge)
                    return
                if remaining:
                    await asyncio.sleep(END_RETRY_S)
            log.warning("hold_not_ended", thread=start.thread, run=start.run)
        except ClaimLost:
            log.warning("hold_fenced", thread=start.thread, run=start.run)
        finally:
            keeper.drop(held)

    def _started(self) -> Keeper:
        if self._keeper is None:
            self._keeper = self._make()
            self._keeper.start()
        return self._keeper

    async def aclose(self) -> None:
        """End the keeper; what is still held lapses."""
        if self._keeper is not None:
            await self._keeper.aclose()


def _hear(claim: ThreadClaim, news: News) -> None:
    if news.stop:
        claim.lose("stop")
