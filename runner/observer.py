"""One pydantic-ai capability per attempt: turns what the agent does into facts, history and live frames.

Steering needs no queue inside the agent: each model request is preceded by one look at the inbox, and what waits there
is recorded as delivered, together with the history that shows it, before the model is called.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import (
    AgentStreamEvent,
    CustomEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    PartDeltaEvent,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import ToolDefinition

from threadhold.fanout.outbox import Outbox
from threadhold.runner.admission import Admission, Ruling
from threadhold.runner.bindings import Binding
from threadhold.runner.calling import Calling
from threadhold.runner.credentials import present_secrets
from threadhold.runner.history import request_of
from threadhold.runner.journal import Journal
from threadhold.runner.live_scrubbing import Drafts, LiveText
from threadhold.runner.records import NewFact, Start
from threadhold.runner.saying import Saying
from threadhold.runner.spending import SetAside, Spending, record_start
from threadhold.runner.window import Window
from threadhold.runner.windowing import Windowing
from threadhold.runner.within import Call, Interrupted, within

KEEP_EVERY_S: Final = 1.0
_EVENT: Final[TypeAdapter[Any]] = TypeAdapter(AgentStreamEvent)


def event_data(event: Any) -> dict[str, Any]:
    """Return an event as JSON values. Text deltas, which are most of them, take a short way."""
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        delta = {"part_delta_kind": "text", "content_delta": event.delta.content_delta}
        return {"event_kind": "part_delta", "index": event.index, "delta": delta}
    try:
        # Without warnings: events of capabilities may have been defined after the adapter was built.
        data: dict[str, Any] = _EVENT.dump_python(event, mode="json", warnings=False)
    except Exception:
        # What a tool or a capability gave may be anything; a watcher is told that there was an event.
        return {"event_kind": event.event_kind, "omitted": "not JSON"}
    return data


class Paused(Exception):
    """The way out of an agent that waits for people: the calls it has deferred, and the history up to them."""

    def __init__(self, deferred: DeferredToolRequests, messages: list[ModelMessage]) -> None:
        super().__init__("the agent waits for people")
        self.deferred = deferred
        self.messages = messages


class Observer(AbstractCapability[Any]):
    """Records one attempt.

    Args:
        start: the run and its claim.
        journal: where facts and history go.
        outbox: where live frames go.
        ready: returns when a model call or a tool may start; raises if none may any more.
        doing: shows the call of a tool as under way in this process.
        admission: judges each call by the agent's policy; None if it has none.
        spending: keeps the attempt within its budget; None if it has none.
        window: how much of the history the model is shown; None for what is usual.
        tools: how tools are carried out, by their names.
        clock: seconds, for latencies.
    """

    def __init__(
        self,
        *,
        start: Start,
        journal: Journal,
        outbox: Outbox,
        ready: Callable[[], Awaitable[None]],
        doing: Callable[[str], AbstractContextManager[None]],
        admission: Admission | None = None,
        spending: Spending | None = None,
        window: Window | None = None,
        tools: Mapping[str, Binding] = MappingProxyType({}),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._journal = journal
        self._outbox = outbox
        self._ready = ready
        self._agent = start.agent
        self._spending = spending
        self._aside: list[SetAside] = []
        self._windowing = Windowing(window or Window(), start=start, note=self._note)
        self._calls = Calling(
            start.run,
            enter=self._note,
            start=self._start_call,
            leave=journal.note,
            doing=self._doing_call,
            admission=admission,
            tools=tools,
            clock=clock,
        )
        secrets = present_secrets()
        self._live, self._drafts = LiveText(secrets.known_only), Drafts(secrets.scrubber)
        self._doing = doing
        self._within = Call(
            run=start.run,
            call_id="",
            depth=0,
            delegates=count(1),
            journal=journal,
            admission=admission,
            spending=spending,
            tools={name: replace(binding, executor=None) for name, binding in tools.items()},
            go_on=self._go_on,
            doing=doing,
            clock=clock,
        )
        self._clock = clock
        self._asked_at = 0.0
        self._given: int | None = None
        self._saying: Saying | None = None
        self._said_at = 0.0
        self._keeping: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._returned: list[ModelRequestPart] = []
        self._leaving = False
        self._idle = asyncio.Event()
        self._tools = 0
        self.begun = False

    @property
    def asking(self) -> bool:
        """Whether the model is being asked just now."""
        return self._saying is not None

    @property
    def returned(self) -> list[ModelMessage]:
        """What the tools of the present step have returned so far, as a request that is not in the history yet."""
        return [ModelRequest(parts=list(self._returned))] if self._returned else []

    def leave(self) -> None:
        """Let no model call and no tool start any more; tools that run may end."""
        self._leaving = True

    def get_ordering(self) -> CapabilityOrdering:
        """Stand next to the model and the tools, so that what is recorded is what really happened."""
        return CapabilityOrdering(position="innermost")

    def begin_segment(self, *, given: int | None) -> None:
        """Expect the first model request of another `agent.run` within this attempt.

        Until it comes, nothing that the agent holds is new.

        Args:
            given: how many requests behind the last response were given, if calls of it are executed first; else None.
        """
        self.begun = False
        self._given = given

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Record the request, and add what waits in the inbox to it."""
        self._begin(ctx)
        await self._note(messages=ctx.messages)
        self._returned.clear()
        self._draft(self._drafts.end_all())
        await self._enter()
        while self._journal.waiting:
            inbox = await self._journal.inbox()
            requests = [request_of(message) for message in inbox]
            self._journal.waiting = False
            if inbox:
                await self._note(delivered=inbox, shown=requests)
            for request in requests:
                ctx.enqueue(request)
        if self._leaving:
            raise Interrupted
        self._asked_at = self._clock()
        self._saying, self._said_at = Saying(), self._asked_at
        return request_context

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Show the model as much as its window holds, once all that waited is there, and set aside what it may cost."""
        request_context.messages = await self._windowing.shown(request_context.messages)
        if self._spending is not None:
            self._aside.append(await self._spending.before_model(request_context, agent=self._agent))
            if self._journal.stopping or self._leaving:
                self._spending.drop(self._aside.pop())
                raise Interrupted
        self._asked_at = self._clock()
        return request_context

    def _begin(self, ctx: RunContext[Any]) -> None:
        if not self.begun:
            self.begun = True
            self._journal.begin_segment(ctx.messages, given=self._given)

    async def _enter(self) -> None:
        """Return when something may start; what runs already may end first, if nothing may start any more."""
        await self._ready()
        if not self._leaving:
            return
        while self._tools:
            self._idle.clear()
            await self._idle.wait()
        raise Interrupted

    async def _note(self, *facts: NewFact, **new: Any) -> None:
        """Record, and go no further if the run was asked to stop: no model call and no tool starts after that."""
        await self._journal.note(*facts, **new)
        if self._journal.stopping:
            raise Interrupted

    async def _start_call(self, call: ToolCallPart, *facts: NewFact, grant: str | None = None) -> None:
        """Record that a call starts, unless its budget or the want of a grant forbids it."""
        await record_start(
            self._journal, self._spending, call.tool_call_id, call.tool_name, *facts, grant=grant
        )
        if self._journal.stopping:
            raise Interrupted

    async def _go_on(self, *facts: NewFact) -> None:
        """Record what is done within a call of a tool; it may go on with that until the run is to stop."""
        await self._ready()
        await self._note(*facts)

    @contextmanager
    def _doing_call(self, call: ToolCallPart) -> Iterator[None]:
        """Show a call as under way, to this process and to what its tool asks."""
        inner = replace(self._within, call_id=call.tool_call_id, delegates=count(1))
        with within(inner), self._doing(call.tool_name):
            yield

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        """Ask the model; what was set aside for it is settled, however that ends."""
        try:
            return await handler(request_context)  # type: ignore[no-any-return]
        finally:
            if self._spending is not None:
                self._spending.after_model(self._aside, request_context)
                self._aside = []

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """Record a response before any of its calls is executed; without calls it goes with what comes next."""
        self._saying = None
        last = ctx.messages[-1] if ctx.messages else None
        if isinstance(last, ModelResponse) and self._asked_at:
            self._journal.meter.time(last, self._clock() - self._asked_at)
            self._asked_at = 0.0
            if any(isinstance(part, ToolCallPart) for part in last.parts):
                await self._note(messages=ctx.messages)
        return result

    async def on_event(self, ctx: RunContext[Any], *, event: Any) -> None:
        """Send a live frame; it never waits and never fails."""
        if isinstance(event, CustomEvent):
            # The application says of some events that they are for its own handlers, not for people.
            if event.ui:
                self._draft(self._drafts.take(event))
            return
        if isinstance(event, FunctionToolResultEvent):
            self._returned.append(event.part)
            self._draft(self._drafts.end(event.part.tool_call_id))
        for each in self._live.hear(event):
            if self._saying is not None and self._saying.hear(each):
                self._keep(self._saying)
            data = self._live.clean(event_data(each))
            self._outbox.put("event", data, seq=self._journal.seq)

    def _draft(self, drafts: Iterable[dict[str, Any]]) -> None:
        for data in drafts:
            self._outbox.put("draft", data, seq=self._journal.seq)

    def _keep(self, saying: Saying) -> None:
        """Store what is being said, within a second, in case this process dies."""
        if self._timer is None:
            delay = max(0.0, self._said_at + KEEP_EVERY_S - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._keep_now, saying)

    def _keep_now(self, saying: Saying) -> None:
        self._timer = None
        if saying is not self._saying:
            return
        self._said_at = self._clock()
        if self._keeping is not None and not self._keeping.done():
            self._keep(saying)
            return
        partial = self._journal.partial(saying.message(), current=lambda: self._saying is saying)
        self._keeping = asyncio.create_task(partial, name="keep what is being said")

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Leave the agent: its run waits for people. What waits in the inbox goes on waiting.

        People are not asked about what the policy denies; the agent goes on if nothing else is left.
        """
        self._begin(ctx)
        denied = await self._calls.sort_out(requests)
        asked = replace(
            requests, approvals=[call for call in requests.approvals if call.tool_call_id not in denied]
        )
        if denied and not asked.approvals and not asked.calls:
            return DeferredToolResults(approvals={id: ToolDenied(text) for id, text in denied.items()})
        raise Paused(asked, [*ctx.messages, *self.returned])

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Record a call before it runs and its outcome after; a crash in between leaves "outcome unknown"."""
        return await self._counted(call, args, handler, await self._calls.admitted(ctx, call, args))

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: Any
    ) -> Any:
        """Record a call of an output function as that of any tool."""
        return await self._calls.output(ctx, output_context, output, handler, execute=self._counted)

    async def _counted(self, call: ToolCallPart, args: Any, handler: Any, ruling: Ruling | None) -> Any:
        """Execute a call when something may start, known as running until it has ended."""
        await self._enter()
        self._tools += 1
        try:
            return await self._calls.executed(call, args, handler, ruling)
        finally:
            self._tools -= 1
            self._idle.set()
