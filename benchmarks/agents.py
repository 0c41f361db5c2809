"""The app that is measured: one agent that does as the message says and stamps when it was reached.

noop                  answer at once
events N PAUSE        emit N events of its own, PAUSE seconds apart, each with its time
deltas N PAUSE        stream N text deltas, PAUSE seconds apart, each with its time
stream                stream a word every 20 ms until stopped, for half a minute at most
"""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from pydantic_ai import Agent, CustomEvent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from benchmarks.stamps import Stamper, now
from threadhold import Below, Budget, Hosted, Limits, Policy, Rule, RunIdentity, Threadhold

WORDS_MAX: Final = 1500
WORD_EVERY_S: Final = 0.02
STREAMING_AFTER: Final = 3

stamper = Stamper()
_run: ContextVar[str] = ContextVar("run")


@dataclass(kw_only=True)
class StampedEvent(CustomEvent):
    """An event that says when it was emitted."""

    stamp: float


def first_line(identity: RunIdentity) -> RunIdentity:
    """Stamp the first line of an application's code that runs on a worker."""
    at = now()
    stamper.send("deps", identity.run, at)
    _run.set(identity.run)
    return identity


async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Do as the message says."""
    at = now()
    if any(isinstance(message, ModelResponse) for message in messages):
        yield "done"
        return
    run = _run.get()
    stamper.send("model", run, at)
    match _told(messages).split():
        case ["events", count, pause]:
            args = f'{{"count": {int(count)}, "pause": {float(pause)}}}'
            yield {0: DeltaToolCall(name="emit_events", json_args=args, tool_call_id="events")}
        case ["deltas", count, pause]:
            yield "a part begins with an event, and deltas follow: "
            for _ in range(int(count)):
                await asyncio.sleep(float(pause))
                yield f"{now()!r} "
        case ["stream"]:
            for word in range(WORDS_MAX):
                yield f"w{word} "
                if word == STREAMING_AFTER:
                    stamper.send("streaming", run, now())
                await asyncio.sleep(WORD_EVERY_S)
        case _:
            yield "ok"


def _told(messages: list[ModelMessage]) -> str:
    prompts = [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return prompts[-1]


agent: Agent[RunIdentity, str] = Agent(
    FunctionModel(stream_function=answer, model_name="bench"), deps_type=RunIdentity
)


@agent.tool
async def emit_events(ctx: RunContext[RunIdentity], count: int, pause: float) -> str:
    """Emit events, each with its time."""
    for _ in range(count):
        await asyncio.sleep(pause)
        await ctx.emit(StampedEvent(stamp=now()))
    return "emitted"


async def worked(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Call a tool in each of N answers ("steps N"), or N tools in one ("tools N"), and end."""
    what, number = _told(messages).split()
    answers = sum(isinstance(message, ModelResponse) for message in messages)
    steps, calls = (int(number), 1) if what == "steps" else (1, int(number))
    if answers >= steps:
        yield "done"
        return
    for call in range(calls):
        id = f"{answers}-{call}"
        yield {call: DeltaToolCall(name="nothing", json_args='{"sum": 5}', tool_call_id=id)}


worker: Agent[None, str] = Agent(
    FunctionModel(stream_function=worked, model_name="gpt-5"), model_settings={"max_tokens": 100}
)


@worker.tool_plain
async def nothing(sum: int) -> str:
    """Do nothing, so that only what is around it takes time."""
    return "ok"


MUCH: Final = Limits(
    model_calls=10**9, tool_calls=10**9, tokens=10**12, seconds=10**9, money=Decimal(10**9), every="month"
)
POLICY: Final = Policy(
    [
        *(Rule(f"not {number}", "deny", tools=["pay"], args={"sum": number}) for number in range(8)),
        Rule("small sums", "allow", tools=["nothing"], args={"sum": Below(100)}),
    ],
    otherwise="deny",
)
BUDGET: Final = Budget(
    "much",
    run=replace(MUCH, every=None),
    thread=MUCH,
    principal=MUCH,
    workspace=MUCH,
)

app = Threadhold(
    agents={
        "bench": Hosted(agent, deps=first_line),
        "free": Hosted(worker),
        "with-policy": Hosted(worker, policy=POLICY),
        "with-budget": Hosted(worker, budget=BUDGET),
        "governed": Hosted(worker, policy=POLICY, budget=BUDGET),
    }
)
