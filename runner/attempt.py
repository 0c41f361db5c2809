"""One attempt: one uninterrupted stretch of a run under one claim, as one asyncio task."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
from pydantic_ai import CancellationToken
from pydantic_ai.messages import ModelMessage

from threadhold.claims import News
from threadhold.fanout.outbox import Outbox
from threadhold.runner.app import Hosted, RunIdentity
from threadhold.runner.errors import ClaimLost
from threadhold.runner.history import HistoryUnsafe, continuable, loaded, request_of
from threadhold.runner.journal import Journal
from threadhold.runner.machine import RunStatus
from threadhold.runner.observer import Observer
from threadhold.runner.records import NewFact, Principal, Start
from threadhold.runner.segment import Segment, failed, run_segment, stopped

log = structlog.get_logger(__name__)

Cause = Literal["stop", "lost claim", "drain"]


@dataclass(slots=True, eq=False)
class Attempt:
    """Runs an agent under a claim until the run ends, is stopped, or the claim is lost.

    Args:
        start: the run and its claim.
        hosted: the agent.
        journal: where facts and history go.
        outbox: where live frames go.
        on_end: called as soon as the end is recorded, when there is no claim to keep any more.
    """

    start: Start
    hosted: Hosted
    journal: Journal
    outbox: Outbox
    on_end: Callable[[], None]
    cause: Cause | None = None
    ended: bool = False
    _token: CancellationToken = field(default_factory=CancellationToken, init=False)
    _making: asyncio.Future[Any] | None = field(default=None, init=False)
    _segments: int = field(default=0, init=False)

    def interrupt(self, cause: Cause) -> None:
        """Cancel the agent, or the making of its dependencies.

        The first cause counts, but a lost claim overrides all: nothing may be written then.
        """
        if self.cause is None or cause == "lost claim":
            self.cause = cause
        self._token.cancel()
        if self._making is not None:
            self._making.cancel()

    def hear(self, news: News) -> None:
        """Take news that a renewal brought."""
        if news.waiting:
            self.journal.waiting = True
        if news.stop:
            self.interrupt("stop")

    async def run(self) -> None:
        """Run to the end. Raises nothing: an attempt that cannot record its end leaves that to the sweep."""
        try:
            await self._run()
        except ClaimLost as error:
            log.warning("attempt_fenced", thread=self.start.thread, run=self.start.run, detail=str(error))
        except Exception as error:
            await self._end_broken(error)
        finally:
            await self.outbox.aclose()

    async def _end_broken(self, error: Exception) -> None:
        """End a run that could not be carried through; if even that fails, its claim lapses."""
        try:
            await self._end(failed(error))
        except Exception as again:
            detail = str(again)[:200]
            log.error("attempt_broken", run=self.start.run, error=type(again).__name__, detail=detail)

    async def _run(self) -> None:
        history = await self._begin()
        observer = Observer(start=self.start, journal=self.journal, outbox=self.outbox)
        while True:
            segment = await self._segment(observer, history)
            if await self._left(segment) or await self._end(segment):
                return
            history = await self._go_on(segment)

    async def _begin(self) -> list[ModelMessage]:
        """Record the start with the input, before the agent runs, and return the history to run with."""
        self.outbox.start(attempt=self.start.attempt, seq=self.start.seq)
        requests = [request_of(message) for message in self.start.inbox]
        stored, _ = await asyncio.gather(
            self.journal.history(),
            self.journal.note(self._started(), delivered=self.start.inbox, shown=requests),
        )
        try:
            return [*continuable(loaded(stored)), *requests]
        except ValueError as error:
            raise HistoryUnsafe(str(error)) from error

    def _started(self) -> NewFact:
        data = {"agent": self.start.agent, "by": self.start.principal, "attempt": self.start.attempt}
        return NewFact(kind="run_started" if self.start.fresh else "attempt_started", data=data)

    async def _segment(self, observer: Observer, history: list[ModelMessage]) -> Segment:
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
            deps=deps,
            run_id=f"{self.start.run}:{self.start.attempt}:{self._segments}",
            thread=self.start.thread,
            observer=observer,
            token=self._token,
            interrupted=lambda: self.cause is not None,
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
        self.ended = True
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

    async def _left(self, segment: Segment) -> bool:
        """Tell whether to go without an end.

        After a lost claim nothing may be written. A drained run that was cut off leaves what was said, and the worker
        gives it back.
        """
        if self.cause == "drain" and segment.status is RunStatus.STOPPED:
            await self.journal.note(messages=segment.messages)
            return True
        return self.cause == "lost claim"

    async def _deps(self) -> Any:
        if self.hosted.deps is None:
            return None
        made = self.hosted.deps(self._identity())
        if not inspect.isawaitable(made):
            return made
        # As a task of its own, so that a stop need not wait for it.
        self._making = asyncio.ensure_future(made)
        try:
            return await self._making
        finally:
            self._making = None

    def _identity(self) -> RunIdentity:
        start = self.start
        return RunIdentity(
            principal=Principal(id=start.principal, workspace=start.workspace, roles=start.roles),
            workspace=start.workspace,
            thread=start.thread,
            run=start.run,
            attempt=start.attempt,
            fence=start.fence,
        )
