"""One pydantic-ai capability per attempt: turns what the agent does into facts, history and live frames.

Steering needs no queue inside the agent: each model request is preceded by one look at the inbox, and what waits there
is recorded as delivered, together with the history that shows it, before the model is called.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    PartDeltaEvent,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition

from threadhold.fanout.outbox import Outbox
from threadhold.runner.errors import Rejection, RunFailure
from threadhold.runner.history import request_of
from threadhold.runner.journal import Journal
from threadhold.runner.meter import ARGS_CHARS_MAX
from threadhold.runner.records import NewFact, Start
from threadhold.runner.storable import bounded

RESULT_CHARS_MAX: Final = 16 * 1024
ERROR_CHARS_MAX: Final = 2_000
_EVENT: Final[TypeAdapter[Any]] = TypeAdapter(AgentStreamEvent)


def event_data(event: Any) -> dict[str, Any]:
    """Return an event as JSON values. Text deltas, which are most of them, take a short way."""
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        delta = {"part_delta_kind": "text", "content_delta": event.delta.content_delta}
        return {"event_kind": "part_delta", "index": event.index, "delta": delta}
    try:
        data: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    except ValueError:
        # An application's own event may hold anything; a watcher is told that there was one, and the run goes on.
        return {"event_kind": getattr(event, "event_kind", "custom"), "omitted": "not JSON"}
    return data


class Interrupted(Exception):
    """The way out of an agent whose run was asked to stop."""


class Observer(AbstractCapability[Any]):
    """Records one attempt.

    Args:
        start: the run and its claim.
        journal: where facts and history go.
        outbox: where live frames go.
        clock: seconds, for latencies.
    """

    def __init__(
        self,
        *,
        start: Start,
        journal: Journal,
        outbox: Outbox,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._start = start
        self._journal = journal
        self._outbox = outbox
        self._clock = clock
        self._asked_at = 0.0
        self.begun = False

    def get_ordering(self) -> CapabilityOrdering:
        """Stand next to the model and the tools, so that what is recorded is what really happened."""
        return CapabilityOrdering(position="innermost")

    def begin_segment(self) -> None:
        """Expect the first model request of another `agent.run` within this attempt.

        Until it comes, nothing that the agent holds is new.
        """
        self.begun = False

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Record the request, and add what waits in the inbox to it."""
        if not self.begun:
            self.begun = True
            self._journal.begin_segment(ctx.messages)
        await self._note(messages=ctx.messages)
        while self._journal.waiting:
            inbox = await self._journal.inbox()
            requests = [request_of(message) for message in inbox]
            self._journal.waiting = False
            if inbox:
                await self._note(delivered=inbox, shown=requests)
            for request in requests:
                ctx.enqueue(request)
        self._asked_at = self._clock()
        return request_context

    async def _note(self, *facts: NewFact, **new: Any) -> None:
        """Record, and go no further if the run was asked to stop: no model call and no tool starts after that."""
        await self._journal.note(*facts, **new)
        if self._journal.stopping:
            raise Interrupted

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """Record a response before any of its calls is executed; without calls it goes with what comes next."""
        last = ctx.messages[-1] if ctx.messages else None
        if isinstance(last, ModelResponse) and self._asked_at:
            self._journal.meter.time(last, self._clock() - self._asked_at)
            self._asked_at = 0.0
            if any(isinstance(part, ToolCallPart) for part in last.parts):
                await self._note(messages=ctx.messages)
        return result

    async def on_event(self, ctx: RunContext[Any], *, event: Any) -> None:
        """Send a live frame; it never waits and never fails."""
        self._outbox.put("event", event_data(event), seq=self._journal.seq)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Record a call before it runs and its outcome after; a crash in between leaves "outcome unknown"."""
        facts = {"call_id": call.tool_call_id, "tool": call.tool_name}
        key = f"{self._start.run}:{call.tool_call_id}"
        called = {**facts, "args": bounded(call.args, chars=ARGS_CHARS_MAX), "idempotency_key": key}
        await self._note(NewFact(kind="tool_called", data=called))
        began = self._clock()
        try:
            result = await handler(args)
        except Exception as error:
            await self._tool_raised(facts, error)
            raise
        except SystemExit as error:
            # It would end this process, and every other run in it.
            failure = RunFailure("the tool tried to end the process", reason="SystemExit")
            await self._tool_raised(facts, failure)
            raise failure from error
        result_text = bounded(_plain(result), chars=RESULT_CHARS_MAX)
        took = round((self._clock() - began) * 1000, 1)
        await self._journal.note(_returned(facts, "ok", result=result_text, ms=took))
        return result

    async def _tool_raised(self, facts: dict[str, str], error: Exception) -> None:
        """Record how a call failed. A rejection becomes a retry for the model; what is deferred has not run."""
        text = str(error)[:ERROR_CHARS_MAX]
        match error:
            case ApprovalRequired() | CallDeferred():
                return
            case Rejection():
                await self._journal.note(_returned(facts, "retry", error=text))
                raise ModelRetry(text) from error
            case ModelRetry():
                await self._journal.note(_returned(facts, "retry", error=text))
            case ToolFailed():
                await self._journal.note(_returned(facts, "failed", error=text))
            case _:
                await self._journal.note(_returned(facts, "failed", error=text, type=type(error).__name__))


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
