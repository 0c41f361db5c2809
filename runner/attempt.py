"""One attempt: one uninterrupted stretch of a run under one claim, as one asyncio task."""

import asyncio
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import structlog
from pydantic import TypeAdapter
from pydantic_ai import CancellationToken, DeferredToolRequests, RunCancelled, capture_run_messages
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import UsageLimits

from threadhold.claims import News
from threadhold.fanout.outbox import Outbox
from threadhold.runner.app import Hosted, RunIdentity
from threadhold.runner.errors import ClaimLost, RunFailure
from threadhold.runner.history import continuable, loaded, request_of
from threadhold.runner.journal import Journal
from threadhold.runner.machine import FailReason, RunStatus, StopReason
from threadhold.runner.observer import ERROR_CHARS_MAX, RESULT_CHARS_MAX, Observer
from threadhold.runner.records import InboxMessage, NewFact, Principal, Start
from threadhold.runner.storable import bounded

log = structlog.get_logger(__name__)

Cause = Literal["stop", "lost claim", "drain"]
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


class HistoryUnsafe(Exception):
    """What is stored of the thread's history cannot be read; nothing was sent to a model."""


def _reason(error: Exception) -> FailReason:
    match error:
        case UsageLimitExceeded():
            return FailReason.BUDGET_EXHAUSTED
        case HistoryUnsafe():
            return FailReason.HISTORY_UNSAFE
        case _:
            return FailReason.ERROR


@dataclass(slots=True)
class Segment:
    """How one `agent.run` within an attempt came out, and the history it leaves."""

    status: RunStatus
    messages: list[ModelMessage] | None
    reason: str | None = None
    error: dict[str, Any] | None = None
    output: Any = None


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
    token: CancellationToken = field(default_factory=CancellationToken)
    segments: int = 0
    ended: bool = False

    def interrupt(self, cause: Cause) -> None:
        """Cancel the agent; the first cause counts, except that a lost claim overrides all: nothing may be written."""
        if self.cause is None or cause == "lost claim":
            self.cause = cause
        self.token.cancel()

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
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._end_broken(error)
        finally:
            await self.outbox.aclose()

    async def _end_broken(self, error: Exception) -> None:
        """End a run that this code itself could not carry through; if even that fails, its claim lapses."""
        segment = self._failed(error, None)
        try:
            await self.journal.end(segment.status, reason=segment.reason, error=segment.error)
        except Exception as again:
            log.error(
                "attempt_broken", run=self.start.run, error=type(again).__name__, detail=str(again)[:200]
            )

    async def _run(self) -> None:
        history = await self._begin()
        observer = Observer(start=self.start, journal=self.journal, outbox=self.outbox)
        while True:
            segment = await self._segment(observer, history)
            if await self._left(segment):
                return
            ended = await self.journal.end(
                segment.status,
                reason=segment.reason,
                error=segment.error,
                messages=segment.messages,
                output=segment.output,
            )
            if ended.outcome == "ended":
                self.ended = True
                self.on_end()
                log.info("run_ended", run=self.start.run, status=ended.status, reason=segment.reason)
                return
            history = await self._go_on(observer, segment)

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
        first = self.start.attempt == 1
        data = {"agent": self.start.agent, "by": self.start.principal, "attempt": self.start.attempt}
        return NewFact(kind="run_started" if first else "attempt_started", data=data)

    async def _go_on(self, observer: Observer, segment: Segment) -> list[ModelMessage]:
        """Take the messages that came as the run was about to end, and return the history that shows them."""
        messages = segment.messages or []
        inbox: list[InboxMessage] = await self.journal.inbox()
        requests = [request_of(message) for message in inbox]
        await self.journal.note(messages=messages, delivered=inbox, shown=requests)
        observer.begin_segment()
        return [*messages, *requests]

    async def _segment(self, observer: Observer, history: list[ModelMessage]) -> Segment:
        """Run the agent once over this history, which ends in what it is asked."""
        self.segments += 1
        with capture_run_messages() as captured:
            try:
                result = await self.hosted.agent.run(
                    None,
                    message_history=history,
                    deps=await self._deps(),
                    run_id=f"{self.start.run}:{self.start.attempt}:{self.segments}",
                    conversation_id=self.start.thread,
                    capabilities=[ReinjectSystemPrompt(), observer],
                    cancellation_token=self.token,
                    usage_limits=UsageLimits(request_limit=None),
                )
            except RunCancelled as cancelled:
                messages = cancelled.all_messages() if observer.begun else None
                if self.cause is None:
                    return self._failed(
                        RunFailure("the agent cancelled itself", reason="cancelled"), messages
                    )
                return Segment(RunStatus.STOPPED, messages, reason=StopReason.PERSON)
            except ClaimLost:
                raise
            except Exception as error:
                return self._failed(error, list(captured) if observer.begun else None)
        if isinstance(result.output, DeferredToolRequests):
            text = "the agent deferred a tool call, and nobody here can answer it"
            return self._failed(RunFailure(text, reason="deferred_call"), result.all_messages())
        output = bounded(_ANY.dump_python(result.output, mode="json"), chars=RESULT_CHARS_MAX)
        return Segment(RunStatus.COMPLETED, result.all_messages(), output=output)

    def _failed(self, error: Exception, messages: list[ModelMessage] | None) -> Segment:
        """Type a failure. The traceback goes to the log of the operator, never to a watcher."""
        trace = "".join(traceback.format_exception(error))
        log.warning("run_failed", run=self.start.run, agent=self.start.agent, traceback=trace)
        kind = error.reason if isinstance(error, RunFailure) else type(error).__name__
        data = {"type": kind, "message": str(error)[:ERROR_CHARS_MAX]}
        return Segment(RunStatus.FAILED, messages, reason=_reason(error), error=data)

    async def _left(self, segment: Segment) -> bool:
        """Tell whether to go without an end: after a lost claim nothing may be written; a drained run that was
        cut off leaves what was said, and is given back by the worker."""
        if self.cause == "drain" and segment.status is RunStatus.STOPPED:
            await self.journal.note(messages=segment.messages)
            return True
        return self.cause == "lost claim"

    async def _deps(self) -> Any:
        if self.hosted.deps is None:
            return None
        principal = Principal(id=self.start.principal, workspace=self.start.workspace, roles=self.start.roles)
        identity = RunIdentity(
            principal=principal,
            workspace=self.start.workspace,
            thread=self.start.thread,
            run=self.start.run,
            attempt=self.start.attempt,
            fence=self.start.fence,
        )
        made = self.hosted.deps(identity)
        return await made if inspect.isawaitable(made) else made
