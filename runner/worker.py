"""A worker: takes threads while it has free slots, runs their agents as tasks, and does its share of housekeeping."""

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import uuid4

import structlog

from threadhold.claims import Claim, Held, Keeper, KeeperStats
from threadhold.claims.clock import Clock, now
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LiveLog
from threadhold.runner.app import Threadhold
from threadhold.runner.attempt import Attempt
from threadhold.runner.chores import every
from threadhold.runner.deaths import LOOK_EVERY_S, Deaths
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.journal import Journal
from threadhold.runner.ports import Wires
from threadhold.runner.records import Start
from threadhold.runner.remote import Remote
from threadhold.runner.spans import span
from threadhold.runner.work_ports import WorkStore

log = structlog.get_logger(__name__)

TAKE_EVERY_S: Final = 1.0
REGISTER_EVERY_S: Final = 60.0
AUDIT_EVERY_S: Final = 60.0
SWEEP_BATCH: Final = 100
CLAIM_TRIES: Final = 3
CLAIM_RETRY_S: Final = 0.2
RELEASE_WAIT_S: Final = 5.0
READY_S_MAX: Final = 10.0
SURE_LOOK_S: Final = 0.05
# A sweeper that could not sweep for so long takes it for an outage of the database; holders get time to come back.
OUTAGE_S: Final = 4.0
COMEBACK_S: Final = 3.0
# A run whose claim was lost to an outage of the database waits for so many seconds to say so.
PATIENCE_S: Final = 120.0


@dataclass(slots=True, eq=False)
class Running:
    """An attempt of this worker, with its claim and its task."""

    attempt: Attempt
    held: Held
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStats:
    """What a worker is doing. `dropped` counts live frames that were given up, `broken` what its audits found."""

    running: int
    capacity: int
    dropped: int
    broken: int
    claims: KeeperStats


