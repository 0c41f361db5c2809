"""Executions, runs, checkpoints, threads, members, requests, grants, spending and workers as rows of a table. Pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from threadhold.adapters.cli.durations import brief, since
from threadhold.adapters.cli.view import call_text, short
from threadhold.runner.checkpoints import Checkpoint
from threadhold.runner.executions import Execution
from threadhold.runner.grants import Grant
from threadhold.runner.machine import RunStatus, is_active
from threadhold.runner.records import Member, Request, Run, Thread, Why, WorkerRecord
from threadhold.runner.spend import Spend

RUN_COLUMNS: Final = ("RUN", "AGENT", "FOR", "STATUS", "ATTEMPT", "AGE", "WHERE")
REQUEST_COLUMNS: Final = ("REQUEST", "KIND", "AGE", "FOR", "ASKS")
WORKER_COLUMNS: Final = ("WORKER", "RUNS", "SEEN", "HOST", "PID", "AGENTS", "STATE")
THREAD_COLUMNS: Final = ("THREAD", "AGENT", "OWNER", "STATE", "CHANGED", "TITLE")
MEMBER_COLUMNS: Final = ("MEMBER", "MAY", "LET IN BY", "SINCE")
EXECUTION_COLUMNS: Final = ("EXECUTION", "AGENT", "FOR", "STATUS", "AGE", "MISSION")
CHECKPOINT_COLUMNS: Final = ("CHECKPOINT", "ATTEMPT", "MESSAGES", "ENDS IN", "REQUESTS", "SEQ", "AGE")
GRANT_COLUMNS: Final = ("GRANT", "CAPABILITY", "FOR", "USED", "STATUS", "AGE", "REASON")
SPEND_COLUMNS: Final = (
    "WHOSE",
    "SINCE",
    "MODEL CALLS",
    "TOOL CALLS",
    "TOKENS",
    "DOLLARS",
    "WORK",
    "SET ASIDE",
)
MISSION_CHARS_MAX: Final = 160
NO_WORKER: Final = "no worker has this agent"


def run_row(run: Run, why: Why | None, now: datetime) -> Sequence[str]:
    """Return a run as a row; `why` is known of runs that had not ended when they were listed."""
    age = since(run.created_at, now)
    told = ", ".join(part for part in (where(run, why), replay_of(run)) if part)
    return run.id, run.agent, run.principal, run.status.value, str(run.attempt), age, told


def replay_of(run: Run) -> str:
    """Return which run this one repeats, if it does."""
    return f"replay of {run.replay_of}" if run.replay_of else ""


def execution_row(execution: Execution, now: datetime) -> Sequence[str]:
    """Return an execution as a row, with as much of its mission as a line may have."""
    age, mission = since(execution.created_at, now), short(execution.mission, MISSION_CHARS_MAX)
    status = execution.status.value
    return execution.id, execution.agent, execution.principal, status, age, mission


def checkpoint_row(checkpoint: Checkpoint, now: datetime) -> Sequence[str]:
    """Return a checkpoint as a row; its requests are those that were open there."""
    counts = (
        str(checkpoint.attempt),
        str(checkpoint.messages),
        checkpoint.ends_in,
        str(len(checkpoint.requests)),
    )
    return checkpoint.id, *counts, str(checkpoint.seq), since(checkpoint.at, now)


def where(run: Run, why: Why | None) -> str:
    """Return where a run is, or how it ended."""
    if why is None or not is_active(run.status):
        error = (run.error or {}).get("message")
        return ": ".join(str(part) for part in (run.reason, error) if part)
    asked = ", stop requested" if run.stop_requested else ""
    if run.status is RunStatus.PAUSED:
        return f"waits for {waits_for(why.requests)}{asked}"
    if run.status is RunStatus.PENDING:
        return f"{'waits for a worker' if why.has_worker else NO_WORKER}{asked}"
    return f"{(why.claim or {}).get('worker', 'with nobody')}{asked}"


def waits_for(requests: Sequence[Request]) -> str:
    """Return how many answers of which kind are open."""
    kinds = Counter(request.kind for request in requests if request.status == "open")
    names = {"external": "result"}
    told = [f"{count} {names.get(kind, kind)}{'s' if count > 1 else ''}" for kind, count in kinds.items()]
    return " and ".join(told) or "answers"


def thread_row(thread: Thread, now: datetime) -> Sequence[str]:
    """Return a thread as a row."""
    changed = f"{since(thread.updated_at, now)} ago"
    return thread.id, thread.agent, thread.owner, state_of(thread), changed, thread.title or ""


def state_of(thread: Thread) -> str:
    """Return what a thread does, and whether it is put away."""
    return thread.state if thread.status == "active" else f"{thread.state}, {thread.status}"


def member_row(member: Member, now: datetime) -> Sequence[str]:
    """Return a member as a row."""
    may = "read and write" if member.access == "write" else member.access
    return member.principal, may, member.added_by, f"{since(member.added_at, now)} ago"


def request_row(request: Request, now: datetime) -> Sequence[str]:
    """Return a request as a row."""
    age = since(request.created_at, now)
    left = ""
    if request.status != "open":
        left = f" ({request.status} by {request.answered_by})"
    elif request.expires_at is not None:
        left = f" (expires in {brief((request.expires_at - now).total_seconds())})"
    asks = f"{call_text(request.tool, request.args)}{left}"
    return request.id, request.kind, age, ", ".join(request.approvers or ("anybody who may",)), asks


def grant_row(grant: Grant, now: datetime) -> Sequence[str]:
    """Return a grant as a row."""
    used, age = f"{grant.used}/{grant.uses}", since(grant.created_at, now)
    status = grant.status.replace("_", " ")
    if grant.status == "revoked":
        status += f" by {grant.revoked_by}"
    elif grant.status == "usable" and grant.expires_at is not None:
        status += f" for {brief((grant.expires_at - now).total_seconds())}"
    reason = short(grant.reason, MISSION_CHARS_MAX)
    return grant.id, grant.capability, meant_for(grant), used, status, age, reason


def meant_for(grant: Grant) -> str:
    """Return for whom a grant is, and where."""
    where = f" on thread {grant.thread}" if grant.thread else ""
    return f"{grant.principal or 'anybody'}{where}"


def spend_row(spend: Spend) -> Sequence[str]:
    """Return what was spent as a row; the periods are those of UTC."""
    since = "the beginning" if spend.since is None else f"{str(spend.since)[:10]}, by {spend.every}"
    counts = (str(spend.model_calls), str(spend.tool_calls), str(spend.tokens), spend.money)
    return f"{spend.scope} {spend.id}", since, *counts, brief(spend.seconds), _held(spend)


def _held(spend: Spend) -> str:
    """Return what is set aside for calls under way, if anything is."""
    tokens = f"{spend.held_tokens} tokens" if spend.held_tokens else ""
    money = f"{spend.held_money} dollars" if spend.held_money.strip("0.") else ""
    return ", ".join(part for part in (tokens, money) if part)


def worker_row(worker: WorkerRecord, now: datetime) -> Sequence[str]:
    """Return a worker as a row."""
    runs = f"{worker.running}/{worker.capacity}"
    takes = "runs" if worker.queue is None else f"calls of {worker.queue}"
    state = "leaving" if worker.draining else f"takes {takes}"
    seen = f"{since(worker.seen_at, now)} ago"
    return worker.id, runs, seen, worker.host, str(worker.pid), ", ".join(worker.agents), state
