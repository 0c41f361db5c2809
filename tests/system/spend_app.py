"""An app under one shared budget, whose provider keeps a bill of its own: what it was asked and has said, in a file.

A line is added before anything is said, so that nothing is ever spent that is not on the bill.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaToolCall,
    FunctionModel,
    _estimate_string_tokens,
    _estimate_usage,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.support.scripted import is_open
from threadhold import Budget, Hosted, Limits, Retry, Threadhold, delegate

APP: Final = f"{__file__}:app"
BILL_ENV: Final = "BILL"
CAP_ENV: Final = "CAP"
MAX_TOKENS: Final = 100
SAYS: Final = "so it goes on and on, and nobody knows for how long"
PAUSE_S: Final = 0.01


def bill(tokens: int) -> None:
    """Add one line to the bill, whole even if other processes write as well."""
    file = os.open(os.environ[BILL_ENV], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{os.getpid()} {tokens}\n".encode())
    finally:
        os.close(file)


async def hung() -> None:
    """Hang, and say so, for as long as the test wants this process to be in the middle of a call."""
    while is_open(f"{os.environ[BILL_ENV]}.hang-{os.getpid()}"):
        say_hung()
        await asyncio.sleep(PAUSE_S)


def say_hung() -> None:
    """Tell the test that a call of this process hangs."""
    Path(f"{os.environ[BILL_ENV]}.hung-{os.getpid()}").touch()


async def said() -> AsyncIterator[str]:
    """Say something in a few pieces."""
    for word in SAYS.split(", "):
        bill(_estimate_string_tokens(word))
        yield word
        await asyncio.sleep(PAUSE_S)


async def never_ends(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Say something and call a tool, each time: as an agent that succeeds for ever."""
    bill(_estimate_usage([]).input_tokens)
    await hung()
    async for word in said():
        yield word
    tool = "ask" if len(messages) % 4 == 3 else "work"
    bill(_estimate_string_tokens("{}"))
    yield {0: DeltaToolCall(name=tool, json_args="{}", tool_call_id=f"c{len(messages)}")}


async def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer, as the agent that is asked by the other one."""
    usage = RequestUsage(input_tokens=40, output_tokens=9)
    bill(usage.input_tokens)
    await hung()
    await asyncio.sleep(PAUSE_S)
    bill(usage.output_tokens)
    return ModelResponse(parts=[TextPart("this and that")], usage=usage)


SETTINGS: Final = ModelSettings(max_tokens=MAX_TOKENS)
expert = Agent(FunctionModel(answers, model_name="expert"), name="expert", model_settings=SETTINGS)
agent = Agent(FunctionModel(stream_function=never_ends, model_name="m"), model_settings=SETTINGS)


@agent.tool_plain
async def work() -> str:
    """Do something."""
    return "done"


@agent.tool_plain
async def ask() -> str:
    """Ask the other agent."""
    return (await delegate(expert, "and?")).output


cap = Limits(tokens=int(os.environ.get(CAP_ENV, "10000")))
app = Threadhold(
    agents={"spender": Hosted(agent, budget=Budget("shared", workspace=cap), after_abandon=Retry(times=5))}
)
