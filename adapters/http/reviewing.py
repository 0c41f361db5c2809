"""REST: what is on record of threads and runs, page by page, under /v1. All pages go forward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from threadhold.adapters.http.doors import Asker, PageSize, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.tags import TAGGED, Tags
from threadhold.runner.checkpoints import Checkpoint
from threadhold.runner.records import AttemptRecord, Fact, Page
from threadhold.runner.steps import Call, Step

router = APIRouter(prefix="/v1")

_SEQ_MAX: Final = 2**63 - 1
Behind = Annotated[int, Query(ge=0, le=_SEQ_MAX, description="The `next_cursor` of the page before.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPage:
    """Facts in the log's order; `next_cursor` is None after the last of now."""

    items: Sequence[Fact]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Messages as pydantic-ai writes them, oldest first; `next_cursor` is None after the last of now."""

    items: Sequence[Any]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPage:
    """Attempts, oldest first; `next_cursor` is None after the last of now."""

    items: Sequence[AttemptRecord]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """Checkpoints, oldest first; `next_cursor` is None after the last of now."""

    items: Sequence[Checkpoint]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    """Answers of models, oldest first; `next_cursor` is None after the last of now."""

    items: Sequence[Step]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPage:
    """Tool calls as they were asked for, oldest first; `next_cursor` is None after the last of now."""

    items: Sequence[Call]
    next_cursor: str | None


def _next(page: Page[Any]) -> str | None:
    return None if page.next is None else str(page.next)


@router.get("/threads/{thread}/facts", responses=problems(404))
async def list_facts(
    thread: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> FactPage:
    """List what has happened on the thread, for good: its log of facts. To hear of what comes, watch its frames."""
    page = await runner.facts(thread, by=by, after=cursor, limit=limit)
    return FactPage(items=page.items, next_cursor=_next(page))


@router.get("/threads/{thread}/history", responses=problems(404))
async def list_history(
    thread: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> HistoryPage:
    """List what the model was shown and has said, as pydantic-ai's messages; `limit` counts what was kept together."""
    page = await runner.history(thread, by=by, after=cursor, limit=limit)
    return HistoryPage(items=page.items, next_cursor=_next(page))


@router.get("/runs/{run}/attempts", responses=problems(404))
async def list_attempts(
    run: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> AttemptPage:
    """List a run's attempts: each is one uninterrupted stretch on one worker."""
    page = await runner.attempts(run, by=by, after=cursor, limit=limit)
    return AttemptPage(items=page.items, next_cursor=_next(page))


@router.get("/runs/{run}/steps", responses=problems(404))
async def list_steps(
    run: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> StepPage:
    """List what models answered in the run: the text, the calls, what it took and cost."""
    page = await runner.steps(run, by=by, after=cursor, limit=limit)
    return StepPage(items=page.items, next_cursor=_next(page))


@router.get("/runs/{run}/calls", responses=problems(404))
async def list_calls(
    run: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> CallPage:
    """List the run's tool calls and what became of each; `limit` counts the answers that ask for some."""
    page = await runner.calls(run, by=by, after=cursor, limit=limit)
    return CallPage(items=page.items, next_cursor=_next(page))


@router.get("/runs/{run}/checkpoints", responses=problems(404))
async def list_checkpoints(
    run: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> CheckpointPage:
    """List the positions in the history that the run has reached, and may be replayed from once it has ended."""
    page = await runner.checkpoints(run, by=by, after=cursor, limit=limit)
    return CheckpointPage(items=page.items, next_cursor=_next(page))


@router.get("/checkpoints/{checkpoint}", response_model=Checkpoint, responses=TAGGED | problems(404))
async def get_checkpoint(
    checkpoint: str, runner: TheRunner, by: Asker, tagged: Tags
) -> Checkpoint | Response:
    """Return a position in a thread's history by its id."""
    return tagged(await runner.checkpoint(checkpoint, by=by))


@router.get("/checkpoints/{checkpoint}/history", responses=problems(404))
async def list_checkpoint_history(
    checkpoint: str, runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Behind = 0
) -> HistoryPage:
    """List what the model had been shown and had said at a checkpoint, as the history of a thread is listed."""
    page = await runner.history_at(checkpoint, by=by, after=cursor, limit=limit)
    return HistoryPage(items=page.items, next_cursor=_next(page))
