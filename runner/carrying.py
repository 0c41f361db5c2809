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
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog
from pydantic import ValidationError
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_core import to_jsonable_python

from threadhold.runner.bindings import Binding
from threadhold.runner.budget import BudgetExhausted, PriceUnknown
from threadhold.runner.credentials import Secrets, hide_credential
from threadhold.runner.decisions import TERMS_KEY
from threadhold.runner.errors import ClaimLost, Rejection, RunFailure
from threadhold.runner.returned import RETURNED_CHARS_MAX, cleaned
from threadhold.runner.scrubbing import Scrubber
from threadhold.runner.shortening import cut_text
from threadhold.runner.within import Interrupted

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


async def scrubbed(act: Callable[[], Awaitable[Any]], secrets: Secrets) -> Any:
    """Return what a function returns that nobody has called as a tool; nothing that it returns or raises is secret."""
    try:
        result = await act()
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raised = failure_of(_common(error), secrets.scrubber).raised
        if raised is None or raised is error:
            raise
        raise raised from None
    return cleaned(result, secrets.scrubber)[0]


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
    error = acting.exception()
    if error is None:
        try:
            result, plain = cleaned(acting.result(), scrubber)
        except Exception as unfit:
            return failure_of(unfit, scrubber)
        return Carried(outcome="ok", result=result, plain=plain)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return failure_of(_common(error), scrubber)


def _common(error: BaseException) -> Exception:
    """Return an error, or another one in place of one that nobody above expects of a tool."""
    if isinstance(error, Exception):
        return error
    failure = RunFailure(str(error) or "the tool raised no common error", reason=type(error).__name__)
    failure.__cause__ = error
    return failure


def failure_of(error: Exception, scrubber: Scrubber) -> Carried:
    """Return how a call came out that raised. A rejection becomes a retry for the model; what is deferred has not run.

    An error that tells a secret is replaced by one that does not, of the same type by name.
    """
    if isinstance(error, CarriedElsewhere):
        return error.carried
    if isinstance(error, ApprovalRequired | CallDeferred):
        told = dict(error.metadata or {})
        # Who may answer is for us, and no part of what people are shown.
        terms = {TERMS_KEY: told.pop(TERMS_KEY)} if TERMS_KEY in told else {}
        error.metadata = scrubber.value(_jsonable(told)) | terms
        return Carried(outcome="deferred", raised=_alone(error))
    if isinstance(error, BudgetExhausted | PriceUnknown | Interrupted | ClaimLost):
        # Their texts are ours, and who raised them has to know them again.
        return Carried(outcome="failed", error=str(error), type=type(error).__name__, raised=_alone(error))
    is_clean = all(scrubber.text(text) == text for each in _chain(error) for text in _told(each))
    text = scrubber.text(str(error) if is_clean else said(error))
    short = text[:ERROR_CHARS_MAX]
    shown = cut_text(text, RETURNED_CHARS_MAX)
    is_fit = is_clean and shown == text
    match error:
        case Rejection():
            return Carried(outcome="retry", error=short, raised=ModelRetry(shown))
        case ModelRetry() | ToolRetryError():
            return Carried(outcome="retry", error=short, raised=error if is_fit else ModelRetry(shown))
        case ToolFailed() | ToolFailedError():
            return Carried(outcome="failed", error=short, raised=error if is_fit else ToolFailed(shown))
    kind = type(error).__name__
    if is_fit:
        return Carried(outcome="failed", error=short, type=kind, raised=error)
    log.warning("tool_raised", type=kind, traceback=traced(error, scrubber))
    reason = error.reason if isinstance(error, RunFailure) else kind
    return Carried(outcome="failed", error=short, type=kind, raised=RunFailure(shown, reason=reason))


def _jsonable(metadata: dict[str, Any]) -> Any:
    """Return metadata as JSON values, whatever a tool has put there: people are shown it, and it is stored."""
    try:
        return to_jsonable_python(metadata, serialize_unknown=True)
    except ValueError:
        return to_jsonable_python(metadata, serialize_unknown=True, bytes_mode="base64")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return an error and all that is written with it: what led to it, and what it is a group of."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _told(error: BaseException) -> Iterator[str]:
    """Return all that an error tells, uncut. What its frames show is no part of it: code may speak of secrets."""
    yield said(error)
    yield from map(str, getattr(error, "__notes__", ()))
    if isinstance(error, ValidationError):
        for each in error.errors(include_url=False, include_context=False):
            yield repr(each["input"])


def said(error: BaseException) -> str:
    """Return what an error says, without the values that a validation was given: it tells pieces of them."""
    if not isinstance(error, ValidationError):
        return str(error)
    every = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{'.'.join(map(str, each['loc'])) or '(all)'}: {each['msg']} [{each['type']}]" for each in every
    ]
    return "\n".join([f"{len(every)} validation errors for {error.title}", *lines])


def traced(error: BaseException, scrubber: Scrubber) -> str:
    """Return a traceback for the log; a validation anywhere in it says what was wrong, and not with what."""
    if any(isinstance(each, ValidationError) for each in _chain(error)):
        where = "".join(traceback.format_tb(error.__traceback__))
        trace = where + "\n".join(f"{type(each).__name__}: {said(each)}" for each in _chain(error))
    else:
        trace = "".join(traceback.format_exception(error))
    return scrubber.text(trace)[-TRACEBACK_CHARS_MAX:]


def _alone(error: Exception) -> Exception:
    error.__cause__ = error.__context__ = None
    return error
