"""REST: what was spent, under /v1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from threadhold.adapters.http.doors import Asker, PageSize, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import PrincipalId
from threadhold.runner.spend import Spend

router = APIRouter(prefix="/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendList:
    """What was spent, the newest and the largest; there are no further pages."""

    items: Sequence[Spend]


@router.get("/spend", responses=problems())
async def list_spend(
    runner: TheRunner,
    by: Asker,
    principal: Annotated[
        PrincipalId | None,
        Query(description="Only what this one has spent; others than oneself are for operators."),
    ] = None,
    limit: PageSize = 20,
) -> SpendList:
    """List what was spent: by the caller; to operators, by the workspace and each principal of it.

    The newest periods come first, in each the workspace, then who has spent most.
    """
    return SpendList(items=await runner.spend(by=by, principal=principal, limit=limit))
