"""An app some of whose tools are carried out by executors; they say where they are, and can be hard to end."""

import ctypes
import os
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed

from tests.support.scripted import scripted_model
from threadhold import Binding, Hosted, Rejection, RunFailure, RunIdentity, Threadhold, credential

APP: Final = f"{__file__}:app"
SECRET: Final = "hush-4f81-not-for-models"
HANG_S: Final = 2.0
# The processes that were asked for the secret are this one, if it is not empty.
RESOLVED: Final[list[int]] = []

agent: Agent[RunIdentity, str] = Agent(scripted_model(), deps_type=RunIdentity, retries=3)


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


@agent.tool
async def whereabouts(ctx: RunContext[RunIdentity], day: date, points: list[Point]) -> dict[str, Any]:
    """Say who is asked, where, and with what."""
    return {
        "pid": os.getpid(),
        "who": f"{ctx.deps.principal.id} in {ctx.deps.workspace}",
        "run": ctx.deps.run,
        "tool": ctx.tool_name,
        "call": ctx.tool_call_id,
        "retry": ctx.retry,
        "day": day.strftime("%d %B"),
        "sum": sum(point.x + point.y for point in points),
    }


@agent.tool_plain
def unlock(door: str) -> ToolReturn:
    """Use a secret, and say it."""
    return ToolReturn(f"{door} opened with {credential()}", content=f"and so is {door}2", metadata={"n": 1})


@agent.tool
async def trouble(ctx: RunContext[RunIdentity], kind: str) -> str:
    """Raise what is asked for."""
    match kind:
        case "rejection":
            raise Rejection("not on Sundays")
        case "retry" if ctx.retry == 0:
            raise ModelRetry("once more")
        case "failed":
            raise ToolFailed("out of order")
        case "approval" if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"note": "think twice", "by": {date(2026, 2, 3)}})
        case "crash":
            raise LookupError("no such shelf")
        case "run":
            raise RunFailure("no more bolts", reason="out_of_stock")
        case "die":
            os._exit(7)
        case "context":
            return str(len(ctx.messages))
    return f"no trouble after {ctx.retry}"


def start_some(pids: str) -> None:
    """Start processes, also one in a session of its own and one without a parent, and say which there are."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = [subprocess.Popen(sleeps, start_new_session=apart) for apart in (False, True)]
    orphan = subprocess.check_output(
        ["/bin/sh", "-c", "sleep 600 >/dev/null & echo $!"], start_new_session=True
    )
    half = Path(f"{pids}.half")
    half.write_text(f"{os.getpid()} {started[0].pid} {started[1].pid} {orphan.decode()}")
    half.rename(pids)


def hang(pids: str) -> str:
    """Start processes, and never end."""
    start_some(pids)
    time.sleep(600)
    return "never"


@agent.tool_plain
def doomed(pids: str) -> str:
    """Start processes, and never end nor let another thread run."""
    start_some(pids)
    ctypes.PyDLL(None).sleep(600)
    return "never"


for name in ("hang", "hang_long", "nobody"):
    agent.tool_plain(name=name)(hang)


async def resolve(identity: RunIdentity) -> str:
    """Return the secret."""
    RESOLVED.append(os.getpid())
    return SECRET


app = Threadhold(
    agents={
        "far": Hosted(
            agent,
            deps=lambda identity: identity,
            credentials={"vault": resolve},
            tools={
                "whereabouts": Binding(executor="lab"),
                "trouble": Binding(executor="lab"),
                "unlock": Binding(executor="lab", credentials="vault"),
                "hang": Binding(executor="lab", timeout=timedelta(seconds=HANG_S)),
                "hang_long": Binding(executor="lab"),
                "doomed": Binding(executor="doomed"),
                "nobody": Binding(executor="nowhere", timeout=timedelta(milliseconds=10)),
            },
        )
    }
)
