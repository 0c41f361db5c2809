"""What is on record as an outline for whoever looks into it. Pure: lines and their styles."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from threadhold.adapters.cli.durations import clock, moment
from threadhold.adapters.cli.reasons import attempt_line
from threadhold.adapters.cli.tables import replay_of, state_of, waits_for, where
from threadhold.adapters.cli.view import RESULT_CHARS_MAX, call_text, short
from threadhold.runner.checkpoints import Checkpoint
from threadhold.runner.executions import Execution, ExecutionTree, RunTree
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Thread, Why
from threadhold.runner.steps import Call, Step

Line = tuple[str, str]
_HEAD: Final = "bold"
_STATES: Final = {
    "never_started": "never started",
    "still_running": "not finished",
    "unknown": "with an unknown outcome",
}
_OUTCOMES: Final = {"retry": "refused", "denied": "denied", "failed": "failed", "unknown": "outcome unknown"}


def heading(text: str) -> Line:
    """Return a line that others stand below."""
    return text, _HEAD


def thread_lines(thread: Thread, now: datetime) -> Iterator[Line]:
    """Yield what a thread is."""
    yield heading(f"thread {thread.id}")
    yield from _fields(
        title=thread.title or "",
        agent=thread.agent,
        owner=thread.owner,
        state=state_of(thread),
        run=thread.current_run or "",
        facts=str(thread.seq),
        metadata=json.dumps(thread.metadata, ensure_ascii=False) if thread.metadata else "",
        made=moment(thread.created_at, now),
        changed=moment(thread.updated_at, now),
    )


def execution_lines(tree: ExecutionTree, now: datetime) -> Iterator[Line]:
    """Yield what an execution is, then its threads, their runs, and below these their attempts and open requests."""
    yield heading(f"execution {tree.execution.id}")
    yield from _execution(tree.execution, now)
    for each in tree.threads:
        title = f"  {each.thread.title}" if each.thread.title else ""
        yield heading(f"thread {each.thread.id}  {state_of(each.thread)}{title}")
        for run in each.runs:
            yield from _run_of_tree(run)


def _execution(execution: Execution, now: datetime) -> Iterator[Line]:
    reason = f" ({execution.reason.replace('_', ' ')})" if execution.reason else ""
    yield from _fields(
        agent=execution.agent,
        principal=execution.principal,
        status=f"{execution.status.value}{reason}",
        mission=short(execution.mission, RESULT_CHARS_MAX),
        result="" if execution.result is None else short(execution.result, RESULT_CHARS_MAX),
        made=moment(execution.created_at, now),
        ended=moment(execution.ended_at, now) if execution.ended_at else "",
    )


def _run_of_tree(tree: RunTree) -> Iterator[Line]:
    run, asked = tree.run, [request for request in tree.requests if request.status == "open"]
    waits = f"waits for {waits_for(asked)}" if run.status is RunStatus.PAUSED else where(run, None)
    told = ", ".join(part for part in (waits, replay_of(run)) if part)
    yield f"  run {run.id}  {run.status.value}{f': {told}' if told else ''}", ""
    for attempt in tree.attempts:
        yield f"    attempt {attempt_line(attempt)}", "dim"
    for request in asked:
        yield f"    {request.kind} {request.id}  {call_text(request.tool, request.args)}", "cyan"


def checkpoint_lines(checkpoint: Checkpoint, now: datetime) -> Iterator[Line]:
    """Yield what a checkpoint is."""
    yield heading(f"checkpoint {checkpoint.id}")
    yield from _fields(
        run=checkpoint.run,
        thread=checkpoint.thread,
        attempt=str(checkpoint.attempt),
        parent=checkpoint.parent or "",
        messages=str(checkpoint.messages),
        ends_in=checkpoint.ends_in,
        requests=", ".join(checkpoint.requests),
        seq=str(checkpoint.seq),
        made=moment(checkpoint.at, now),
    )


def run_lines(why: Why, steps: Sequence[Step], calls: Sequence[Call], now: datetime) -> Iterator[Line]:
    """Yield what a run is, then its attempts, in each what models answered, and below that what they called."""
    run = why.run
    yield heading(f"run {run.id}")
    detail = where(run, why)
    yield from _fields(
        thread=run.thread,
        agent=run.agent,
        principal=run.principal,
        replay_of=f"{run.replay_of}, from {run.replay_from}" if run.replay_of else "",
        status=f"{run.status.value}{f': {detail}' if detail else ''}",
        made=moment(run.created_at, now),
        started=moment(run.started_at, now) if run.started_at else "",
        ended=moment(run.ended_at, now) if run.ended_at else "",
    )
    asked: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        asked[call.seq].append(call)
    for attempt in why.attempts:
        yield heading(f"attempt {attempt_line(attempt)}")
        for step in steps:
            if step.fence == attempt.fence:
                yield from _step(step)
                for call in asked[step.seq]:
                    yield from _call(call)


def _fields(**named: str) -> Iterator[Line]:
    for name, value in named.items():
        if value:
            yield f"  {name.replace('_', ' '):10}{value}", ""


def _step(step: Step) -> Iterator[Line]:
    took = f", {step.latency_ms:.0f} ms" if step.latency_ms is not None else ""
    cost = f", {step.cost} dollars" if step.cost else ""
    cut = ", interrupted" if step.state == "interrupted" else ""
    tokens = f"{step.input_tokens} tokens in, {step.output_tokens} out"
    yield f"  #{step.seq}  {clock(step.at)}  {step.model or 'model'}: {tokens}{took}{cost}{cut}", "dim"
    if step.text.strip():
        yield f"    {short(step.text, RESULT_CHARS_MAX)}", ""


def _call(call: Call) -> Iterator[Line]:
    yield f"    -> {call_text(call.tool, call.args)}: {_fate(call)}", ""
    said = call.error if call.error is not None else call.result
    if said is not None:
        yield f"       <- {short(said, RESULT_CHARS_MAX)}", "dim"


def _fate(call: Call) -> str:
    took = f", {call.ms:.0f} ms" if call.ms is not None else ""
    if call.state == "waiting":
        return f"waits for request {call.request}"
    if call.state == "finished":
        return f"{_OUTCOMES.get(str(call.outcome), 'done')}{took}"
    return _STATES[call.state]
