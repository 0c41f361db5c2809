"""From a wait to a result: where the thread stands, and what to ask the person at the other end."""

from typing import Any

from threadhold.adapters.mcp.asking import asked
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.schemas import Asked, Status
from threadhold.adapters.mcp.view import FINAL, View


async def stand(desk: Desk, view: View) -> dict[str, Any]:
    """Return the fields of a `Standing` as of what was seen; where too little was seen, as of now."""
    status = view.status
    known = (view.output, view.reason, view.error) if status in FINAL else (None, None, None)
    output, reason, error = known
    if status in (None, "idle") and view.run is not None:
        run = await desk.run(view.run)
        status, reason, error, output = run.status.value, run.reason, run.error, run.output
    elif status is None and view.is_waiting:
        status = "pending"
    elif status is None:
        thread = await desk.thread(view.thread)
        status = "running" if thread.state == "busy" else thread.state
        view.run = thread.current_run
    return {
        "thread": view.thread,
        "run": view.run,
        "status": status,
        "cursor": view.cursor,
        "text": view.text,
        "output": output,
        "reason": reason,
        "error": error,
        "note": view.note,
        "requests": await open_requests(desk, view.thread) if status == "paused" else [],
    }


def as_seen(view: View, note: str) -> dict[str, Any]:
    """Return the fields of a `Standing` from what was seen alone, when nothing more can be learned."""
    status: Status = view.status or "pending"
    known = {"output": view.output, "reason": view.reason, "error": view.error} if status in FINAL else {}
    return {
        "thread": view.thread,
        "run": view.run,
        "status": status,
        "cursor": view.cursor,
        "text": view.text,
        "note": note,
        **known,
    }


async def open_requests(desk: Desk, thread: str) -> list[Asked]:
    """Return what a paused thread waits for, oldest first."""
    return [asked(each) for each in reversed(await desk.requests(thread=thread))]
