"""A worker: takes threads while it has free slots, runs their agents as tasks, and does its share of housekeeping."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import structlog

from threadhold.claims import Claim, Held, Keeper
from threadhold.claims.clock import Clock, now
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LiveLog
from threadhold.runner.app import Threadhold
from threadhold.runner.attempt import Attempt
from threadhold.runner.errors import Unavailable
from threadhold.runner.journal import Journal
from threadhold.runner.ports import Wires, WorkStore
from threadhold.runner.records import Start

log = structlog.get_logger(__name__)

TAKE_EVERY_S: Final = 1.0
REGISTER_EVERY_S: Final = 60.0
SWEEP_BATCH: Final = 100
CLAIM_TRIES: Final = 3
CLAIM_RETRY_S: Final = 0.2
RELEASE_WAIT_S: Final = 5.0


@dataclass(slots=True, eq=False)
class Running:
    """An attempt of this worker, with its claim and its task."""

    attempt: Attempt
    held: Held
    task: asyncio.Task[None] | None = None


class Worker:
    """Executes runs of the app's agents.

    Args:
        app: the agents this worker offers; threads of other agents are left to others.
        work: the store.
        wires: hints to other processes.
        live: the live frames.
        keeper: keeps the claims.
        capacity: how many runs at once; a full worker takes nothing and others do.
        sweep_every: seconds between two looks for lapsed claims.
        clock: the keeper's clock.
    """

    def __init__(
        self,
        app: Threadhold,
        *,
        work: WorkStore,
        wires: Wires,
        live: LiveLog,
        keeper: Keeper,
        capacity: int,
        sweep_every: float = 1.0,
        clock: Clock = now,
    ) -> None:
        self.app = app
        self._work = work
        self._wires = wires
        self._live = live
        self._keeper = keeper
        self._capacity = capacity
        self._sweep_every = sweep_every
        self._clock = clock
        self._running: dict[str, Running] = {}
        self._claiming = 0
        self._slot_freed = asyncio.Event()
        self._draining = False
        self._loops: list[asyncio.Task[None]] = []

    @property
    def free_slots(self) -> int:
        """How many more threads this worker may take now."""
        return 0 if self._draining else max(0, self._capacity - len(self._running) - self._claiming)

    @property
    def running(self) -> int:
        """How many runs are executing here."""
        return len(self._running)

    async def start(self) -> None:
        """Say that this worker is there and begin the housekeeping.

        Raises:
            Unavailable: if the database cannot be reached.
        """
        await self._register()
        self._keeper.start()
        self._loops = [
            # Said again from time to time, in case somebody took this worker for dead while it was frozen.
            asyncio.create_task(
                self._every(REGISTER_EVERY_S, self._register, "register_failed"), name="register"
            ),
            asyncio.create_task(self._every(self._sweep_every, self._sweep, "sweep_failed"), name="sweep"),
            asyncio.create_task(self._every(TAKE_EVERY_S, self._take, "take_failed"), name="take"),
        ]

    async def _register(self) -> None:
        await self._work.register(agents=self.app.names, capacity=self._capacity)

    async def slot(self) -> None:
        """Return when there is a free slot."""
        while self.free_slots == 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()

    async def attend(self, thread: str) -> bool:
        """Look at a thread: take it and start its pending run, if there is one for this worker and a slot is free."""
        if self.free_slots == 0:
            return False
        self._claiming += 1
        try:
            began, start = await self._claim(thread)
            if start is not None:
                self._launch(start, began)
            return start is not None
        finally:
            self._claiming -= 1
            self._slot_freed.set()

    def poke(self, thread: str) -> None:
        """Look for news of a thread that runs here: a stop, or a message."""
        for running in self._running.values():
            if running.attempt.start.thread == thread:
                self._keeper.look(running.held)

    async def drain(self, *, grace: float) -> None:
        """Take no more threads, wait up to `grace` seconds for the runs here, then give up those that are left."""
        self._draining = True
        while self._claiming:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if tasks:
            log.info("draining", runs=len(tasks), grace_s=grace)
            await asyncio.wait(tasks, timeout=grace)
        for running in list(self._running.values()):
            running.attempt.interrupt("drain")
        left = {running.task for running in self._running.values() if running.task is not None}
        if left:
            await asyncio.wait(left, timeout=RELEASE_WAIT_S)

    async def aclose(self) -> None:
        """End the housekeeping, what still runs here, and the claims' keeper. Call `drain` first."""
        self._draining = True
        tasks = [*self._loops, *(running.task for running in self._running.values() if running.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Unavailable):
            await self._work.unregister()
        await self._keeper.aclose()

    async def _claim(self, thread: str) -> tuple[float, Start | None]:
        """Claim a thread; a call whose answer was lost is repeated with the same key."""
        key = str(uuid4())
        # Counted from the first try: a repeat returns the start of the first with the expiry it had then.
        began = self._clock()
        for remaining in reversed(range(CLAIM_TRIES)):
            try:
                start, nudge = await self._work.claim(thread, agents=self.app.names, start_key=key)
            except Unavailable as error:
                log.warning("claim_failed", thread=thread, error=str(error))
                if remaining:
                    await asyncio.sleep(CLAIM_RETRY_S)
                continue
            if nudge is not None:
                self._wires.announce(nudge)
            return began, start
        return began, None

    def _launch(self, start: Start, began: float) -> None:
        outbox = Outbox(self._live, thread=start.thread, run=start.run, fence=start.fence)
        held = self._keeper.hold(
            Claim(thread=start.thread, claim_id=start.claim_id, fence=start.fence),
            began=began,
            on_lost=lambda why: attempt.interrupt("lost claim"),
            on_news=lambda news: attempt.hear(news),
        )
        journal = Journal(
            self._work,
            self._wires,
            start=start,
            outbox=outbox,
            trusted=lambda: self._keeper.trusted(held),
            on_stop=lambda: attempt.interrupt("stop"),
        )
        hosted = self.app.hosted(start.agent)
        attempt = Attempt(
            start=start,
            hosted=hosted,
            journal=journal,
            outbox=outbox,
            on_end=lambda: self._keeper.drop(held),
        )
        running = Running(attempt, held)
        self._running[start.claim_id] = running
        log.info("run_claimed", thread=start.thread, run=start.run, agent=start.agent, attempt=start.attempt)
        running.task = asyncio.create_task(self._execute(running), name=f"run {start.run}")

    async def _execute(self, running: Running) -> None:
        start = running.attempt.start
        try:
            await running.attempt.run()
        finally:
            if running.attempt.cause == "drain" and not running.attempt.ended:
                await self._give_up(running.attempt)
            self._keeper.drop(running.held)
            del self._running[start.claim_id]
            self._slot_freed.set()

    async def _give_up(self, attempt: Attempt) -> None:
        """Give the claim of a drained run back at once, rather than let it lapse."""
        try:
            nudge = await self._work.release(attempt.start, cause="drain")
        except Unavailable as error:
            log.warning("release_failed", run=attempt.start.run, error=str(error))
            return
        if nudge is not None:
            self._wires.announce(nudge)

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]], failed: str) -> None:
        """Do something at intervals for ever; a failure is logged once per outage."""
        failing = False
        while True:
            await asyncio.sleep(seconds)
            try:
                await act()
                failing = False
            except Exception as error:
                if not failing:
                    log.warning(failed, error=type(error).__name__, detail=str(error)[:200])
                failing = True

    async def _sweep(self) -> None:
        for nudge in await self._work.sweep(limit=SWEEP_BATCH):
            log.warning("claim_lapsed", thread=nudge.thread)
            self._wires.announce(nudge)

    async def _take(self) -> None:
        if self.free_slots:
            threads = await self._work.pending(agents=self.app.names, limit=self.free_slots)
            await asyncio.gather(*(self.attend(thread) for thread in threads))
