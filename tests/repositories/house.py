"""What the checks of the suite begin with: a house with empty stores, and records brought to where they are to be."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from threadhold.runner.machine import RunStatus
from threadhold.runner.repositories import (
    PendingRequest,
    Run,
    RunRepository,
    ThreadMemoryBinding,
)

S = RunStatus
MEMORY: Final = (ThreadMemoryBinding("kv", "main", "ada"), ThreadMemoryBinding("kv", "main", "team"))
ASK: Final = PendingRequest(tool="pay", args={"euros": 12.0})


@dataclass(frozen=True)
class House:
    """Two stores of one workspace, and one of another; `answer` decides what a paused run waits for."""

    store: RunRepository
    other: RunRepository
    foreign: RunRepository
    answer: Callable[[str], Awaitable[None]]


Check = Callable[[House], Awaitable[None]]
CHECKS: Final[dict[str, Check]] = {}


def check(function: Check) -> Check:
    """Add a check to the suite."""
    CHECKS[function.__name__] = function
    return function


def new(**fields: Any) -> Run:
    """Return a record that is not stored."""
    return Run(**{"run_id": str(uuid4()), "agent": "a", **fields})


async def brought(house: House, status: RunStatus, **fields: Any) -> Run:
    """Store a record and bring its run to a status."""
    run = await house.store.create(new(**fields))
    if status is S.PENDING:
        return run
    run = await house.store.transition(run.run_id, S.RUNNING)
    if status is S.RUNNING:
        return run
    more = {"pending_request": ASK} if status is S.PAUSED else {}
    return await house.store.transition(run.run_id, status, **more)


async def stored(house: House, run: Run) -> tuple[Any, ...]:
    """Return all that is known of a run and its thread, to see that nothing was written."""
    thread = await house.store.resolve(run.thread_id, agent=run.agent)
    return await house.store.get(run.run_id), await house.store.list(run.thread_id), thread


def revised_to(run: Run, status: RunStatus) -> Run:
    """Return a record of another status, with what it takes."""
    return run.model_copy(
        update={"status": status, "pending_request": ASK, "channels": {"tried": status.value}}
    )
