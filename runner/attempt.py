"""One attempt: one uninterrupted stretch of a run under one claim, as one asyncio task."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import structlog
from pydantic_ai import CancellationToken, DeferredToolResults
from pydantic_ai.messages import ModelMessage

from threadhold.claims import Blocker, News
from threadhold.fanout.outbox import Outbox
from threadhold.runner.admission import Admission
from threadhold.runner.app import Hosted
from threadhold.runner.budget import BudgetExhausted
from threadhold.runner.credentials import Secrets
from threadhold.runner.errors import ClaimLost, Rejected, RunFailure, Unavailable
from threadhold.runner.history import Continuation, HistoryUnsafe, continuable, loaded, request_of
from threadhold.runner.identity import identity_of
from threadhold.runner.journal import Journal
from threadhold.runner.machine import RunStatus
from threadhold.runner.observer import Observer
from threadhold.runner.pausing import requests_of
from threadhold.runner.places import place_of
from threadhold.runner.records import NewFact, Start
from threadhold.runner.remote import RemoteTools
from threadhold.runner.resuming import has_rejected, without_cut_off
from threadhold.runner.segment import Segment, failed, run_segment, stopped
from threadhold.runner.spans import span
from threadhold.runner.spending import Spending

log = structlog.get_logger(__name__)

# Why the agent was interrupted; a later one in this order overrides an earlier one.
CAUSES: Final = ("budget", "hand over", "stop", "drain", "lost claim")
Cause = Literal["budget", "hand over", "stop", "drain", "lost claim"]
RELEASE_RETRY_S: Final = 0.5


@dataclass(slots=True, eq=False)
class Attempt:
    """Runs an agent under a claim until the run ends, pauses, is stopped or handed over, or the claim is lost.

    Args:
        start: the run and its claim.
        hosted: the agent.
        journal: where facts and history go.
        outbox: where live frames go.
        ready: returns when a model call or a tool may start.
        doing: shows a tool's call as under way in this process.
        on_end: called as soon as the claim is given up, when there is none to keep any more.
        patience: for how many seconds a run whose claim was lost to an outage of the database waits to say so.
        remote: lets executors carry out tools; None if none is bound to one.
    """

    start: Start
    hosted: Hosted
    journal: Journal
    outbox: Outbox
    ready: Callable[[], Awaitable[None]]
    doing: Callable[[Blocker], contextlib.AbstractContextManager[None]]
    on_end: Callable[[], None]
    patience: float
    remote: RemoteTools | None = None
    cause: Cause | None = None
    why_lost: str | None = None
    outcome: str = "lost"
    """How it came out, as far as this worker could record it."""
    _token: CancellationToken = field(default_factory=CancellationToken, init=False)
    _making: asyncio.Future[Any] | None = field(default=None, init=False)
    _observer: Observer | None = field(default=None, init=False)
    _segments: int = field(default=0, init=False)
    _cut_off: bool = field(default=False, init=False)
    _exhausted: BudgetExhausted | None = field(default=None, init=False)

    def interrupt(self, cause: Cause) -> None:
        """Cancel the agent, or the making of its dependencies."""
        if self.cause is None or CAUSES.index(cause) > CAUSES.index(self.cause):
            self.cause = cause
        self._cut_off = True
        self._token.cancel()
        if self._making is not None:
            self._making.cancel()

    def lose(self, why: str) -> None:
        """Cancel the agent because its claim is lost: nothing may be written any more."""
        self.why_lost = why
        self.interrupt("lost claim")

    def hand_over(self) -> None:
        """Let another worker go on with the run: what the model is saying is cut off, what tools are doing may end."""
        if self._observer is None or self._making is not None:
            self.interrupt("hand over")
            return
        self._observer.leave()
        if self._observer.asking:
            self.interrupt("hand over")
        else:
            self.cause = self.cause or "hand over"

    def _time_is_up(self, error: BudgetExhausted) -> None:
        """Cancel the agent because it has worked for as long as it may."""
        self._exhausted = error
        self.interrupt("budget")

    def hear(self, news: News) -> None:
        """Take news that a renewal brought."""
        if news.waiting:
            self.journal.waiting = True
        if news.stop:
            self.interrupt("stop")

    async def run(self) -> None:
        """Run to the end. Raises nothing: an attempt that cannot record its end leaves that to the sweep."""
        start = self.start
        with (
            structlog.contextvars.bound_contextvars(thread=start.thread, run=start.run, **start.admission),
            span(
                "attempt",
                thread=start.thread,
                run=start.run,
                agent=start.agent,
                attempt=start.attempt,
                principal=start.principal,
                interface=start.interface,
                environment=start.environment,
                budget=start.budget,
            ) as tell,
            Secrets(self.hosted.credentials, identity_of(self.start)) as secrets,
        ):
            self.journal.scrubber = secrets.known_only
            await self._run_to_the_end()
            tell(outcome=self.outcome)

    async def _run_to_the_end(self) -> None:
        try:
            await self._run_or_fail()
        except ClaimLost as error:
            log.warning("attempt_fenced", thread=self.start.thread, run=self.start.run, detail=str(error))
            if error.away:
                self.why_lost = "storage"
            await self._tell_loss()
        except Exception as error:
            detail = str(error)[:200]
            log.error("attempt_broken", run=self.start.run, error=type(error).__name__, detail=detail)
        finally:
            await self.outbox.aclose()

    async def _run_or_fail(self) -> None:
        """Run, and end a run that could not be carried through as failed."""
        try:
            await self._run()
        except ClaimLost:
            raise
        except Exception as error:
            await self._end(failed(error))

    async def _run(self) -> None:
        spending = self._spending()
        try:
            history, results = await self._begin(spending)
            if results is not None and self.hosted.on_reject == "fail" and has_rejected(results):
                await self._end(failed(Rejected()))
                return
            await self._work(history, results, spending)
        finally:
            if spending is not None:
                spending.close()
                await spending.settled()

    async def _work(
        self,
        history: list[ModelMessage],
        results: DeferredToolResults | None,
        spending: Spending | None,
    ) -> None:
        """Run the agent until the attempt is over."""
        observer = Observer(
            start=self.start,
            journal=self.journal,
            outbox=self.outbox,
            ready=self.ready,
            doing=lambda tool: self.doing(place_of(self.hosted.agent, tool)),
            admission=Admission.under(self.hosted.policy, start=self.start, terms=self.hosted.terms),
            spending=spending,
            window=self.hosted.window,
            tools=self.hosted.tools,
        )
        self._observer = observer
        while True:
            segment = await self._within_time(await self._segment(observer, history, results))
            if spending is not None:
                spending.ended_by(segment.raised)
            over = await self._left(segment, observer) or await self._paused(segment)
            if over or await self._tried_again(segment) or await self._end(segment):
                return
            history, results = await self._go_on(segment), None
            if self.cause == "hand over":
                await self._hand_over(None)
                return

    def _spending(self) -> Spending | None:
        budget = self.hosted.budget_named(self.start.budget)
        if budget is None:
            return None
        return Spending(
            budget,
            counted=self.hosted.counted,
            journal=self.journal,
            on_timeout=self._time_is_up,
            clock=time.monotonic,
        )

    async def _within_time(self, segment: Segment) -> Segment:
        """Return how the agent came out, which was cut off if its time was up."""
        if self.cause != "budget" or self._exhausted is None or segment.status is not RunStatus.STOPPED:
            return segment
        data = {"call": "time", "budget": self.start.budget, **self._exhausted.data}
        await self.journal.note(NewFact(kind="budget_exhausted", data=data))
        return failed(self._exhausted, segment.messages)

    async def _begin(
        self, spending: Spending | None
    ) -> tuple[list[ModelMessage], DeferredToolResults | None]:
        """Record the start, before the agent runs, and return what to run it with.

        A run's first attempt records its input with that. A later one finds it in the history; what waits in the inbox
        by then is shown after the results of the calls that were decided on, if there are any.
        """
        self.outbox.start(attempt=self.start.attempt, seq=self.start.seq)
        given = self.start.inbox if self.start.fresh else ()
        requests = [request_of(message) for message in given]
        spend = None if spending is None else spending.start
        stored, limits = await asyncio.gather(
            self.journal.history(),
            self.journal.note(self._started(), delivered=given, shown=requests, spend=spend),
        )
        if spending is not None:
            spending.started(limits)
        if self.start.fresh:
            continuation = await self._continuation(stored)
            return [*continuation.messages, *requests], None
        continuation = await self._continuation(stored)
        self.journal.waiting |= bool(self.start.inbox)
        return continuation.messages, continuation.results

    async def _continuation(self, stored: list[Any]) -> Continuation:
        try:
            history = loaded(stored)
        except ValueError as error:
            raise HistoryUnsafe(str(error)) from error
        ledger = await self.journal.ledger(history)
        return continuable(history, ledger, resuming=not self.start.fresh)

    def _started(self) -> NewFact:
        data = {"agent": self.start.agent, "by": self.start.principal, "attempt": self.start.attempt}
        return NewFact(kind="run_started" if self.start.fresh else "attempt_started", data=data)

    async def _segment(
        self, observer: Observer, history: list[ModelMessage], results: DeferredToolResults | None
    ) -> Segment:
        """Run the agent once, with dependencies made for this attempt."""
        self._segments += 1
        try:
            deps = await self._deps()
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if self.cause is not None:
                return stopped()
            if isinstance(error, asyncio.CancelledError):
                raise
            return failed(error)
        return await run_segment(
            self.hosted.agent,
            history,
            results=results,
            deps=deps,
            run_id=f"{self.start.run}:{self.start.attempt}:{self._segments}",
            thread=self.start.thread,
            observer=observer,
            token=self._token,
            interrupted=lambda: self._cut_off,
            beside=() if self.remote is None else (self.remote,),
        )

    async def _end(self, segment: Segment) -> bool:
        """Record the end; False if the run goes on instead, because a message waits."""
        ended = await self.journal.end(
            segment.status,
            reason=segment.reason,
            error=segment.error,
            messages=segment.messages,
            output=segment.output,
        )
        if ended.outcome == "continue":
            return False
        self.outcome = str(ended.status)
        self.on_end()
        log.info("run_ended", run=self.start.run, status=ended.status, reason=segment.reason)
        return True

    async def _go_on(self, segment: Segment) -> list[ModelMessage]:
        """Take the messages that came as the run was about to end, and return the history that shows them."""
        messages = segment.messages or []
        inbox = await self.journal.inbox()
        requests = [request_of(message) for message in inbox]
        await self.journal.note(messages=messages, delivered=inbox, shown=requests)
        return [*messages, *requests]

    async def _left(self, segment: Segment, observer: Observer) -> bool:
        """Tell whether the attempt is over without an end of the run."""
        match self.cause:
            case "lost claim":
                await self._tell_loss()
                return True
            case "drain" if segment.status is RunStatus.STOPPED:
                # A tool did not end in time: nobody can tell what it did.
                await self.journal.note(messages=segment.messages)
                await self._give_up()
                return True
            case "hand over" if segment.status is RunStatus.STOPPED:
                await self._hand_over(without_cut_off(segment.messages, observer.returned))
                return True
        return False

    async def _give_up(self) -> None:
        try:
            await self.journal.release(cause="drain")
        except Unavailable as error:
            # Then the claim lapses.
            log.warning("release_failed", run=self.start.run, error=str(error))
            return
        self._close("abandoned")

    async def _hand_over(self, messages: list[ModelMessage] | None) -> None:
        done = await self.journal.hand_over(messages=messages)
        self._close(done.outcome)

    async def _paused(self, segment: Segment) -> bool:
        """Pause the run if that is how the agent came out; after a stop it ends instead."""
        if segment.deferred is None:
            return False
        try:
            requests = requests_of(segment.deferred, terms=self.hosted.terms)
        except RunFailure as error:
            return await self._end(failed(error, segment.messages))
        if await self.journal.pause(requests, messages=segment.messages or []):
            self._close("paused")
            return True
        return await self._end(stopped(segment.messages))

    async def _tried_again(self, segment: Segment) -> bool:
        """Let a run that has failed be tried again, if its agent says so of such an error."""
        retry = self.hosted.after_error
        if retry is None or segment.raised is None or self.cause == "stop":
            return False
        after = retry.after(segment.raised, tried=self.start.failed_tries)
        if after is None:
            return False
        done = await self.journal.hand_over(messages=segment.messages, failed=segment.error, after=after)
        self._close(done.outcome)
        return True

    async def _tell_loss(self) -> None:
        """Record that the database was away for longer than the claim: nobody else can know that as soon.

        The agent was cancelled before anybody else could hold the thread. If somebody has taken it since, that record
        stands and nothing is written.
        """
        if self.why_lost != "storage":
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                while True:
                    with contextlib.suppress(Unavailable):
                        await self.journal.release(cause="storage")
                        return
                    await asyncio.sleep(RELEASE_RETRY_S)

    def _close(self, outcome: str) -> None:
        self.outcome = outcome
        self.on_end()
        log.info("attempt_closed", run=self.start.run, attempt=self.start.attempt, outcome=outcome)

    async def _deps(self) -> Any:
        if self.hosted.deps is None:
            return None
        made = self.hosted.deps(identity_of(self.start))
        if not inspect.isawaitable(made):
            return made
        # As a task of its own, so that a stop need not wait for it.
        self._making = asyncio.ensure_future(made)
        try:
            return await self._making
        finally:
            self._making = None
