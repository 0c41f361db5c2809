"""REST: executions, each with all that it is tried in, under /v1."""

from fastapi import APIRouter, Response

from threadhold.adapters.http.doors import Asker, Cursor, Key, PageSize, Sender, TheRunner
from threadhold.adapters.http.patience import ThePatience, accepted
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import ExecutionPage, NewExecution, ThreadPage, next_cursor
from threadhold.adapters.http.tags import TAGGED, Tags
from threadhold.runner.executions import ExecutionReceipt, ExecutionTree

router = APIRouter(prefix="/v1")


@router.post(
    "/executions", status_code=202, responses=accepted(ExecutionReceipt) | problems(404, 409, 413, 429)
)
async def execute(
    body: NewExecution,
    response: Response,
    runner: TheRunner,
    by: Sender,
    patience: ThePatience,
    key: Key = None,
) -> ExecutionReceipt:
    """Start an execution: a thread of its own, whose first message is the mission."""
    receipt = await runner.execute(body.agent, body.mission, by=by, key=key)
    response.headers["Location"] = f"/v1/executions/{receipt.execution}"
    if await patience.rested(receipt.run):
        response.status_code = 200
    return receipt


@router.get("/executions", responses=problems())
async def list_executions(
    runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Cursor = None
) -> ExecutionPage:
    """List the executions that the caller may see, by id, the highest first: their own, and to operators all."""
    items = await runner.executions(by=by, before=str(cursor) if cursor else None, limit=limit)
    return ExecutionPage(items=items, next_cursor=next_cursor(items, limit))


@router.get("/executions/{execution}", response_model=ExecutionTree, responses=TAGGED | problems(404))
async def get_execution(
    execution: str, runner: TheRunner, by: Asker, tagged: Tags
) -> ExecutionTree | Response:
    """Return an execution with its threads, their newest runs, and the attempts and requests of those."""
    return tagged(await runner.execution(execution, by=by))


@router.get("/executions/{execution}/threads", responses=problems(404))
async def list_execution_threads(
    execution: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Cursor = None
) -> ThreadPage:
    """List the threads of an execution that the caller may see, oldest first."""
    after = str(cursor) if cursor else None
    items = await runner.threads_of(execution, by=by, after=after, limit=limit)
    return ThreadPage(items=items, next_cursor=next_cursor(items, limit))
