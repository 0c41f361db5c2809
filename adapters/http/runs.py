"""REST: runs, why they stand where they stand, and stops, under /v1."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from threadhold.adapters.http.doors import Asker, Cursor, Key, PageSize, Sender, TheDoors, TheRunner
from threadhold.adapters.http.patience import APPLIED, ThePatience, accepted, unless_draining
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import (
    AgentName,
    NewReplay,
    PrincipalId,
    RunPage,
    Stop,
    StopAll,
    StopList,
    next_cursor,
)
from threadhold.adapters.http.tags import TAGGED, Tags
from threadhold.runner.checkpoints import Replay
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Run, StopReceipt, Why

router = APIRouter(prefix="/v1")


@router.get("/runs", responses=problems())
async def list_runs(
    runner: TheRunner,
    by: Asker,
    status: Annotated[
        list[RunStatus] | None, Query(description="May be repeated; without it, runs in any status.")
    ] = None,
    agent: Annotated[AgentName | None, Query()] = None,
    principal: Annotated[PrincipalId | None, Query(description="Only those that act for it.")] = None,
    thread: Annotated[UUID | None, Query(description="Only of this thread.")] = None,
    limit: PageSize = 20,
    cursor: Cursor = None,
) -> RunPage:
    """List the runs that the caller may see, newest first."""
    items = await runner.runs(
        by=by,
        status=status,
        agent=agent,
        principal=principal,
        thread=str(thread) if thread else None,
        before=str(cursor) if cursor else None,
        limit=limit,
    )
    return RunPage(items=items, next_cursor=next_cursor(items, limit))


_READ: dict[int | str, dict[str, Any]] = {
    **TAGGED,
    200: {"headers": {**TAGGED[200]["headers"], **APPLIED}},
}


@router.get("/runs/{run}", response_model=Run, responses=_READ | problems(404))
async def get_run(
    run: str, runner: TheRunner, by: Asker, patience: ThePatience, tagged: Tags
) -> Run | Response:
    """Return a run; with `Prefer: wait=N`, once it has ended or waits for people."""
    return tagged(await patience.rest(run) or await runner.run(run, by=by))


@router.get("/runs/{run}/why", responses=problems(404))
async def explain_run(run: str, runner: TheRunner, by: Asker) -> Why:
    """Explain where a run stands: who holds it, what it waits for, and what those left who held it before."""
    return await runner.why(run, by=by)


@router.post("/runs/{run}/replay", status_code=202, responses=accepted(Replay) | problems(404, 409, 429))
async def replay_run(
    run: str,
    response: Response,
    runner: TheRunner,
    by: Sender,
    patience: ThePatience,
    body: NewReplay | None = None,
    key: Key = None,
) -> Replay:
    """Run an ended run again, from its beginning or a checkpoint of it, as a new run; the old one stays as it is."""
    replay = await runner.replay(run, by=by, checkpoint=body.checkpoint if body else None, key=key)
    response.headers["Location"] = f"/v1/runs/{replay.run}"
    if await patience.rested(replay.run):
        response.status_code = 200
    return replay


_STOPPED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Settled: the run has ended, or nothing ran."},
    202: {"model": StopReceipt, "description": "Recorded; the run has not ended yet."},
}
_ALL_STOPPED: dict[int | str, dict[str, Any]] = {
    200: {"description": "All have ended, or nothing ran."},
    202: {"model": StopList, "description": "Recorded; at least one run has not ended yet."},
}


@router.post("/threads/{thread}/stop", responses=_STOPPED | problems(404, 409))
async def stop_thread(
    thread: str,
    response: Response,
    doors: TheDoors,
    by: Asker,
    body: Stop | None = None,
    key: Key = None,
) -> StopReceipt:
    """Stop whatever runs on the thread now, also if it has not started yet."""
    wait = (body or Stop()).wait
    return await _stopped(doors.runner.stop(thread=thread, by=by, key=key, wait=wait), doors.drain, response)


@router.post("/runs/{run}/stop", responses=_STOPPED | problems(404, 409))
async def stop_run(
    run: str, response: Response, doors: TheDoors, by: Asker, body: Stop | None = None, key: Key = None
) -> StopReceipt:
    """Stop this run and no later one."""
    wait = (body or Stop()).wait
    return await _stopped(doors.runner.stop(run=run, by=by, key=key, wait=wait), doors.drain, response)


@router.post("/stop", responses=_ALL_STOPPED | problems())
async def stop_all(doors: TheDoors, by: Asker, response: Response, body: StopAll | None = None) -> StopList:
    """Stop the runs in progress that the caller may stop, newest first, at most 10,000, waiting for no ends."""
    asked = body or StopAll()
    stopping = doors.runner.stop_all(by=by, agent=asked.agent, principal=asked.principal)
    receipts = await unless_draining(stopping, doors.drain)
    response.status_code = 200 if all(receipt.settled for receipt in receipts) else 202
    return StopList(items=receipts)


async def _stopped(
    stopping: Coroutine[Any, Any, StopReceipt], drain: asyncio.Event, response: Response
) -> StopReceipt:
    receipt = await unless_draining(stopping, drain)
    response.status_code = 200 if receipt.settled else 202
    return receipt
