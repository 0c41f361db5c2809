"""The app of tests about interrupted histories.

Only processes that tests start import it, since it changes the shared agent.

Its model accepts only what providers accept, and keeps what it is shown.
"""

import json
import os
from pathlib import Path

from pydantic_ai import Agent, RunContext, ToolOutput
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage

from tests.support.agents import agent, identity
from tests.support.scripted import opened, stream
from tests.support.strict import SHOWN_ENV, strict_model
from threadhold import Hosted, Retry, RunIdentity, Threadhold
from threadhold.runner.history import dumped


def show(messages: list[ModelMessage]) -> None:
    """Keep a request for the test."""
    line = json.dumps(dumped(messages)) + "\n"
    with Path(os.environ[SHOWN_ENV]).open("ab") as out:
        out.write(line.encode())


def enter(gate: str) -> None:
    """Tell the test that something has begun, and how often."""
    with Path(f"{gate}.entered").open("a") as out:
        out.write("x")


@agent.tool
async def careful(ctx: RunContext[RunIdentity], gate: str) -> str:
    """Do what a person must allow, once the test lets it."""
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    enter(gate)
    await opened(gate)
    return "carefully done"


async def report(gate: str) -> str:
    """End the run with a report, once the test lets it."""
    enter(gate)
    await opened(gate)
    return "reported"


model = strict_model(stream, show=show)
agent.model = model
reporter: Agent[RunIdentity, str] = Agent(
    model, deps_type=RunIdentity, output_type=[ToolOutput(report, name="report"), str]
)
app = Threadhold(
    agents={
        "scripted": Hosted(agent, deps=identity),
        "reporter": Hosted(reporter, deps=identity),
        "stubborn": Hosted(agent, deps=identity, after_abandon=Retry(1)),
    }
)
