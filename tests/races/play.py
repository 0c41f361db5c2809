"""An agent whose first response tells the test when it is about to end, and that keeps what it was shown."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.support.histories import texts
from tests.support.scripted import prompts
from tests.support.strict import refusals
from threadhold import Hosted, Terms, Threadhold

Ending = Literal["end", "question", "approval"]

AGENT: Final = "player"
HASTY: Final = "hasty"
CALM: Final = "calm"
EXPIRES_S: Final = {HASTY: 0.3, CALM: 3600.0}
"""The same one under other names: what it asks is denied after so long."""


@dataclass(eq=False)
class Play:
    """What the agent of one thread does: its first response ends the run or pauses it, all later ones only answer.

    Args:
        ending: how the first response ends.
        linger: seconds between the cue and that end.
        stays: whether the first response ends only after `let_go`.
        held: whether the agent waits, at its second response, for `let_go`.
    """

    ending: Ending = "end"
    linger: float = 0.0
    stays: bool = False
    held: bool = False
    cue: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    most_shown: Counter[str] = field(default_factory=Counter)
    results: set[str] = field(default_factory=set)
    done: int = 0
    refused: list[str] = field(default_factory=list)

    def see(self, messages: list[ModelMessage]) -> None:
        """Keep how often each thing that people said was in one request, the results, and what is not valid."""
        self.most_shown |= Counter(prompts(messages))
        self.results |= set(texts(messages, ToolReturnPart))
        self.refused += refusals(messages)


# By what the thread's first message says.
PLAYS: Final[dict[str, Play]] = {}


async def stream(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Play the thread's part."""
    play = PLAYS[prompts(messages)[0]]
    play.see(messages)
    if play.cue.is_set():
        yield f"answer to {len(messages)}"
        if play.held:
            await play.let_go.wait()
        return
    yield "thinking"
    play.cue.set()
    if play.stays:
        await play.let_go.wait()
    await asyncio.sleep(play.linger)
    if play.ending != "end":
        yield {1: DeltaToolCall(name=play.ending, json_args="{}", tool_call_id=f"call_{len(messages)}")}


agent: Agent[None, str] = Agent(FunctionModel(stream_function=stream, model_name="player"))


@agent.tool_plain
async def question() -> str:
    """Ask a person."""
    raise CallDeferred(kind="question")


@agent.tool(requires_approval=True)
async def approval(ctx: RunContext[None]) -> str:
    """Do what a person must allow."""
    PLAYS[prompts(ctx.messages)[0]].done += 1
    return "done as allowed"


app = Threadhold(
    agents={
        AGENT: agent,
        **{
            name: Hosted(agent, terms=Terms(expires_in=timedelta(seconds=seconds)))
            for name, seconds in EXPIRES_S.items()
        },
    }
)
