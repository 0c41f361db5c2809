"""An app whose tool reports each call to a file: the witness of what was done, outside every database."""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic_ai import RunContext

from tests.support.agents import agent, identity
from tests.support.scripted import opened
from threadhold import Hosted, RunIdentity, Threadhold

APP: Final = f"{__file__}:app"
# The environment says where; each line is one report.
WITNESS_ENV: Final = "WITNESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one call said: that it begins, that it has ended, or that it was cancelled.

    `key` is what a system outside would know the call by; `at` is on the clock that all processes share.
    """

    what: str
    key: str
    run: str
    attempt: int
    pid: int
    at: float


def report(what: str, ctx: RunContext[RunIdentity]) -> None:
    """Write one line at once, whole even if other processes write as well."""
    run = ctx.deps.run
    line = {
        "what": what,
        "key": f"{run}:{ctx.tool_call_id}",
        "run": run,
        "attempt": ctx.deps.attempt,
        "pid": os.getpid(),
        "at": time.monotonic(),
    }
    file = os.open(os.environ[WITNESS_ENV], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def reports(witness: Path) -> list[Report]:
    """Return all reports, oldest first."""
    if not witness.exists():
        return []
    return [Report(**json.loads(line)) for line in witness.read_text().splitlines()]


@agent.tool
async def step(ctx: RunContext[RunIdentity], seconds: float = 0.0, gate: str = "") -> str:
    """Do something that must not be done twice."""
    report("begin", ctx)
    try:
        if gate:
            await opened(gate)
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        report("cancelled", ctx)
        raise
    report("end", ctx)
    return "done"


app = Threadhold(agents={"scripted": Hosted(agent, deps=identity)})
