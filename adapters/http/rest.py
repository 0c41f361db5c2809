"""REST: agents, threads and messages, under /v1."""

from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter, Response

from threadhold.adapters.http.doors import Asker, Cursor, Key, PageSize, Sender, TheRunner
from threadhold.adapters.http.patience import LOCATION, Patience, ThePatience, accepted
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import (
    AgentList,
    FirstMessage,
    NewMessage,
    NewThread,
    ThreadChange,
    ThreadPage,
    ThreadWanted,
    next_cursor,
)
from threadhold.adapters.http.tags import CHANGED, TAGGED, IfMatch, Tags, names, tag_of
from threadhold.runner.errors import NotFound, ThreadChanged
from threadhold.runner.records import Message, Principal, Receipt, Thread
from threadhold.runner.service import Runner

router = APIRouter(prefix="/v1")

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": LOCATION},
    200: {"model": Thread, "description": "The same call had made it before.", "headers": LOCATION},
}
_RESOLVED: dict[int | str, dict[str, Any]] = CHANGED | {
    201: {"model": Thread, "description": "It was made.", "headers": CHANGED[200]["headers"]}
}
_ACCEPTED: Final = accepted(Receipt)


@router.get("/agents", responses=problems())
async def list_agents(runner: TheRunner, by: Asker) -> AgentList:
    """List the agents that may be sent to."""
    return AgentList(items=runner.agents)


@router.post("/threads", status_code=201, responses=_CREATED | problems(404, 409))
async def create_thread(
    body: NewThread, response: Response, runner: TheRunner, by: Asker, key: Key = None
) -> Thread:
    """Make a thread; 200 instead of 201 when the same call had made it before, by its `id` or by its key."""
    id = None if key is None else runner.thread_of_key(key, by=by)
    if body.id is not None:
        id = str(body.id)
    existed = id is not None and await _exists(runner, id, by=by)
    thread = await runner.create_thread(
        agent=body.agent,
        by=by,
        thread=id,
        title=body.title,
        metadata=body.metadata,
        execution=str(body.execution) if body.execution else None,
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
    runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Cursor = None
) -> ThreadPage:
    """List the threads that the caller may see, by id, the highest first."""
    items = await runner.threads(by=by, before=str(cursor) if cursor else None, limit=limit)
    return ThreadPage(items=items, next_cursor=next_cursor(items, limit))


@router.get("/threads/{thread}", response_model=Thread, responses=TAGGED | problems(404))
async def get_thread(thread: str, runner: TheRunner, by: Asker, tagged: Tags) -> Thread | Response:
    """Return a thread with its state."""
    return tagged(await runner.thread(thread, by=by))


@router.patch("/threads/{thread}", responses=CHANGED | problems(404, 409, 412))
async def update_thread(
    thread: str,
    body: ThreadChange,
    response: Response,
    runner: TheRunner,
    by: Asker,
    if_match: IfMatch = None,
) -> Thread:
    """Change a thread's title, metadata or status; what is left out stays. An archived one takes no messages."""
    seen = None if if_match is None else await _seen(runner, thread, if_match, by=by)
    changed = await runner.update_thread(
        thread, by=by, title=body.title, metadata=body.metadata, status=body.status, unchanged_since=seen
    )
    response.headers["ETag"] = tag_of(changed)
    return changed


@router.put("/threads/{thread}", responses=_RESOLVED | problems(404, 409))
async def resolve_thread(
    thread: str, body: ThreadWanted, response: Response, runner: TheRunner, by: Asker
) -> Thread:
    """Find a thread or make it, and add agents, memory and states to it; 201 if it was made."""
    existed = await _exists(runner, thread, by=by)
    found = await runner.resolve_thread(
        thread,
        agent=body.agent,
        by=by,
        participants=body.participants,
        memory=body.bindings(),
        state_refs=body.state_refs,
        status=body.status,
    )
    response.status_code = 200 if existed else 201
    response.headers["ETag"] = tag_of(found)
    return found


async def _seen(runner: Runner, thread: str, tags: str, *, by: Principal) -> datetime | None:
    """Return when the thread that a client has seen was changed last; None if any will do.

    Raises:
        ThreadChanged: it is another one now.
    """
    now = await runner.thread(thread, by=by)
    if not names(tags, tag_of(now), weak=False):
        raise ThreadChanged(thread)
    return None if tags.strip() == "*" else now.updated_at


@router.post(
    "/threads/{thread}/messages", status_code=202, responses=_ACCEPTED | problems(404, 409, 413, 429)
)
async def send(
    thread: str,
    body: NewMessage,
    response: Response,
    runner: TheRunner,
    by: Sender,
    patience: ThePatience,
    key: Key = None,
) -> Receipt:
    """Send to a thread: it starts a run, steers the running one, answers a paused one, or waits for the next."""
    receipt = await runner.send(thread, body.content, by=by, key=key, agent=body.agent, on_busy=body.on_busy)
    return await _told(receipt, response, patience)


@router.post("/messages", status_code=202, responses=_ACCEPTED | problems(404, 409, 413, 429))
async def send_first(
    body: FirstMessage,
    response: Response,
    runner: TheRunner,
    by: Sender,
    patience: ThePatience,
    key: Key = None,
) -> Receipt:
    """Make a thread from its first message; with a key, a repeated request finds the same thread."""
    receipt = await runner.send(None, body.content, by=by, key=key, agent=body.agent, on_busy=body.on_busy)
    return await _told(receipt, response, patience)


async def _told(receipt: Receipt, response: Response, patience: Patience) -> Receipt:
    """Say where to look next, and whether there is anything to wait for."""
    there = f"runs/{receipt.run}" if receipt.run is not None else f"messages/{receipt.message}"
    response.headers["Location"] = f"/v1/{there}"
    if receipt.run is not None and await patience.rested(receipt.run):
        response.status_code = 200
    return receipt


@router.get("/messages/{message}", response_model=Message, responses=TAGGED | problems(404))
async def get_message(message: str, runner: TheRunner, by: Asker, tagged: Tags) -> Message | Response:
    """Return a message and what has become of it: waiting, delivered to a run, or returned."""
    return tagged(await runner.message(message, by=by))
