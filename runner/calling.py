"""Carries out the tool calls of one attempt: each is judged, recorded, carried out, and recorded again."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, NoReturn

from pydantic_ai import DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.output import OutputContext

from threadhold.runner.admission import Admission, Ruling, as_asked
from threadhold.runner.bindings import DEFAULT, Binding
from threadhold.runner.budget import NoGrant
from threadhold.runner.carrying import Carried, carried_out, scrubbed
from threadhold.runner.credentials import present_secrets
from threadhold.runner.decisions import RULE_KEY
from threadhold.runner.meter import ARGS_CHARS_MAX
from threadhold.runner.records import NewFact
from threadhold.runner.storable import bounded

RESULT_CHARS_MAX: Final = 16 * 1024


class Calling:
    """Carries out calls.

    Args:
        run: the run's id, a part of each call's idempotency key.
        enter: records before something happens; raises if nothing may happen any more.
        start: records that a call starts, which its budget and the grant that it needs, if any, have to allow.
        leave: records what has happened.
        doing: shows a call as under way, to this process and to what the tool asks in turn.
        admission: judges each call by the agent's policy; None if it has none.
        tools: how tools are carried out, by their names.
        clock: seconds, for how long calls take.
    """

    def __init__(
        self,
        run: str,
        *,
        enter: Callable[..., Awaitable[None]],
        start: Callable[..., Awaitable[None]],
        leave: Callable[..., Awaitable[Any]],
        doing: Callable[[ToolCallPart], AbstractContextManager[None]],
        admission: Admission | None,
        tools: Mapping[str, Binding] = MappingProxyType({}),
        clock: Callable[[], float],
    ) -> None:
        self._run = run
        self._enter = enter
        self._start = start
        self._leave = leave
        self._doing = doing
        self._admission = admission
        self._tools = tools
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
            if ruling.verdict == "deny" and ruling.grant is None:
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

    async def admitted(self, ctx: RunContext[Any], call: ToolCallPart, args: Any) -> Ruling | None:
        """Return what the policy says of a call that may run, if need be with a grant.

        Raises:
            ToolFailed: the policy denies it.
            ApprovalRequired: the policy asks people first.
        """
        if self._admission is None:
            return None
        rule = (ctx.tool_call_metadata or {}).get(RULE_KEY)
        ruling = self._judge(call, args, approved=ctx.tool_call_approved, approved_rule=rule)
        if ruling.verdict != "allow" and ruling.grant is None:
            await self._refuse(call, ruling)
        return ruling

    async def _refuse(self, call: ToolCallPart, ruling: Ruling) -> NoReturn:
        """Record that a call does not run, and raise why."""
        if ruling.verdict == "escalate":
            await self._enter(ruling.fact)
            raise ApprovalRequired(metadata=ruling.asking())
        await self._enter(ruling.fact, _returned(_named(call), "denied", error=ruling.denial()))
        raise ToolFailed(ruling.denial())

    async def executed(self, call: ToolCallPart, args: Any, handler: Any, ruling: Ruling | None) -> Any:
        """Execute a call, between the two facts that tell of it.

        Raises:
            ToolFailed, ApprovalRequired: no grant is left that would have allowed it.
        """
        binding, secrets = self._tools.get(call.tool_name, DEFAULT), present_secrets()
        key = f"{self._run}:{call.tool_call_id}"
        told = bounded(secrets.known_only.value(call.args), chars=ARGS_CHARS_MAX)
        called = {**_named(call), "args": told, "idempotency_key": key}
        if binding.credentials is not None:
            called["credentials"] = binding.credentials
        if binding.executor is not None:
            called["executor"] = binding.executor
        await self._started(call, ruling, NewFact(kind="tool_called", data=called))
        began = self._clock()
        with self._doing(call):
            carried = await carried_out(lambda: handler(args), binding=binding.in_worker(), secrets=secrets)
        await self._leave(_outcome(call, carried, ms=round((self._clock() - began) * 1000, 1)))
        if carried.raised is not None:
            raise carried.raised
        return carried.result

    async def output(
        self,
        ctx: RunContext[Any],
        output_context: OutputContext,
        output: Any,
        handler: Any,
        *,
        execute: Callable[..., Awaitable[Any]] | None = None,
    ) -> Any:
        """Judge and execute a call of an output function as one of any tool: it may do anything.

        Args:
            ctx, output_context, output, handler: as the hook has them.
            execute: what to do instead of `executed`.
        """
        call = output_context.tool_call
        if not output_context.has_function or ctx.partial_output:
            return await handler(output)
        if call is None:
            return await scrubbed(lambda: handler(output), present_secrets())
        try:
            ruling = await self.admitted(ctx, call, _named_args(call, output))
            return await (execute or self.executed)(call, output, handler, ruling)
        except (ApprovalRequired, ToolFailed) as refused:
            # An output function can neither fail nor wait; the model may find another way.
            raise ModelRetry(
                str(refused) or "This needs an approval, which a final answer cannot wait for."
            ) from None

    async def _started(self, call: ToolCallPart, ruling: Ruling | None, called: NewFact) -> None:
        """Record that a call starts, by a grant if it needs one."""
        if ruling is None:
            await self._start(call, called)
        elif ruling.grant is None:
            await self._start(call, ruling.fact, called)
        else:
            try:
                await self._start(call, ruling.granted(), called, grant=ruling.grant)
            except NoGrant:
                await self._refuse(call, ruling)


def _named_args(call: ToolCallPart, output: Any) -> Any:
    """Return the arguments of an output function by their names; one that has one alone is given that without it."""
    given = call.args_as_dict()
    plain = as_asked(output)
    if plain.keys() == given.keys():
        return output
    return {next(iter(given)): output} if len(given) == 1 else given


def _named(call: ToolCallPart) -> dict[str, str]:
    return {"call_id": call.tool_call_id, "tool": call.tool_name}


def _returned(facts: dict[str, str], outcome: str, **data: Any) -> NewFact:
    return NewFact(kind="tool_returned", data={**facts, "outcome": outcome, **data})


def _outcome(call: ToolCallPart, carried: Carried, *, ms: float) -> NewFact:
    """Return the fact of how a call came out."""
    if carried.outcome == "ok":
        shown = bounded(carried.plain, chars=RESULT_CHARS_MAX)
        return _returned(_named(call), "ok", result=shown, ms=ms)
    error = {"error": carried.error, "type": carried.type}
    return _returned(
        _named(call), carried.outcome, **{name: text for name, text in error.items() if text is not None}
    )
