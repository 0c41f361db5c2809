"""REST: who else may see a thread, under /v1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Response

from threadhold.adapters.http.doors import Asker, TheRunner
from threadhold.adapters.http.problem import problems
from threadhold.adapters.http.schemas import PRINCIPAL_SCHEMA, Body, shown
from threadhold.runner.records import Access, Member

router = APIRouter(prefix="/v1")

# The ids of some issuers hold a slash.
_ONE = "/threads/{thread}/members/{member:path}"
MemberId = Annotated[str, Path(description="The id of a principal.", json_schema_extra=PRINCIPAL_SCHEMA)]


class Membership(Body):
    """What a member may do."""

    model_config = shown({"access": "read"})

    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberList:
    """The members of a thread by name; its owner is none of them."""

    items: Sequence[Member]


@router.get("/threads/{thread}/members", responses=problems(404))
async def list_members(thread: str, runner: TheRunner, by: Asker) -> MemberList:
    """List who may see the thread beside its owner."""
    return MemberList(items=await runner.members(thread, by=by))


@router.put(_ONE, responses=problems(404, 409))
async def set_member(thread: str, member: MemberId, body: Membership, runner: TheRunner, by: Asker) -> Member:
    """Let somebody of the workspace read the thread, or write to it as well; for its owner and for operators."""
    return await runner.set_member(thread, member, body.access, by=by)


@router.delete(_ONE, status_code=204, response_class=Response, responses=problems(404))
async def remove_member(thread: str, member: MemberId, runner: TheRunner, by: Asker) -> None:
    """Let somebody out, whether they were in or not; for the owner and for operators."""
    await runner.remove_member(thread, member, by=by)
