"""REST: grants, under /v1."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Response
from pydantic import BeforeValidator, Field

from threadhold.adapters.http.doors import Asker, Cursor, Key, PageSize, TheRunner
from threadhold.adapters.http.patience import LOCATION
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import Body, Id, Name, PrincipalId, next_cursor, shown
from threadhold.adapters.http.tags import TAGGED, Tags
from threadhold.runner.grants import LASTS_MAX, LASTS_MIN, REASON_CHARS_MAX, USES_MAX, Grant

router = APIRouter(prefix="/v1")

_CREATED: Final[dict[int | str, dict[str, Any]]] = {201: {"headers": LOCATION}}


def _whole(value: Any) -> Any:
    """Return a number without its empty fraction: to JSON 3.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class NewGrant(Body):
    """Grant uses of a capability."""

    model_config = shown(
        {"capability": "wire", "uses": 10},
        {
            "capability": "wire",
            "uses": 3,
            "principal": "night-job",
            "expires_in": 3600,
            "reason": "the bills of May",
        },
    )

    capability: Name
    uses: Annotated[int, Field(ge=1, le=USES_MAX), BeforeValidator(_whole)]
    principal: PrincipalId | None = Field(
        None, description="Only for runs that act for it; by default, for anybody's."
    )
    thread: Id | None = Field(None, description="Only for runs on it; by default, on any thread.")
    expires_in: Annotated[float, Field(ge=LASTS_MIN.total_seconds(), le=LASTS_MAX.total_seconds())] | None = (
        Field(None, description="Seconds for which it may be used; by default, until it is revoked.")
    )
    reason: Annotated[
        str,
        Field(
            max_length=REASON_CHARS_MAX,
            description="Why, for people.",
            json_schema_extra={"pattern": r"^[^\x00]*$"},
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPage:
    """Grants, newest first; `next_cursor` is None after a page that is not full."""

    items: Sequence[Grant]
    next_cursor: str | None


@router.post("/grants", status_code=201, responses=_CREATED | problems(404, 409))
async def create_grant(
    body: NewGrant, response: Response, runner: TheRunner, by: Asker, key: Key = None
) -> Grant:
    """Grant so many uses of a capability; for operators. With a key, a repeated request finds the same grant."""
    grant = await runner.create_grant(
        body.capability,
        by=by,
        uses=body.uses,
        principal=body.principal,
        thread=str(body.thread) if body.thread else None,
        expires_in=None if body.expires_in is None else timedelta(seconds=body.expires_in),
        reason=body.reason,
        key=key,
    )
    response.headers["Location"] = f"/v1/grants/{grant.id}"
    return grant


@router.get("/grants", responses=problems())
async def list_grants(runner: TheRunner, by: Asker, limit: PageSize = 20, cursor: Cursor = None) -> GrantPage:
    """List the grants that the caller may see, newest first: what is for them, and to operators all."""
    items = await runner.grants(by=by, before=str(cursor) if cursor else None, limit=limit)
    return GrantPage(items=items, next_cursor=next_cursor(items, limit))


@router.get("/grants/{grant}", response_model=Grant, responses=TAGGED | problems(404))
async def get_grant(grant: str, runner: TheRunner, by: Asker, tagged: Tags) -> Grant | Response:
    """Return a grant with what is used of it."""
    return tagged(await runner.grant(grant, by=by))


@router.post("/grants/{grant}/revoke", responses=problems(404))
async def revoke_grant(grant: str, runner: TheRunner, by: Asker) -> Grant:
    """Let a grant be used no more; for operators. Repeating it changes nothing."""
    return await runner.revoke_grant(grant, by=by)
