"""One `agent.run` within an attempt, and how it came out. Whatever the agent does, it comes out as a value."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pydantic import TypeAdapter
from pydantic_ai import (
    CancellationToken,
    DeferredToolRequests,
    DeferredToolResults,
    RunCancelled,
    capture_run_messages,
)
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import RunTimedOut, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import UsageLimits

from threadhold.runner.budget import BudgetExhausted, PriceUnknown
from threadhold.runner.calling import RESULT_CHARS_MAX
from threadhold.runner.carrying import ERROR_CHARS_MAX, said, traced
from threadhold.runner.credentials import PROCESS, present_secrets
from threadhold.runner.errors import ClaimLost, Rejected, RunFailure
from threadhold.runner.history import HistoryUnsafe
from threadhold.runner.machine import FailReason, RunStatus, StopReason
from threadhold.runner.observer import Observer, Paused
from threadhold.runner.storable import bounded
from threadhold.runner.within import Interrupted

log = structlog.get_logger(__name__)

_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


@dataclass(slots=True)
class Segment:
    """How it came out, and the history it leaves; None if the agent held nothing new."""

    status: RunStatus
    messages: list[ModelMessage] | None
    reason: str | None = None
    error: dict[str, Any] | None = None
    output: Any = None
    deferred: DeferredToolRequests | None = None
    raised: BaseException | None = None


def failed(error: BaseException, messages: list[ModelMessage] | None = None) -> Segment:
    """Type a failure. The traceback goes to the log of the operator, never to a watcher."""
    log.warning("agent_failed", traceback=traced(error, PROCESS))
    data = {"type": _type(error), "message": PROCESS.text(said(error))[:ERROR_CHARS_MAX]}
    told = error.data if isinstance(error, BudgetExhausted) else {}
    return Segment(RunStatus.FAILED, messages, reason=_reason(error), error=data | told, raised=error)


def _type(error: BaseException) -> str:
    """Return a failure in one word."""
    match error:
        case RunFailure():
            return error.reason
        case BudgetExhausted() | UsageLimitExceeded():
            return "budget_exhausted"
        case PriceUnknown():
            return "price_unknown"
        case Rejected():
            return "rejected"
        case _:
            return type(error).__name__


def stopped(messages: list[ModelMessage] | None = None) -> Segment:
    """Return the outcome of an agent that we interrupted; the store knows by whose wish."""
    return Segment(RunStatus.STOPPED, messages, reason=StopReason.PERSON)


def _reason(error: BaseException) -> FailReason:
    match error:
        case UsageLimitExceeded() | BudgetExhausted():
            return FailReason.BUDGET_EXHAUSTED
        case HistoryUnsafe():
            return FailReason.HISTORY_UNSAFE
        case Rejected():
            return FailReason.REJECTED
        case RunTimedOut():
            return FailReason.TIMEOUT
        case _:
            return FailReason.ERROR


async def run_segment(
    agent: AbstractAgent[Any, Any],
    history: Sequence[ModelMessage],
    *,
    results: DeferredToolResults | None,
    deps: Any,
    run_id: str,
    thread: str,
    observer: Observer,
    token: CancellationToken,
    interrupted: Callable[[], bool],
    beside: Sequence[AbstractCapability[Any]] = (),
) -> Segment:
    """Run the agent once over a history that ends in what it is asked.

    `results` tells what was decided about calls of the last response, which are carried out first.

    Raises:
        ClaimLost: nothing may be written any more.
        asyncio.CancelledError: this task was cancelled from outside.
    """
    observer.begin_segment(given=None if results is None else _behind_last_response(history))
    with capture_run_messages() as captured:
        try:
            result = await agent.run(
                None,
                message_history=history,
                deferred_tool_results=results,
                deps=deps,
                run_id=run_id,
                conversation_id=thread,
                capabilities=[ReinjectSystemPrompt(), *beside, observer],
                cancellation_token=token,
                usage_limits=UsageLimits(request_limit=None),
            )
        except ClaimLost:
            raise
        except Paused as paused:
            return Segment(RunStatus.PAUSED, paused.messages, deferred=paused.deferred)
        except (RunCancelled, asyncio.CancelledError) as cancelled:
            return _cancelled(cancelled, captured if observer.begun else None, interrupted=interrupted())
        except (Exception, SystemExit) as error:
            messages = list(captured) if observer.begun else None
            # Whatever comes out of an agent that we interrupted is the interruption.
            cut_off = interrupted() or isinstance(error, Interrupted)
            return stopped(messages) if cut_off else failed(error, messages)
    said = present_secrets().known_only.value(_ANY.dump_python(result.output, mode="json"))
    output = bounded(said, chars=RESULT_CHARS_MAX)
    return Segment(RunStatus.COMPLETED, result.all_messages(), output=output)


def _behind_last_response(history: Sequence[ModelMessage]) -> int:
    """Return how many requests follow the last response."""
    count = 0
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            break
        count += 1
    return count


def _cancelled(
    error: BaseException, captured: Sequence[ModelMessage] | None, *, interrupted: bool
) -> Segment:
    """Tell a cancellation of ours from one that the agent has let slip, and from one of this task."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    messages = error.all_messages() if isinstance(error, RunCancelled) else list(captured or ())
    kept = None if captured is None else messages
    if interrupted:
        return stopped(kept)
    if isinstance(error, RunTimedOut):
        return failed(error, kept)
    return failed(RunFailure("the agent cancelled itself", reason="cancelled"), kept)