class Worker:
    """Executes runs of the app's agents.

    Args:
        app: the agents this worker offers; threads of other agents are left to others.
        work: the store.
        wires: hints to other processes.
        live: the live frames.
        keeper: keeps the claims.
        deaths: tells which other workers have died.
        remote: lets executors carry out tools that are bound to some.
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
        deaths: Deaths,
        remote: Remote,
        capacity: int,
        sweep_every: float = 1.0,
        clock: Clock = now,
    ) -> None:
        self.app = app
        self._work = work
        self._wires = wires
        self._live = live
        self._keeper = keeper
        self._deaths = deaths
        self._remote = remote
        self._capacity = capacity
        self._sweep_every = sweep_every
        self._clock = clock
        self._running: dict[str, Running] = {}
        self._claiming = 0
        self._slot_freed = asyncio.Event()
        self._draining = False
        # Live frames that attempts which have ended gave up, and broken invariants that were seen.
        self._dropped = 0
        self._broken = 0
        self._swept = clock()
        self._sweep_from = self._swept
        self._asked_to_leave = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose threads it takes."""
        return self.app.names

    @property
    def free_slots(self) -> int:
        """How many more threads this worker may take now; none while it could not keep their claims."""
        return (
            0
            if self._draining or not self._keeper.able
            else max(0, self._capacity - len(self._running) - self._claiming)
        )

    @property
    def running(self) -> int:
        """How many runs are executing here."""
        return len(self._running)

    def stats(self) -> WorkerStats:
        """Return what this worker is doing; call it before it is closed."""
        dropped = self._dropped + sum(each.attempt.outbox.dropped for each in self._running.values())
        return WorkerStats(
            running=len(self._running),
            capacity=self._capacity,
            dropped=dropped,
            broken=self._broken,
            claims=self._keeper.stats(),
        )

    async def start(self) -> None:
        """Say that this worker is there and begin the housekeeping.

        Raises:
            Unavailable: if the database cannot be reached.
        """
        await self._register()
        self._keeper.start()
        if not await self._keeper.ready(within=READY_S_MAX):
            log.warning("keeper_not_ready", seconds=READY_S_MAX)
        self._loops = [
            # Said again from time to time, in case somebody took this worker for dead while it was frozen.
            asyncio.create_task(every(REGISTER_EVERY_S, self._register, "register_failed"), name="register"),
            asyncio.create_task(every(self._sweep_every, self._sweep, "sweep_failed"), name="sweep"),
            asyncio.create_task(every(LOOK_EVERY_S, self._bury, "deaths_unknown"), name="deaths"),
            asyncio.create_task(every(TAKE_EVERY_S, self._take, "take_failed"), name="take"),
            asyncio.create_task(every(AUDIT_EVERY_S, self._audit, "audit_failed"), name="audit"),
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
            with span("claim", thread=thread) as tell:
                began, start = await self._claim(thread)
                tell(granted=start is not None, run=None if start is None else start.run)
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

    @property
    def leaving(self) -> bool:
        """Whether it takes no more threads, for good."""
        return self._draining

    def leave(self) -> None:
        """Take no more threads."""
        self._draining = True

    async def drained(self) -> None:
        """Return when an operator has asked this worker to leave."""
        await self._asked_to_leave.wait()

    async def drain(self, *, grace: float) -> None:
        """Take no more threads and hand over those that run here.

        A run goes on elsewhere as soon as the tools that it is in have ended. One whose tool still runs after `grace`
        seconds is given up: it is recorded as abandoned, with the cause `drain`.
        """
        self.leave()
        while self._claiming:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if tasks:
            log.info("draining", runs=len(tasks), grace_s=grace)
            for running in list(self._running.values()):
                running.attempt.hand_over()
            await asyncio.wait(tasks, timeout=grace)
        for running in list(self._running.values()):
            running.attempt.interrupt("drain")
        left = {running.task for running in self._running.values() if running.task is not None}
        if left:
            await asyncio.wait(left, timeout=RELEASE_WAIT_S)

    async def aclose(self) -> None:
        """End the housekeeping, what still runs here, and the claims' keeper. Call `drain` first."""
        self.leave()
        tasks = [*self._loops, *(running.task for running in self._running.values() if running.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Unavailable):
            await self._work.unregister()
        await self._remote.aclose()
        await self._deaths.aclose()
        await self._keeper.aclose()

    async def _claim(self, thread: str) -> tuple[float, Start | None]:
        """Claim a thread; a call whose answer was lost is repeated with the same key."""
        key = str(uuid4())
        # Counted from the first try: a repeat returns the start of the first with the expiry it had then.
        began = self._clock()
        for remaining in reversed(range(CLAIM_TRIES)):
            try:
                start, nudge = await self._work.claim(
                    thread, agents=self.app.retries, start_key=key, hinted=self._keeper.hinted
                )
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
        outbox = Outbox(
            self._live,
            thread=start.thread,
            run=start.run,
            fence=start.fence,
            sure=self._keeper.sure,
            holds=lambda: self._work.holds(start),
            admission=start.admission,
        )
        held = self._keeper.hold(
            Claim(thread=start.thread, claim_id=start.claim_id, fence=start.fence),
            began=began,
            on_lost=lambda why: attempt.lose(why),
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
            ready=lambda: self._ready(held),
            doing=self._keeper.doing,
            on_end=lambda: self._keeper.drop(held),
            patience=PATIENCE_S,
            remote=self._remote.tools(start, hosted.tools),
        )
        running = Running(attempt, held)
        self._running[start.claim_id] = running
        log.info(
            "run_claimed",
            thread=start.thread,
            run=start.run,
            agent=start.agent,
            attempt=start.attempt,
            **start.admission,
        )
        running.task = asyncio.create_task(self._execute(running), name=f"run {start.run}")

    async def _execute(self, running: Running) -> None:
        start = running.attempt.start
        try:
            await running.attempt.run()
        finally:
            self._keeper.drop(running.held)
            del self._running[start.claim_id]
            self._dropped += running.attempt.outbox.dropped
            self._slot_freed.set()

    async def _ready(self, held: Held) -> None:
        """Return when a model call or a tool may start: when it is sure that nobody takes this process for dead.

        Raises:
            ClaimLost: the claim is lost meanwhile.
        """
        while not self._keeper.sure():
            if not self._keeper.trusted(held):
                raise ClaimLost(held.claim.thread, held.claim.fence, away=True)
            await asyncio.sleep(SURE_LOOK_S)

    async def _sweep(self) -> None:
        """Take lapsed threads; not right after an outage of the database, which their holders may have had as well."""
        looked = self._clock()
        if looked - self._swept > OUTAGE_S:
            self._sweep_from = looked + COMEBACK_S
        if looked >= self._sweep_from:
            await self._sweep_now()
        else:
            # Any answer will do: it shows that the database is there.
            await self._work.draining()
        self._swept = self._clock()

    async def _sweep_now(self) -> None:
        for nudge in await self._work.sweep(limit=SWEEP_BATCH):
            self._wires.announce(nudge)

    async def _bury(self) -> None:
        """Take the threads of workers that have died, sooner than their claims lapse."""
        if dead := await self._deaths.look():
            log.warning("workers_died", workers=dead)
            for nudge in await self._work.sweep(limit=SWEEP_BATCH, dead=dead):
                self._wires.announce(nudge)

    async def _audit(self) -> None:
        """Say what must never be; nobody has seen it yet, and it is no reason to stop."""
        for broken in await self._work.audited(every=timedelta(seconds=AUDIT_EVERY_S)):
            self._broken += 1
            log.error("invariant_broken", **{name: str(value) for name, value in broken.items()})

    async def _take(self) -> None:
        if await self._work.draining():
            self._asked_to_leave.set()
        if self.free_slots:
            # Whoever waits for a slot may have waited for the keeper.
            self._slot_freed.set()
            threads = await self._work.pending(agents=self.app.names, limit=self.free_slots)
            await asyncio.gather(*(self.attend(thread) for thread in threads))
