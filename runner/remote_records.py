"""Calls that executors carry out, as they travel: what is asked, and how it came out. Values only; never a secret."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import ToolReturn, ToolReturnContent

from threadhold.runner.carrying import ERROR_CHARS_MAX, TIMED_OUT, Carried, CarriedElsewhere
from threadhold.runner.errors import RunFailure
from threadhold.runner.records import Role
from threadhold.runner.returned import RETURNED_CHARS_MAX
from threadhold.runner.shortening import cut_text

RemoteOutcome = Literal["ok", "retry", "failed", "deferred", "error", "timeout", "lost"]

EXECUTOR_LOST: Final = "executor_lost"
EXECUTOR_MISSING: Final = "executor_missing"

_TOOL_RETURN: Final[TypeAdapter[Any]] = TypeAdapter(ToolReturn)
_CONTENT: Final[TypeAdapter[Any]] = TypeAdapter(ToolReturnContent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAsk:
    """A call that a worker asks executors for.

    Args:
        id: its own, fresh for each call.
        call_id: the model's.
        args: what the tool is to get, as JSON values.
        context: what its code is told of the run, as JSON values.
        timeout: seconds.
    """

    id: str
    call_id: str
    tool: str
    queue: str
    args: Any
    context: Any
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCall:
    """A call that an executor has taken, with for whom and where its run acts. `left_s` is what is left of its time."""

    id: str
    workspace: str
    principal: str
    roles: frozenset[Role]
    thread: str
    run: str
    attempt: int
    fence: int
    asked_by: str
    call_id: str
    agent: str
    tool: str
    args: Any
    context: Any
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEnd:
    """How a call came out, as JSON values."""

    outcome: RemoteOutcome
    result: Any = None


LOST: Final = RemoteEnd(outcome="lost")
TIMEOUT: Final = RemoteEnd(outcome="timeout")


def end_of(carried: Carried) -> RemoteEnd:
    """Return how a call came out, for whoever asked for it."""
    error = carried.raised
    message = cut_text(str(error), RETURNED_CHARS_MAX)
    match error:
        case None:
            is_return = isinstance(carried.result, ToolReturn)
            value = (_TOOL_RETURN if is_return else _CONTENT).dump_python(carried.result, mode="json")
            return RemoteEnd(outcome="ok", result={"tool_return": is_return, "value": value})
        case ApprovalRequired():
            return RemoteEnd(outcome="deferred", result={"kind": "approval", "metadata": error.metadata})
        case CallDeferred():
            return RemoteEnd(outcome="deferred", result={"kind": error.kind, "metadata": error.metadata})
        case ToolFailed() if carried.type == TIMED_OUT:
            return TIMEOUT
        case _ if carried.outcome == "retry":
            return RemoteEnd(outcome="retry", result={"message": message})
        case ToolFailed():
            return RemoteEnd(outcome="failed", result={"message": message})
    kind = carried.type or type(error).__name__
    reason = error.reason if isinstance(error, RunFailure) else kind
    return RemoteEnd(outcome="error", result={"message": message, "type": kind, "reason": reason})


def result_of(end: RemoteEnd, *, timeout: float) -> Any:
    """Return what the tool has returned, or raise what it has raised.

    Raises:
        ModelRetry, ToolFailed, ApprovalRequired, CallDeferred: the tool has raised that.
        CarriedElsewhere: it has raised something else, or nobody can tell what became of it.
    """
    told = end.result or {}
    match end.outcome:
        case "ok":
            return (_TOOL_RETURN if told["tool_return"] else _CONTENT).validate_python(told["value"])
        case "retry":
            raise ModelRetry(told["message"])
        case "failed":
            raise ToolFailed(told["message"])
        case "deferred" if told["kind"] == "approval":
            raise ApprovalRequired(metadata=told["metadata"])
        case "deferred":
            raise CallDeferred(metadata=told["metadata"], kind=told["kind"])
        case "error":
            failure = RunFailure(told["message"], reason=told["reason"])
            said = told["message"][:ERROR_CHARS_MAX]
            raise CarriedElsewhere(Carried(outcome="failed", error=said, type=told["type"], raised=failure))
        case "timeout":
            raise given_up(
                f"The call timed out after {timeout:g} s and was given up. It may or may not have had its effect.",
                type=TIMED_OUT,
            )
        case "lost":
            raise given_up(
                "Outcome unknown: the executor that carried this call out has died. It may or may not have happened; "
                "do not repeat it without checking.",
                type=EXECUTOR_LOST,
            )


def given_up(text: str, *, type: str) -> CarriedElsewhere:
    """Return the error of a call of which the model is only told this text."""
    return CarriedElsewhere(Carried(outcome="failed", error=text, type=type, raised=ToolFailed(text)))


def nobody_took(queue: str, *, timeout: float) -> CarriedElsewhere:
    """Return the error of a call that no executor has taken in its time."""
    text = (
        f"No executor of the queue {queue!r} took this call within {timeout:g} s. Nothing of it has happened."
    )
    return given_up(text, type=EXECUTOR_MISSING)
