"""Carries out one call of a tool: with its credentials, within its time, and with nothing secret in what comes of it.

It knows no journal and no claim, so that it is the same wherever a tool runs. A worker records what is to happen, calls
`carried_out`, and records what it returns; a process that carries out calls for workers does the same without records:

    with Secrets(hosted.credentials, identity) as secrets:
        carried = await carried_out(lambda: tool(args), binding=binding, secrets=secrets)

Who lets another process carry out a call passes a binding without credentials here, and waits a little longer than that
process does; the other one asks for the credentials.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)

from threadhold.runner.bindings import Binding
from threadhold.runner.credentials import Secrets, hide_credential
from threadhold.runner.errors import Rejection, RunFailure
from threadhold.runner.returned import cleaned
from threadhold.runner.scrubbing import Scrubber

log = structlog.get_logger(__name__)

ERROR_CHARS_MAX: Final = 2_000
TRACEBACK_CHARS_MAX: Final = 20_000
TIMED_OUT: Final = "tool_timeout"
LETTING_GO_S: Final = 1.0
"""How long a call that was given up has to clean up after itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How a call came out; nothing in it is secret any more.

    Args:
        outcome: as `tool_returned` names it; `deferred` if the tool has put the call off.
        result: what the model gets, if the outcome is `ok`.
        plain: the same as JSON values.
        error: what went wrong, at most 2,000 characters; None if nothing did.
        type: which kind of error it was, unless it was one that is meant for the model.
        raised: what goes to the agent instead of a result; it has no cause and no context that tells more.
    """

    outcome: Literal["ok", "retry", "failed", "deferred"]
    result: Any = None
    plain: Any = None
    error: str | None = None
    type: str | None = None
    raised: Exception | None = None


class CarriedElsewhere(Exception):
    """Raise in place of a tool that another process has carried out, with how that came out."""

    def __init__(self, carried: Carried) -> None:
        super().__init__(carried.error or "")
        self.carried = carried


async def carried_out(act: Callable[[], Awaitable[Any]], *, binding: Binding, secrets: Secrets) -> Carried:
    """Carry out a call and return how it came out.

    A call that has not ended in time is cancelled. A plain function runs in a thread, which nobody can end: it is given
    up all the same, and what it returns later is dropped.

    Args:
        act: calls the tool.
        binding: with which credentials, and how long.
        secrets: gives the credentials, and says what is secret.

    Raises:
        asyncio.CancelledError: this task was cancelled, or the tool has let a cancellation of its own slip.
    """
    acting = asyncio.create_task(_acting(act, binding, secrets), name="tool")
    try:
        await asyncio.wait({acting}, timeout=binding.timeout.total_seconds())
    except asyncio.CancelledError:
        acting.cancel()
        await _ended(acting)
        raise
    if not acting.done():
        return await _given_up(acting, binding)
    return _outcome(acting, secrets.scrubber)


async def _acting(act: Callable[[], Awaitable[Any]], binding: Binding, secrets: Secrets) -> Any:
    hide_credential()
    try:
        if binding.credentials is not None:
            await secrets.give(binding.credentials)
        return await act()
    except SystemExit as error:
        # It would end this process, and every other call in it.
        raise RunFailure("the tool tried to end the process", reason="SystemExit") from error


async def _ended(acting: asyncio.Task[Any]) -> None:
    """Return when a call that was cancelled has ended, however often this task is cancelled meanwhile."""
    cancelled = False
    while not acting.done():
        try:
            await asyncio.wait({acting})
        except asyncio.CancelledError:
            cancelled = True
            acting.cancel()
    _dropped(acting)
    if cancelled:
        raise asyncio.CancelledError


async def _given_up(acting: asyncio.Task[Any], binding: Binding) -> Carried:
    acting.cancel()
    acting.add_done_callback(_dropped)
    await asyncio.wait({acting}, timeout=LETTING_GO_S)
    seconds = binding.timeout.total_seconds()
    text = f"The call timed out after {seconds:g} s and was given up. It may or may not have had its effect."
    return Carried(outcome="failed", error=text, type=TIMED_OUT, raised=ToolFailed(text))


def _dropped(acting: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody asks for."""
    if not acting.cancelled():
        acting.exception()


def _outcome(acting: asyncio.Task[Any], scrubber: Scrubber) -> Carried:
    try:
        result, plain = cleaned(acting.result(), scrubber)
    except Exception as error:
        return failure_of(error, scrubber)
    return Carried(outcome="ok", result=result, plain=plain)


def failure_of(error: Exception, scrubber: Scrubber) -> Carried:
    """Return how a call came out that raised. A rejection becomes a retry for the model; what is deferred has not run.

    An error that tells a secret is replaced by one that does not, of the same type by name.
    """
    if isinstance(error, CarriedElsewhere):
        return error.carried
    if isinstance(error, ApprovalRequired | CallDeferred):
        error.metadata = scrubber.value(error.metadata)
        return Carried(outcome="deferred", raised=_alone(error))
    trace = "".join(traceback.format_exception(error))
    is_clean = scrubber.text(trace) == trace
    text = scrubber.text(str(error))
    said = text[:ERROR_CHARS_MAX]
    match error:
        case Rejection():
            return Carried(outcome="retry", error=said, raised=ModelRetry(text))
        case ModelRetry() | ToolRetryError():
            return Carried(outcome="retry", error=said, raised=error if is_clean else ModelRetry(text))
        case ToolFailed() | ToolFailedError():
            return Carried(outcome="failed", error=said, raised=error if is_clean else ToolFailed(text))
    kind = type(error).__name__
    if is_clean:
        return Carried(outcome="failed", error=said, type=kind, raised=error)
    log.warning("tool_raised", type=kind, traceback=scrubber.text(trace)[-TRACEBACK_CHARS_MAX:])
    reason = error.reason if isinstance(error, RunFailure) else kind
    return Carried(outcome="failed", error=said, type=kind, raised=RunFailure(text, reason=reason))


def _alone(error: Exception) -> Exception:
    error.__cause__ = error.__context__ = None
    return error
