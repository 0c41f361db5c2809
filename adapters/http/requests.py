"""REST: the requests of paused runs, and their answers, under /v1."""

from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response

from threadhold.adapters.http.doors import Asker, Cursor, PageSize, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import Answer, RequestPage, next_cursor
from threadhold.adapters.http.tags import TAGGED, Tags
from threadhold.runner.decisions import RequestStatus
from threadhold.runner.records import Outcome, Request

ANY: Final = "any"

router = APIRouter(prefix="/v1")


@router.get("/requests", responses=problems())
async def list_requests(
    runner: TheRunner,
    by: Asker,
    status: Annotated[RequestStatus | Literal["any"], Query()] = "open",
    thread: Annotated[UUID | None, Query(description="Only of this thread.")] = None,
    limit: PageSize = 20,
    cursor: Cursor = None,
) -> RequestPage:
    """List the requests that the caller may see, newest first."""
    items = await runner.requests(
        by=by,
        status=None if status == ANY else status,
        thread=str(thread) if thread else None,
        before=str(cursor) if cursor else None,
        limit=limit,
    )
    return RequestPage(items=items, next_cursor=next_cursor(items, limit))


@router.get("/requests/{request}", response_model=Request, responses=TAGGED | problems(404))
async def get_request(request: str, runner: TheRunner, by: Asker, tagged: Tags) -> Request | Response:
    """Return a request with what is known of its answer."""
    return tagged(await runner.request(request, by=by))


@router.post("/requests/{request}/answer", responses=problems(404, 409))
async def answer_request(request: str, body: Answer, runner: TheRunner, by: Asker) -> Outcome:
    """Answer a request, once; the run goes on when it was the last open one. The same answer may be repeated."""
    return await runner.answer(request, body.decision(), by=by, args_hash=body.args_hash)
