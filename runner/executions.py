"""Executions: what somebody wants an agent to achieve, apart from the threads and runs in which it is tried."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from threadhold.runner.machine import RunStatus
from threadhold.runner.records import AttemptRecord, Request, Run, Thread

# The first of these that any thread's newest run has is the execution's.
PRECEDENCE = (
    RunStatus.RUNNING,
    RunStatus.PENDING,
    RunStatus.PAUSED,
    RunStatus.FAILED,
    RunStatus.STOPPED,
    RunStatus.COMPLETED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An intent: who wants which agent to achieve what. Its status and result follow from its threads.

    `result` is what the newest run of its first thread returned, once the execution is completed; `reason` says why it
    failed or was stopped.
    """

    id: str
    workspace: str
    principal: str
    agent: str
    mission: str
    status: RunStatus
    reason: str | None
    result: Any
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionReceipt:
    """What the start of an execution has made: its first thread, and the run that the mission started there.

    `no_worker` is True when no live worker has the agent: the run waits for one.
    """

    execution: str
    thread: str
    run: str
    message: str
    seq: int
    duplicate: bool
    no_worker: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTree:
    """A run with its attempts and requests."""

    run: Run
    attempts: tuple[AttemptRecord, ...]
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTree:
    """A thread with its newest runs, newest first."""

    thread: Thread
    runs: tuple[RunTree, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTree:
    """An execution with the threads, runs, attempts and requests in which it is tried.

    `cut_short` is True where there is more of anything than a tree holds; lists by thread and by run have all.
    """

    execution: Execution
    threads: tuple[ThreadTree, ...]
    cut_short: bool


def status_of(statuses: Collection[RunStatus]) -> RunStatus:
    """Return where an execution stands whose threads' newest runs have these statuses; pending if there is none yet.

    Whatever is still in progress decides first, then whatever did not complete.
    """
    return next((status for status in PRECEDENCE if status in statuses), RunStatus.PENDING)
