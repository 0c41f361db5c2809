"""The app that is measured: one agent that does as the message says and stamps when it was reached.

noop                  answer at once
events N PAUSE        emit N events of its own, PAUSE seconds apart, each with its time
deltas N PAUSE        stream N text deltas, PAUSE seconds apart, each with its time
stream                stream a word every 20 ms until stopped, for half a minute at most
"""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from pydantic_ai import Agent, CustomEvent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from benchmarks.stamps import Stamper, now
from threadhold import Hosted, RunIdentity, Threadhold

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


app = Threadhold(agents={"bench": Hosted(agent, deps=first_line)})
