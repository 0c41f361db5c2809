"""The app of the chaos suite: every model request and every tool call is reported to the outside witness."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent, CallDeferred, RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.settings import ModelSettings

from tests.chaos.script import due, shown, signed, signs
from tests.chaos.witness import PATH, Reporter
from tests.support.strict import refusals
from threadhold import Budget, Hosted, Limits, Retry, RunIdentity, Threadhold

TICK_S = 0.05
# A loop that was late by so much is reported: meanwhile nothing in its process could be cancelled.
STALLED_S = 0.25

_identity: ContextVar[RunIdentity] = ContextVar("identity")
_ticking: set[asyncio.Task[None]] = set()


@cache
def reporter() -> Reporter:
    """Return this process's connection to the witness."""
    return Reporter(os.environ[PATH])


@contextmanager
def witnessed(what: str, identity: RunIdentity, **fields: Any) -> Iterator[None]:
    """Report the begin and the end of a call."""
    where = {name: getattr(identity, name) for name in ("thread", "run", "attempt", "fence")}
    call = {**where, "call": uuid4().hex}
    reporter().tell(what, phase="begin", **call, **fields)
    try:
        yield
    finally:
        reporter().tell(what, phase="end", **call)


class WitnessedModel(FunctionModel):
    """A provider that plays the script of the newest message and refuses what real ones would refuse."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream one response."""
        assert run_context is not None
        identity: RunIdentity = run_context.deps
        _identity.set(identity)
        tags, told = shown(messages)
        with witnessed("model", identity, tags=tags, told=told, signs=signs(messages), step=due(messages)):
            if complaints := refusals(messages):
                why = "; ".join(complaints)
                reporter().tell("invalid", thread=identity.thread, run=identity.run, why=why)
                raise RuntimeError(f"400: {why}")
            async with super().request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                yield stream


async def play(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Play the step that is due."""
    fence = _identity.get().fence
    verb, _, rest = due(messages).partition(" ")
    match verb:
        case "call":
            yield signed("calling", fence)
            for index, call in enumerate(due(messages).split("+"), start=1):
                _, tool, seconds = call.split()
                json_args = f'{{"seconds": {seconds}}}'
                yield {index: DeltaToolCall(name=tool, json_args=json_args, tool_call_id=uuid4().hex)}
        case "raise":
            raise RuntimeError("the provider is out of order")
        case _:
            count, _, pause = rest.partition(" ")
            for number in range(int(count or 1)):
                await asyncio.sleep(float(pause or 0))
                yield f"w{number} "
            yield signed("done", fence)


agent: Agent[RunIdentity, str] = Agent(
    WitnessedModel(stream_function=play, model_name="witnessed"), deps_type=RunIdentity, retries=3
)


@agent.tool
async def nap(ctx: RunContext[RunIdentity], seconds: float) -> str:
    """Sleep without holding the loop."""
    with witnessed("tool", ctx.deps, tool="nap", id=ctx.tool_call_id):
        await asyncio.sleep(seconds)
    return signed("napped", ctx.deps.fence)


@agent.tool
async def block(ctx: RunContext[RunIdentity], seconds: float) -> str:
    """Hold the loop."""
    with witnessed("tool", ctx.deps, tool="block", id=ctx.tool_call_id):
        time.sleep(seconds)  # noqa: ASYNC251 - this is the fault
    return signed("blocked", ctx.deps.fence)


@agent.tool_plain
async def ask(seconds: float) -> str:
    """Ask a person."""
    raise CallDeferred(metadata={"seconds": seconds}, kind="question")


@agent.tool(requires_approval=True)
async def sign_off(ctx: RunContext[RunIdentity], seconds: float) -> str:
    """Do what a person has to approve."""
    with witnessed("tool", ctx.deps, tool="sign_off", id=ctx.tool_call_id):
        await asyncio.sleep(seconds)
    return signed("done as approved", ctx.deps.fence)


async def _tick() -> None:
    """Report when this process's loop stood still."""
    last = time.monotonic()
    for _ in itertools.count():
        await asyncio.sleep(TICK_S)
        now = time.monotonic()
        if now - last > STALLED_S:
            reporter().tell("stalled", since=last, until=now)
        last = now


def identify(identity: RunIdentity) -> RunIdentity:
    """Give the agent its identity, and see that this process's loop is watched."""
    if not _ticking:
        _ticking.add(asyncio.get_running_loop().create_task(_tick(), name="witness tick"))
    return identity


# Never used up: that what is set aside and what is settled add up whatever happens is for the audit to see.
PLENTY = Budget("plenty", run=Limits(tokens=10**12), workspace=Limits(tokens=10**15, every="month"))
app = Threadhold(
    agents={
        "chaos": Hosted(agent, deps=identify, budget=PLENTY),
        "stubborn": Hosted(agent, deps=identify, after_abandon=Retry(2), budget=PLENTY),
    }
)
