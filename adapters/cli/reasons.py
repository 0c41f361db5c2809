"""Why a run stands where it stands, in sentences for whoever is on call. Pure."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from threadhold.adapters.cli.deciding import options
from threadhold.adapters.cli.durations import brief, clock, since
from threadhold.adapters.cli.governed import admission, decisions, spending, spent
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.view import call_text
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import AttemptRecord, Request, Run, Why

CAUSES: Final = {
    "killed": "its process died",
    "lost claim": "it did not renew its claim in time: frozen, cut off from the database, or overloaded",
    "storage": "the database was away for longer than the claim lasts, or was started again",
    "loop blocked": "a tool held up the whole process, so that it could not do anything else",
    "drain": "it was told to leave, and a tool did not end in time",
}
_FATES: Final = {
    "finished": "finished",
    "never_started": "never started",
    "still_running": "not finished",
    "unknown": "with an unknown outcome",
}


def sentences(why: Why, now: datetime) -> list[str]:
    """Return what is to be said, most telling first; lines that belong to the one before are indented."""
    return [
        *_head(why, now),
        *_losses(why),
        *_attempts(why),
        *_tools(why),
        *spending(why),
        *decisions(why),
    ]


def _head(why: Why, now: datetime) -> Iterator[str]:
    run = why.run
    yield f"Run {run.id} of agent {run.agent}, for {run.principal}, on thread {run.thread}."
    yield admission(run)
    if run.replay_of is not None:
        yield f"It is a replay of run {run.replay_of}, from {run.replay_from}."
    if run.ended_at is not None:
        yield _ended(run, now)
    elif run.status is RunStatus.PAUSED:
        yield from _paused(why, now)
    elif run.status is RunStatus.PENDING:
        yield _pending(why, now)
    else:
        yield _running(why)
    if why.stop is not None and run.status is not RunStatus.STOPPED:
        yield f"{_stop(why.stop)}; it has not ended yet." if run.ended_at is None else f"{_stop(why.stop)}."
    elif why.stop is not None:
        yield f"{_stop(why.stop)}."


def _ended(run: Run, now: datetime) -> str:
    assert run.ended_at is not None
    error = run.error or {}
    reason = f" ({run.reason.replace('_', ' ')})" if run.reason else ""
    said = f": {error['message']}" if error.get("message") else ""
    return f"It {_was(run.status)}{reason} at {clock(run.ended_at)}, {since(run.ended_at, now)} ago{said}."


def _was(status: RunStatus) -> str:
    return {RunStatus.COMPLETED: "completed", RunStatus.STOPPED: "was stopped"}.get(status, "failed")


def _running(why: Why) -> str:
    claim = why.claim
    if claim is None:
        return "It is running, but nobody holds it any more; that should pass within a second."
    left = float(claim.get("expires_in_s") or 0)
    held = (
        f"It is running on worker {claim.get('worker')}, which holds it since {clock(claim['acquired_at'])}"
    )
    if left <= 0:
        others = "Others take over soon." if why.has_worker else "No other one has the agent: start one."
        return f"{held}. Its claim ran out {brief(-left)} ago: the worker seems to be gone. {others}"
    return f"{held}; the claim is good for {brief(left)} more and is renewed all the time."


def _pending(why: Why, now: datetime) -> str:
    again = f" again (attempt {why.run.attempt + 1})" if why.run.attempt else ""
    waits = f"It waits to be started{again}"
    if not why.has_worker:
        return (
            f"{waits}, but no worker that is up has the agent {why.run.agent!r}. "
            f"Start one: `{program()} worker TARGET`."
        )
    return f"{waits}; asked for {since(why.run.created_at, now)} ago. Workers that have its agent may all be busy."


def _paused(why: Why, now: datetime) -> Iterator[str]:
    yield "It is paused and holds no worker; it goes on when people have answered:"
    for request in why.requests:
        if request.status == "open":
            asked = f"asked {since(request.created_at, now)} ago{_who(request, now)}"
            yield f"  {request.kind} {call_text(request.tool, request.args)}, {asked}"
            yield f"    {program()} answer {request.id} {options(request.kind)}"


def _who(request: Request, now: datetime) -> str:
    by = f"; only by {', '.join(request.approvers)}" if request.approvers else ""
    # Of a question it says nothing: whoever asked may answer it.
    apart = request.other_only and request.kind == "approval"
    other = f"; not by {request.requested_by}" if apart else ""
    if request.expires_at is None:
        return f"{by}{other}"
    return f"{by}{other}; denied by itself in {brief((request.expires_at - now).total_seconds())}"


def _stop(stop: dict[str, Any]) -> str:
    what = "everything on its thread" if stop.get("scope") == "thread" else "it"
    reason = str(stop.get("reason") or "")
    how = " by sending a message that interrupts" if reason == "interrupted_by_message" else ""
    return f"{stop.get('by')} asked to stop {what}{how} at {clock(str(stop.get('at')))}"


def _losses(why: Why) -> Iterator[str]:
    for lost in why.lost:
        cause = str(lost.get("cause"))
        yield (
            f"Attempt {lost.get('attempt')} was lost at {clock(str(lost.get('at')))}. "
            f"Worker {lost.get('worker')}: {CAUSES.get(cause, cause)}."
        )
        yield f"  {_lease(lost)} The last thing recorded was #{lost.get('last_seq')}."
        yield f"  {_unknown(lost.get('unknown_calls') or [])}"
        yield f"  Spent until then: {spent(lost.get('spend') or {})}."


def _lease(lost: dict[str, Any]) -> str:
    age, silent = lost.get("lease_age_s"), lost.get("silent_s")
    held = (
        f"It had held the run for {brief(float(age))}" if age is not None else "Nobody held the run any more"
    )
    return f"{held}, silent for the last {brief(float(silent))}." if silent is not None else f"{held}."


def _unknown(calls: list[dict[str, Any]]) -> str:
    if not calls:
        return "No tool was running: nothing was done that is not on record."
    names = ", ".join(f"{call.get('tool')} ({call.get('call_id')})" for call in calls)
    return f"Nobody knows whether these tool calls did their work; look at what they act on: {names}."


def _attempts(why: Why) -> Iterator[str]:
    if not why.attempts:
        yield "No worker has taken it so far."
        return
    yield "Attempts:"
    for attempt in why.attempts:
        yield f"  {attempt_line(attempt)}"


def attempt_line(attempt: AttemptRecord) -> str:
    """Return an attempt on one line: its number, its times, its worker, its end."""
    return f"{attempt.attempt}  {_times(attempt)}  {attempt.worker}  {_outcome(attempt)}"


def _times(attempt: AttemptRecord) -> str:
    end = clock(attempt.closed_at) if attempt.closed_at is not None else "now     "
    return f"{clock(attempt.started_at)} to {end}"


def _outcome(attempt: AttemptRecord) -> str:
    if attempt.outcome is None:
        return "in progress"
    words = {"interrupted": "paused", "handed_over": "handed over to another worker"}
    said = words.get(attempt.outcome.value, attempt.outcome.value)
    return f"{said} ({attempt.cause})" if attempt.cause else said


def _tools(why: Why) -> Iterator[str]:
    counts = Counter(why.tools.values())
    unknown = ", ".join(call for call, fate in why.tools.items() if fate == "unknown")
    told = [
        f"{count} {_FATES.get(fate, fate)}{f' ({unknown})' if fate == 'unknown' else ''}"
        for fate, count in counts.items()
    ]
    if told:
        yield f"Tool calls: {', '.join(told)}."
