"""The app that tests run: one agent with a scripted model and tools of every kind of behaviour."""

import asyncio
import os
import time

from pydantic_ai import Agent, RunContext

from tests.support.scripted import opened, scripted_model
from threadhold import Hosted, Rejection, RunFailure, RunIdentity, Threadhold

agent: Agent[RunIdentity, str] = Agent(
    scripted_model(),
    deps_type=RunIdentity,
    instructions="Do as told.",
    system_prompt="You are scripted.",
    retries=3,
)


@agent.tool_plain
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@agent.tool_plain
async def nap(seconds: float) -> str:
    """Sleep without holding the loop."""
    await asyncio.sleep(seconds)
    return f"napped {seconds}"


@agent.tool_plain
async def hold(gate: str) -> str:
    """Wait until the test opens a gate."""
    await opened(gate)
    return "let go"


@agent.tool_plain
async def block(seconds: float) -> str:
    """Hold the loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - this is the fault that the test is about
    return f"blocked {seconds}"


@agent.tool_plain
async def reject(why: str) -> str:
    """Refuse."""
    raise Rejection(why)


@agent.tool_plain
async def fail(why: str) -> str:
    """Fail the run with a typed reason."""
    raise RunFailure(why, reason="out_of_stock")


@agent.tool_plain
async def crash(why: str) -> str:
    """Raise something nobody planned for."""
    raise LookupError(why)


@agent.tool
async def whoami(ctx: RunContext[RunIdentity]) -> str:
    """Say for whom the run acts."""
    return f"{ctx.deps.principal.id} in {ctx.deps.workspace}"


@agent.tool_plain
async def leave() -> str:
    """Try to end the process."""
    raise SystemExit(3)


@agent.tool_plain
async def slip() -> str:
    """Let a cancellation slip that is nobody else's."""
    sleeping = asyncio.ensure_future(asyncio.sleep(60))
    sleeping.cancel()
    await sleeping
    return "never"


@agent.tool
async def quit(ctx: RunContext[RunIdentity]) -> str:
    """Cancel the agent from within."""
    ctx.cancel()
    await asyncio.sleep(0)
    return "never seen"


def identity(identity: RunIdentity) -> RunIdentity:
    """Give tools the run's identity as their dependencies."""
    return identity


app = Threadhold(
    agents={name: Hosted(agent, deps=identity) for name in os.environ.get("AGENTS", "scripted").split(",")}
)
