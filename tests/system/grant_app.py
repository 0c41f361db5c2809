"""An app whose only tool does something that needs a grant, and writes down each time it does it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.support.scripted import opened
from threadhold import Hosted, Policy, Rule, Threadhold

APP: Final = f"{__file__}:app"
DONE_ENV: Final = "DONE"


async def acts_once(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Wait until everybody is here, act, and say what came of it."""
    if any(isinstance(message, ModelResponse) for message in messages):
        yield "done"
        return
    await opened(f"{os.environ[DONE_ENV]}.gate")
    yield {0: DeltaToolCall(name="act", json_args="{}", tool_call_id="c")}


agent: Agent[None, str] = Agent(FunctionModel(stream_function=acts_once))


@agent.tool_plain
async def act() -> str:
    """Do what must not be done more often than it was granted."""
    file = os.open(os.environ[DONE_ENV], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{os.getpid()}\n".encode())
    finally:
        os.close(file)
    return "acted"


def done(where: Path) -> list[str]:
    """Return which process has acted, each time."""
    return where.read_text().split() if where.exists() else []


app = Threadhold(
    agents={
        "actor": Hosted(agent, policy=Policy([Rule("granted", "deny", tools=["act"], grant="acting")])),
    }
)
