"""One `agent.run` within an attempt, and how it came out. Whatever the agent does, it comes out as a value."""

import asyncio
import traceback
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
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import RunTimedOut, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import UsageLimits

from threadhold.runner.calling import ERROR_CHARS_MAX, RESULT_CHARS_MAX
from threadhold.runner.errors import ClaimLost, RunFailure
from threadhold.runner.history import HistoryUnsafe
from threadhold.runner.machine import FailReason, RunStatus, StopReason
from threadhold.runner.observer import Interrupted, Observer, Paused
from threadhold.runner.storable import bounded

log = structlog.get_logger(__name__)

TRACEBACK_CHARS_MAX: Final = 20_000
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


def failed(error: BaseException, messages: list[ModelMessage] | None = None) -> Segment:
    """Type a failure. The traceback goes to the log of the operator, never to a watcher."""
    log.warning("agent_failed", traceback="".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:])
    kind = error.reason if isinstance(error, RunFailure) else type(error).__name__
    data = {"type": kind, "message": str(error)[:ERROR_CHARS_MAX]}
    return Segment(RunStatus.FAILED, messages, reason=_reason(error), error=data)


def stopped(messages: list[ModelMessage] | None = None) -> Segment:
    """Return the outcome of an agent that we interrupted; the store knows by whose wish."""
    return Segment(RunStatus.STOPPED, messages, reason=StopReason.PERSON)


def _reason(error: BaseException) -> FailReason:
    match error:
        case UsageLimitExceeded():
            return FailReason.BUDGET_EXHAUSTED
        case HistoryUnsafe():
            return FailReason.HISTORY_UNSAFE
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
                capabilities=[ReinjectSystemPrompt(), observer],
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
    output = bounded(_ANY.dump_python(result.output, mode="json"), chars=RESULT_CHARS_MAX)
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
