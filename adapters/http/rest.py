"""REST: threads, messages, runs and stops, under /v1."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from threadhold.adapters.http.doors import Asker, TheDoors, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import (
    KEY_SCHEMA,
    AgentList,
    FirstMessage,
    NewMessage,
    NewThread,
    Stop,
    ThreadPage,
)
from threadhold.runner.errors import Closed, NotFound
from threadhold.runner.records import Message, Principal, Receipt, Run, StopReceipt, Thread
from threadhold.runner.service import Runner

router = APIRouter(prefix="/v1")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Repeat a request with its key: it happens once.",
        json_schema_extra=KEY_SCHEMA,
    ),
]
_LOCATION: dict[str, Any] = {
    "headers": {"Location": {"description": "Where to look next.", "schema": {"type": "string"}}}
}
_CREATED: dict[int | str, dict[str, Any]] = {201: _LOCATION, 200: {"model": Thread}}
_ACCEPTED: dict[int | str, dict[str, Any]] = {202: {"description": "Accepted and kept.", **_LOCATION}}


@router.get("/agents", responses=problems())
async def list_agents(runner: TheRunner, by: Asker) -> AgentList:
    """List the agents that may be sent to."""
    return AgentList(items=runner.agents)


@router.post("/threads", status_code=201, responses=_CREATED | problems(404, 409))
async def create_thread(body: NewThread, response: Response, runner: TheRunner, by: Asker) -> Thread:
    """Make a thread; 200 instead of 201 when the same call had made it before."""
    id = str(body.id) if body.id is not None else None
    existed = id is not None and await _exists(runner, id, by=by)
    thread = await runner.create_thread(
        agent=body.agent, by=by, thread=id, title=body.title, metadata=body.metadata
    )
    response.status_code = 200 if existed else 201
    response.headers["Location"] = f"/v1/threads/{thread.id}"
    return thread


async def _exists(runner: Runner, thread: str, *, by: Principal) -> bool:
    try:
        await runner.thread(thread, by=by)
    except NotFound:
        return False
    return True


@router.get("/threads", responses=problems())
async def list_threads(
    runner: TheRunner,
    by: Asker,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[UUID | None, Query(description="The `next_cursor` of the page before.")] = None,
) -> ThreadPage:
    """List the threads that the caller may see, newest first."""
    items = await runner.threads(by=by, before=str(cursor) if cursor else None, limit=limit)
    return ThreadPage(items=items, next_cursor=items[-1].id if len(items) == limit else None)


@router.get("/threads/{thread}", responses=problems(404))
async def get_thread(thread: str, runner: TheRunner, by: Asker) -> Thread:
    """Return a thread with its state."""
    return await runner.thread(thread, by=by)


@router.post(
    "/threads/{thread}/messages", status_code=202, responses=_ACCEPTED | problems(404, 409, 413, 429)
)
async def send(
    thread: str, body: NewMessage, response: Response, runner: TheRunner, by: Asker, key: Key = None
) -> Receipt:
    """Send to a thread: it starts a run, steers the running one, or waits for the next."""
    receipt = await runner.send(thread, body.content, by=by, key=key, agent=body.agent, on_busy=body.on_busy)
    return _located(receipt, response)


@router.post("/messages", status_code=202, responses=_ACCEPTED | problems(404, 409, 413))
async def send_first(
    body: FirstMessage, response: Response, runner: TheRunner, by: Asker, key: Key = None
) -> Receipt:
    """Make a thread from its first message; with a key, a repeated request finds the same thread."""
    receipt = await runner.send(None, body.content, by=by, key=key, agent=body.agent, on_busy=body.on_busy)
    return _located(receipt, response)


def _located(receipt: Receipt, response: Response) -> Receipt:
    there = f"runs/{receipt.run}" if receipt.run is not None else f"messages/{receipt.message}"
    response.headers["Location"] = f"/v1/{there}"
    return receipt


@router.get("/messages/{message}", responses=problems(404))
async def get_message(message: str, runner: TheRunner, by: Asker) -> Message:
    """Return a message and what has become of it: waiting, delivered to a run, or returned."""
    return await runner.message(message, by=by)


@router.get("/runs/{run}", responses=problems(404))
async def get_run(run: str, runner: TheRunner, by: Asker) -> Run:
    """Return a run."""
    return await runner.run(run, by=by)


_STOPPED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Settled: the run has ended, or nothing ran."},
    202: {"model": StopReceipt, "description": "Recorded; the run has not ended yet."},
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


async def _stopped(
    stopping: Coroutine[Any, Any, StopReceipt], drain: asyncio.Event, response: Response
) -> StopReceipt:
    receipt = await _unless_draining(stopping, drain)
    response.status_code = 200 if receipt.settled else 202
    return receipt


async def _unless_draining(work: Coroutine[Any, Any, StopReceipt], drain: asyncio.Event) -> StopReceipt:
    """Wait for work that may take a minute, but not beyond the life of this process.

    Raises:
        Closed: the process shuts down; the same call to another replica gets the outcome.
    """
    working, draining = asyncio.create_task(work), asyncio.create_task(drain.wait())
    try:
        await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Closed
        return working.result()
    finally:
        draining.cancel()
        working.cancel()
