"""Agents that tools of an agent ask in turn: within the budget, the policy and the record of the same run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeVar

from pydantic_ai import AgentRunResult, DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

from threadhold.runner.budget import DEPTH, BudgetExhausted
from threadhold.runner.calling import Calling
from threadhold.runner.errors import RunFailure
from threadhold.runner.meter import described
from threadhold.runner.records import NewFact
from threadhold.runner.spending import record_start
from threadhold.runner.within import APART, CURRENT, Call, Interrupted, within

NOBODY: Final = "this needs an approval, which an agent that was delegated to cannot wait for"
NOT_HERE: Final = "an executor cannot delegate within the budget of a run; bind the tool to none"

Output = TypeVar("Output")


async def delegate(
    agent: AbstractAgent[Any, Output], prompt: str, *, deps: Any = None, name: str | None = None
) -> AgentRunResult[Output]:
    """Ask another agent from within a tool, as a part of the same run.

    Its calls of models and tools count in the run's budget, come under its policy, and stand on record as `delegated`.
    Nothing of it may wait for people: what the policy escalates is denied. Outside of a run that threadhold executes it
    is `agent.run`.

    Args:
        agent: whom to ask.
        prompt: what.
        deps: its dependencies.
        name: what it is called on record; default its own name.

    Raises:
        RunFailure: this is called in an executor, which cannot reach the run's budget.
        BudgetExhausted: agents have delegated too deep, or a limit is reached. Let it through: it ends the run.
    """
    call = CURRENT.get()
    if call is None:
        if APART.get():
            raise RunFailure(NOT_HERE, reason="executor")
        return await agent.run(prompt, deps=deps)
    called = name or agent.name or "agent"
    await _check_depth(call, called)
    inner = Delegated(replace(call, depth=call.depth + 1), called)
    return await agent.run(
        prompt, deps=deps, capabilities=[inner], usage_limits=UsageLimits(request_limit=None)
    )


async def _check_depth(call: Call, agent: str) -> None:
    """Refuse what would be too deep, on record.

    Raises:
        BudgetExhausted: it is.
    """
    deepest = DEPTH if call.spending is None else call.spending.budget.depth
    if call.depth < deepest:
        return
    limit = {"scope": "run", "id": call.run, "limit": "depth", "max": deepest, "spent": call.depth}
    error = BudgetExhausted([limit])
    data = {"call": "agent", "call_id": call.call_id, "agent": agent, **error.data}
    await call.journal.note(NewFact(kind="budget_exhausted", data=data))
    raise error


class Delegated(AbstractCapability[Any]):
    """Keeps an agent that was delegated to within the run, and records what it does.

    Args:
        call: within which it was asked, at this agent's depth.
        agent: what it is called.
    """

    def __init__(self, call: Call, agent: str) -> None:
        self._call = call
        self._agent = agent
        self._prefix = f"{call.call_id}/{next(call.delegates)}"
        self._calls = Calling(
            f"{call.run}:{self._prefix}",
            enter=self._enter,
            start=self._start_call,
            leave=self._leave,
            doing=self._doing,
            admission=None if call.admission is None else call.admission.of(agent),
            tools=call.tools,
            clock=call.clock,
        )

    def get_ordering(self) -> CapabilityOrdering:
        """Stand next to the model and the tools."""
        return CapabilityOrdering(position="innermost")

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        """Ask the model within the budget, and record what it said."""
        run = self._call
        await run.go_on()
        spending, began = run.spending, run.clock()
        if spending is None:
            response: ModelResponse = await handler(request_context)
        else:
            aside = await spending.before_model(request_context, agent=self._agent, depth=run.depth)
            if run.journal.stopping:
                spending.drop(aside)
                raise Interrupted
            try:
                response = await handler(request_context)
            finally:
                spending.after_model([aside], request_context, delegated=True)
        took = round((run.clock() - began) * 1000, 1)
        total = run.journal.meter.add(response)
        await self._leave(
            NewFact(kind="model_called", data=described(response, latency_ms=took, total=total))
        )
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Judge, count and record a call, as one of the run's own agent."""
        try:
            return await self._calls.executed(
                call, args, handler, await self._calls.admitted(ctx, call, args)
            )
        except ApprovalRequired:
            raise ToolFailed(NOBODY) from None

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: Any
    ) -> Any:
        """Judge, count and record a call of an output function, as one of the run's own agent."""
        return await self._calls.output(ctx, output_context, output, handler)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Deny what would have to wait for people."""
        denied = {call.tool_call_id: ToolDenied(NOBODY) for call in requests.approvals}
        failed = {call.tool_call_id: ToolFailed(NOBODY) for call in requests.calls}
        return DeferredToolResults(approvals=dict(denied), calls=dict(failed))

    def _id(self, call: ToolCallPart) -> str:
        """Return the id of a call on record: those of another agent may be the same."""
        return f"{self._prefix}/{call.tool_call_id}"

    def _told(self, *facts: NewFact) -> list[NewFact]:
        """Return facts of this agent as facts of the run that it belongs to."""
        by = {"agent": self._agent, "depth": self._call.depth, "within": self._call.call_id}
        return [NewFact(kind="delegated", data={"did": fact.kind, **by, **fact.data}) for fact in facts]

    async def _enter(self, *facts: NewFact) -> None:
        await self._call.go_on(*self._told(*facts))

    async def _leave(self, *facts: NewFact) -> None:
        await self._call.journal.note(*self._told(*facts))

    async def _start_call(self, call: ToolCallPart, *facts: NewFact, grant: str | None = None) -> None:
        run = self._call
        await run.go_on()
        await record_start(
            run.journal, run.spending, self._id(call), call.tool_name, *self._told(*facts), grant=grant
        )
        if run.journal.stopping:
            raise Interrupted

    @contextmanager
    def _doing(self, call: ToolCallPart) -> Iterator[None]:
        with (
            within(replace(self._call, call_id=self._id(call), delegates=count(1))),
            self._call.doing(call.tool_name),
        ):
            yield
