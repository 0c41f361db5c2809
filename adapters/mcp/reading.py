"""Threads and runs as tools and resources show them."""

import asyncio
from typing import Any, Final

from pydantic_core import to_jsonable_python

from threadhold.adapters.mcp.asking import asked
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.schemas import RunInfo, Stopped, ThreadInfo
from threadhold.runner.records import StopReceipt, Thread

THREAD_URI: Final = "threadhold://threads/"
RUN_URI: Final = "threadhold://runs/"
RUNS_SHOWN: Final = 10


def thread_info(thread: Thread) -> ThreadInfo:
    """Return a thread as it stands in a list."""
    return ThreadInfo(
        thread=thread.id,
        agent=thread.agent,
        title=thread.title,
        state=thread.state,
        status=thread.status,
        owner=thread.owner,
        current_run=thread.current_run,
        updated_at=thread.updated_at.isoformat(),
        uri=THREAD_URI + thread.id,
    )


async def run_info(desk: Desk, id: str) -> RunInfo:
    """Return a run with what is known of it."""
    why = await desk.why(id)
    run = why.run
    return RunInfo(
        run=run.id,
        thread=run.thread,
        agent=run.agent,
        principal=run.principal,
        status=run.status.value,
        reason=run.reason,
        error=run.error,
        output=run.output,
        attempts=len(why.attempts),
        stop_requested=run.stop_requested,
        tools=why.tools,
        requests=[asked(each) for each in why.requests if each.status == "open"],
        has_worker=why.has_worker,
        created_at=run.created_at.isoformat(),
        started_at=run.started_at.isoformat() if run.started_at else None,
        ended_at=run.ended_at.isoformat() if run.ended_at else None,
        uri=RUN_URI + run.id,
    )


def stopped(receipt: StopReceipt) -> Stopped:
    """Return what a stop did."""
    return Stopped(
        thread=receipt.thread,
        run=receipt.run,
        settled=receipt.settled,
        status=receipt.status.value if receipt.status else None,
        tools=receipt.tools,
    )


async def thread_page(desk: Desk, id: str) -> dict[str, Any]:
    """Return a thread with its newest runs and open requests, as JSON values."""
    thread = await desk.thread(id)
    runs, requests = await asyncio.gather(
        desk.runs(thread=thread.id, limit=RUNS_SHOWN), desk.requests(thread=thread.id)
    )
    page: dict[str, Any] = to_jsonable_python(
        {"thread": thread, "runs": runs, "requests": [asked(each) for each in requests]}
    )
    return page
