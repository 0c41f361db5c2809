"""Runs as tasks of the extension `io.modelcontextprotocol/tasks`: the id of a task is that of its run.

A task is read off the run whenever somebody asks, so any replica can tell of it, whoever started the run and through
whichever door.
"""

from datetime import datetime
from typing import Any, Final, Literal

from threadhold.adapters.mcp import schemas
from threadhold.adapters.mcp.asking import can_be_asked
from threadhold.adapters.mcp.call import form_request, result
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.standing import open_requests
from threadhold.adapters.mcp.telling import standing_text
from threadhold.adapters.mcp.view import View
from threadhold.adapters.mcp.waiting import read_through, start_of
from threadhold.fanout.frame import Frame
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Request, Run

POLL_MS: Final = 1000
# What the call that got a task would have said instead.
STANDING_KEY: Final = "threadhold/standing"
_BOUND: Final = "."

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
# A run that failed is a result of its tool like any other: `failed` is for calls that have none at all.
STATUSES: Final[dict[RunStatus, TaskStatus]] = {
    RunStatus.PENDING: "working",
    RunStatus.RUNNING: "working",
    RunStatus.PAUSED: "input_required",
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "completed",
    RunStatus.STOPPED: "cancelled",
}


async def created(desk: Desk, standing: schemas.Standing) -> dict[str, Any]:
    """Return a task in place of the result of a call that waited long enough.

    Raises:
        What the desk raises.
    """
    assert standing.run is not None, "a task is a run"
    run = await desk.run(standing.run)
    meta = {STANDING_KEY: standing.model_dump(mode="json", exclude_none=True)}
    return {"resultType": "task", **await _head(desk, run, standing.requests), "_meta": meta}


async def task_of(desk: Desk, id: str, *, ask: bool) -> dict[str, Any]:
    """Return a run as a task, with what goes with its status.

    Args:
        desk: where to look.
        id: the run's.
        ask: whether forms may be shown to whoever looks.

    Raises:
        What the desk raises.
    """
    run = await desk.run(id)
    requests = await open_requests(desk, run.thread) if run.status is RunStatus.PAUSED else []
    task = await _head(desk, run, requests)
    match task["status"]:
        case "input_required":
            task["inputRequests"] = _forms(requests) if ask else {}
        case "completed":
            task["result"] = await _result(desk, run)
    return task


async def _head(desk: Desk, run: Run, requests: list[schemas.Asked]) -> dict[str, Any]:
    """Return what every task has; it is kept for as long as its thread is."""
    changed = run.ended_at or (await desk.thread(run.thread)).updated_at
    head: dict[str, Any] = {
        "taskId": run.id,
        "status": STATUSES[run.status],
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": max(run.created_at, changed).isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    message = _message(run, requests)
    return {**head, "statusMessage": message} if message else head


def _message(run: Run, requests: list[schemas.Asked]) -> str:
    """Return what there is to say of a task beside its result; of a pause, what it waits for."""
    if STATUSES[run.status] == "working":
        return "being stopped" if run.stop_requested else run.status.value
    standing = schemas.Standing(
        thread=run.thread,
        run=run.id,
        status=run.status.value,
        reason=run.reason,
        error=run.error,
        requests=requests,
    )
    return standing_text(standing)


def _forms(requests: list[schemas.Asked]) -> dict[str, Any]:
    """Return the forms for what whoever looks may be asked about, by what binds an answer to what was shown."""
    return {
        bound(each): form_request(each).model_dump(by_alias=True, mode="json", exclude_none=True)
        for each in filter(can_be_asked, requests)
    }


def bound(each: schemas.Asked) -> str:
    """Return the key of a form: the request, and the hash of the arguments that the form shows."""
    return f"{each.request}{_BOUND}{each.args_hash}"


def unbound(key: str) -> tuple[str, str]:
    """Return the request and the hash that a key names; either may be empty."""
    request, _, args_hash = key.partition(_BOUND)
    return request, args_hash


class _Beginning(View):
    """Also finds the message that the run began with."""

    message: str | None = None
    disposition = "queued"

    def feed(self, frame: Frame, cursor: str) -> None:
        """Take in a frame."""
        super().feed(frame, cursor)
        if frame.run != self.run or self.message is not None:
            return
        match frame.data:
            case {"fact": "message_accepted", "message": str(message), "disposition": "started"}:
                self.message, self.disposition = message, "started"
            case {"fact": "message_delivered", "message": str(message)}:
                # It was accepted before there was a run for it.
                self.message = message


async def _result(desk: Desk, run: Run) -> dict[str, Any]:
    """Return what `send` says of a run that has ended, and `answer` where somebody has answered.

    The task does not know which of the two got it, so its values satisfy both.
    """
    view = _Beginning(run.thread, cursor=start_of(run), run=run.id)
    await read_through(desk, view)
    values = {
        "thread": run.thread,
        "run": run.id,
        "status": run.status.value,
        "cursor": view.cursor,
        "text": view.text,
        "output": view.output,
        "reason": run.reason,
        "error": run.error,
    }
    sent = _sent(view) | await _answered(desk, run)
    told = _Told.model_validate({**values, **sent})
    ended = result(told, standing_text(told))
    return ended.model_dump(by_alias=True, mode="json", exclude_none=True)


class _Told(schemas.Standing, extra="allow"):
    """A standing with whatever `send` and `answer` say beside it."""


def _sent(view: _Beginning) -> dict[str, Any]:
    if view.message is None:
        return {}
    beginning = {"message": view.message, "disposition": view.disposition}
    return {**beginning, "duplicate": False, "no_worker": False}


async def _answered(desk: Desk, run: Run) -> dict[str, Any]:
    answered = [each for each in (await desk.why(run.id)).requests if each.answered_at is not None]
    if not answered:
        return {}
    last = max(answered, key=_when)
    return {
        "request": last.id,
        "decision": last.answer,
        "by": last.answered_by,
        "duplicate": False,
        "open": 0,
    }


def _when(request: Request) -> datetime:
    assert request.answered_at is not None, "only what was answered is compared"
    return request.answered_at
