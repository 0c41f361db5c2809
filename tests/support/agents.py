"""The app that tests run: one agent with a scripted model and tools of every kind of behaviour."""

import asyncio
import ctypes
import os
import time
from dataclasses import dataclass
from datetime import timedelta

from pydantic_ai import Agent, CustomEvent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

from tests.support.scripted import opened, scripted_model
from threadhold import Hosted, Rejection, RunFailure, RunIdentity, Terms, Threadhold

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


# As a catastrophic regular expression does, these two keep the interpreter's lock: nothing else runs meanwhile. It is
# the tool itself that calls into C, so that the same function is found on a stack and in the agent.
@agent.tool_plain
async def grip(seconds: float) -> str:
    """Hold the interpreter, in the loop."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return f"held {seconds}"


@agent.tool_plain
def clutch(seconds: float) -> str:
    """Hold the interpreter, as a plain function that runs in a thread."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return f"held {seconds}"


@dataclass(kw_only=True)
class ProgressEvent(CustomEvent):
    """How far a tool has come."""

    done: int
    total: int


@agent.tool
async def report(ctx: RunContext[RunIdentity], total: int, gate: str = "") -> str:
    """Tell the watchers how far it has come; wait at a gate halfway, if one is named."""
    for done in range(1, total + 1):
        await ctx.emit(ProgressEvent(done=done, total=total))
        if gate and done == total // 2:
            await opened(gate)
    return f"did {total}"


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


@agent.tool_plain(requires_approval=True)
async def pay(amount: int, to: str = "anybody") -> str:
    """Do what a person must allow."""
    return f"paid {amount} to {to}"


@agent.tool
async def guarded(
    ctx: RunContext[RunIdentity], expires_s: float | None = None, approvers: list[str] | None = None
) -> str:
    """Do what somebody else must allow, for a while."""
    if not ctx.tool_call_approved:
        expires_in = None if expires_s is None else timedelta(seconds=expires_s)
        terms = Terms(other_only=True, approvers=approvers, expires_in=expires_in)
        raise ApprovalRequired(metadata={"note": "think twice", **terms.metadata()})
    return "guarded done"


@agent.tool_plain
async def ask(question: str) -> str:
    """Ask a person."""
    raise CallDeferred(metadata={"question": question}, kind="question")


@agent.tool_plain
async def outside(job: str) -> str:
    """Let something else do it."""
    raise CallDeferred(metadata={"job": job})


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
