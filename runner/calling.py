"""Carries out the tool calls of one attempt: each is judged, recorded, carried out, and recorded again."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai import DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import ToolCallPart, ToolReturn

from threadhold.runner.admission import Admission, Ruling
from threadhold.runner.decisions import RULE_KEY
from threadhold.runner.errors import Rejection, RunFailure
from threadhold.runner.meter import ARGS_CHARS_MAX
from threadhold.runner.records import NewFact
from threadhold.runner.storable import bounded

RESULT_CHARS_MAX: Final = 16 * 1024
ERROR_CHARS_MAX: Final = 2_000


class Calling:
    """Carries out calls.

    Args:
        run: the run's id, a part of each call's idempotency key.
        enter: records before something happens; raises if nothing may happen any more.
        leave: records what has happened.
        doing: shows the call of a tool as under way in this process.
        admission: judges each call by the agent's policy; None if it has none.
        clock: seconds, for how long calls take.
    """

    def __init__(
        self,
        run: str,
        *,
        enter: Callable[..., Awaitable[None]],
        leave: Callable[..., Awaitable[None]],
        doing: Callable[[str], AbstractContextManager[None]],
        admission: Admission | None,
        clock: Callable[[], float],
    ) -> None:
        self._run = run
        self._enter = enter
        self._leave = leave
        self._doing = doing
        self._admission = admission
        self._clock = clock

    async def sort_out(self, requests: DeferredToolRequests) -> dict[str, str]:
        """Judge the calls whose tools ask for approval by themselves; return what is denied, with the text of each."""
        denied = {}
        for call in requests.approvals if self._admission is not None else ():
            metadata = requests.metadata.setdefault(call.tool_call_id, {})
            if RULE_KEY in metadata:
                continue
            ruling = self._judge(call, call.args_as_dict(), approved=False, approved_rule=None)
            facts = [ruling.fact]
            if ruling.verdict == "deny":
                denied[call.tool_call_id] = ruling.denial()
                facts.append(_returned(_named(call), "denied", error=ruling.denial()))
            elif ruling.verdict == "escalate":
                requests.metadata[call.tool_call_id] = metadata | ruling.asking()
            await self._enter(*facts)
        return denied

    def _judge(self, call: ToolCallPart, args: Any, *, approved: bool, approved_rule: str | None) -> Ruling:
        assert self._admission is not None
        return self._admission.judge(
            call.tool_call_id, call.tool_name, args, approved=approved, approved_rule=approved_rule
        )

    async def admitted(self, ctx: RunContext[Any], call: ToolCallPart, args: Any) -> list[NewFact]:
        """Return what is to be recorded of a call that may run.

        Raises:
            ToolFailed: the policy denies it.
            ApprovalRequired: the policy asks people first.
        """
        if self._admission is None:
            return []
        rule = (ctx.tool_call_metadata or {}).get(RULE_KEY)
        ruling = self._judge(call, args, approved=ctx.tool_call_approved, approved_rule=rule)
        if ruling.verdict == "allow":
            return [ruling.fact]
        if ruling.verdict == "escalate":
            await self._enter(ruling.fact)
            raise ApprovalRequired(metadata=ruling.asking())
        await self._enter(ruling.fact, _returned(_named(call), "denied", error=ruling.denial()))
        raise ToolFailed(ruling.denial())

    async def executed(self, call: ToolCallPart, args: Any, handler: Any, admitted: Sequence[NewFact]) -> Any:
        """Execute a call, between the two facts that tell of it."""
        facts = _named(call)
        key = f"{self._run}:{call.tool_call_id}"
        called = {**facts, "args": bounded(call.args, chars=ARGS_CHARS_MAX), "idempotency_key": key}
        await self._enter(*admitted, NewFact(kind="tool_called", data=called))
        began = self._clock()
        try:
            with self._doing(call.tool_name):
                result = await handler(args)
        except Exception as error:
            await self._tool_raised(facts, error)
            raise
        except SystemExit as error:
            # It would end this process, and every other run in it.
            failure = RunFailure("the tool tried to end the process", reason="SystemExit")
            await self._tool_raised(facts, failure)
            raise failure from error
        plain = _plain(result.return_value if isinstance(result, ToolReturn) else result)
        result_text = bounded(plain, chars=RESULT_CHARS_MAX)
        took = round((self._clock() - began) * 1000, 1)
        await self._leave(_returned(facts, "ok", result=result_text, ms=took))
        return result

    async def _tool_raised(self, facts: dict[str, str], error: Exception) -> None:
        """Record how a call failed. A rejection becomes a retry for the model; what is deferred has not run."""
        text = str(error)[:ERROR_CHARS_MAX]
        match error:
            case ApprovalRequired() | CallDeferred():
                await self._leave(_returned(facts, "deferred"))
            case Rejection():
                await self._leave(_returned(facts, "retry", error=text))
                raise ModelRetry(text) from error
            case ModelRetry():
                await self._leave(_returned(facts, "retry", error=text))
            case ToolFailed():
                await self._leave(_returned(facts, "failed", error=text))
            case _:
                await self._leave(_returned(facts, "failed", error=text, type=type(error).__name__))


def _named(call: ToolCallPart) -> dict[str, str]:
    return {"call_id": call.tool_call_id, "tool": call.tool_name}


def _returned(facts: dict[str, str], outcome: str, **data: Any) -> NewFact:
    return NewFact(kind="tool_returned", data={**facts, "outcome": outcome, **data})


def _plain(result: Any) -> Any:
    """Return a tool's result as JSON values.

    Raises:
        TypeError: if it is not JSON-like; the run fails with that, since no model could be shown it.
    """
    try:
        return TypeAdapter(Any).dump_python(result, mode="json")
    except ValueError as error:
        raise TypeError(f"the tool returned something that is not JSON: {type(result).__name__}") from error
