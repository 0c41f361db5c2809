"""Records as the Runner returns them, with whatever a test wants to be different."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from threadhold.fanout.frame import Frame, Kind
from threadhold.runner.checkpoints import Checkpoint
from threadhold.runner.decisions import args_hash
from threadhold.runner.executions import Execution
from threadhold.runner.machine import AttemptOutcome, RunStatus
from threadhold.runner.records import AttemptRecord, Request, Run, Why, WorkerRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AGENT = "support"
ARGS: dict[str, Any] = {"order": "A-1003", "euros": 240}


# What frames of a kind have at least.
_LEAST: dict[Kind, dict[str, Any]] = {
    "fact": {"fact": "noted"},
    "attempt": {"attempt": 1},
    "event": {"event_kind": "part_delta"},
    "draft": {"event_kind": "custom", "name": "told"},
    "gap": {},
    "head": {"state": "idle"},
    "end": {"state": "idle"},
}


def frame_of(thread: str, seq: int, kind: Kind, **data: Any) -> Frame:
    """Return a frame as a server sends it."""
    live = kind in ("attempt", "event", "draft")
    return Frame(
        thread=thread, run="run-1" if live else None, fence=1, n=int(live), seq=seq, kind=kind,
        at=NOW.isoformat(), data=_LEAST[kind] | data,
    )  # fmt: skip


def run_of(id: str = "run-1", **changes: Any) -> Run:
    """Return a run that is running."""
    run = Run(
        id=id, thread="t", agent=AGENT, principal="local", status=RunStatus.RUNNING, reason=None, error=None,
        attempt=1, first_seq=1, stop_requested=False, created_at=NOW, started_at=NOW, ended_at=None,
    )  # fmt: skip
    return replace(run, **changes)


def execution_of(id: str = "execution-1", **changes: Any) -> Execution:
    """Return an execution that is running."""
    execution = Execution(
        id=id, workspace="default", principal="local", agent=AGENT, mission="find out why", status=RunStatus.RUNNING,
        reason=None, result=None, created_at=NOW, ended_at=None,
    )  # fmt: skip
    return replace(execution, **changes)


def checkpoint_of(id: str = "run-1.1", **changes: Any) -> Checkpoint:
    """Return the position in which a run has said what it was asked."""
    checkpoint = Checkpoint(
        id=id, run=id.partition(".")[0], thread="t", attempt=1, parent=None, messages=1, ends_in="request",
        requests=(), seq=3, fence=1, at=NOW,
    )  # fmt: skip
    return replace(checkpoint, **changes)


def request_of(id: str = "request-1", **changes: Any) -> Request:
    """Return an approval that nobody has decided yet."""
    request = Request(
        id=id, thread="t", run="run-1", attempt=1, kind="approval", call_id="call-1", tool="refund", args=ARGS,
        args_hash=args_hash(ARGS), requested_by="ada", other_only=False, approvers=None, metadata={},
        status="open", answer=None, answered_by=None, answered_at=None, expires_at=None, created_at=NOW,
    )  # fmt: skip
    return replace(request, **changes)


def attempt_of(number: int = 1, **changes: Any) -> AttemptRecord:
    """Return an attempt that was handed over."""
    attempt = AttemptRecord(
        run="run-1", attempt=number, fence=number, worker="w1-0123456789ab", cause="drain",
        outcome=AttemptOutcome.HANDED_OVER, started_at=NOW, closed_at=NOW,
    )  # fmt: skip
    return replace(attempt, **changes)


def why_of(run: Run, **changes: Any) -> Why:
    """Return why a run stands where it stands; a running one is held by the worker of its attempt."""
    held = run.status is RunStatus.RUNNING
    open_one = attempt_of(run.attempt, run=run.id, outcome=None, cause=None, closed_at=None)
    claim = {"worker": open_one.worker, "fence": 1, "acquired_at": str(NOW), "expires_in_s": 12.5}
    why = Why(
        run=run, attempts=(open_one,) if held else (), tools={}, requests=(), stop=None, lost=(),
        claim=claim if held else None, has_worker=True,
    )  # fmt: skip
    return replace(why, **changes)


def worker_of(id: str = "w1-0123456789ab", **changes: Any) -> WorkerRecord:
    """Return a worker with one run."""
    worker = WorkerRecord(
        id=id, agents=(AGENT, "other"), capacity=50, running=1, host="host-a", pid=42, draining=False,
        started_at=NOW, seen_at=NOW,
    )  # fmt: skip
    return replace(worker, **changes)
