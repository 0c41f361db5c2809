"""REST: workers, for operators, under /v1."""

from fastapi import APIRouter

from threadhold.adapters.http.doors import Asker, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import DrainList, WorkerList

router = APIRouter(prefix="/v1")


@router.get("/workers", responses=problems())
async def list_workers(runner: TheRunner, by: Asker) -> WorkerList:
    """List the workers that were seen in the last minute."""
    return WorkerList(items=await runner.workers(by=by))


@router.post("/workers/{worker}/drain", status_code=202, responses=problems(404))
async def drain_worker(worker: str, runner: TheRunner, by: Asker) -> DrainList:
    """Ask the workers of this id, or of this name, to hand their runs over and leave."""
    return DrainList(items=await runner.drain(worker, by=by))
