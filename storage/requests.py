"""Requests of paused runs: what they ask, and their answers."""

import json
from typing import Any, Final

from threadhold.runner.decisions import Decision
from threadhold.runner.errors import (
    AlreadyAnswered,
    ArgsChanged,
    Forbidden,
    InvalidInput,
    NotFound,
    OwnRequest,
    RequestClosed,
    WrongDecision,
)
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Nudge, Outcome, Principal, Request
from threadhold.runner.tally import UNTOLD, Tally
from threadhold.storage.ids import as_uuid
from threadhold.storage.pool import Database

_ALLOWED: Final = {"approval": ("approve", "edit", "reject")}
_REPLY: Final = ("reply", "reject")


def request_of(row: Any) -> Request:
    """Return the request that a row tells of."""
    return Request(
        id=str(row["id"]),
        thread=str(row["thread_id"]),
        run=str(row["run_id"]),
        attempt=row["attempt"],
        kind=row["kind"],
        call_id=row["call_id"],
        tool=row["tool"],
        args=json.loads(row["args"]),
        args_hash=row["args_hash"].hex(),
        requested_by=row["requested_by"],
        other_only=row["other_only"],
        approvers=None if row["approvers"] is None else tuple(row["approvers"]),
        metadata=json.loads(row["metadata"]),
        status=row["status"],
        answer=json.loads(row["answer"]) if row["answer"] else None,
        answered_by=row["answered_by"],
        answered_at=row["answered_at"],
        expires_at=row["expires_at"],
        created_at=row["created_at"],
    )


class PostgresRequests:
    """The `RequestStore` on Postgres."""

    def __init__(self, database: Database, *, tally: Tally = UNTOLD) -> None:
        self._database = database
        self._tally = tally

    async def get(self, request: str, *, by: Principal) -> Request:
        """Return a request."""
        id = as_uuid(request, "request")
        row = await self._database.row("get_request", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("request", request)
        return request_of(row)

    async def list(
        self, *, by: Principal, status: str | None, thread: str | None, before: str | None, limit: int
    ) -> list[Request]:
        """Return requests that the principal may see, newest first."""
        rows = await self._database.rows(
            "list_requests",
            by.workspace,
            by.id,
            list(by.roles),
            status,
            as_uuid(thread, "thread") if thread else None,
            as_uuid(before, "request") if before else None,
            limit,
        )
        return [request_of(row) for row in rows]

    async def answer(
        self, request: str, decision: Decision, *, by: Principal, args_hash: str | None
    ) -> tuple[Outcome | RequestClosed, Nudge]:
        """Record a decision, durably and repeatably."""
        id = as_uuid(request, "request")
        row = await self._database.row(
            "answer",
            by.workspace,
            by.id,
            sorted(by.roles),
            id,
            json.dumps(decision.data(), ensure_ascii=False),
            _hash(args_hash),
        )
        nudge = self._nudge(row)
        if row["outcome"] == "expired":
            self._tally.request_answered("expired")
            return RequestClosed(request, why="its time is over"), nudge
        if row["outcome"] != "ok":
            raise _refusal(request, row)
        if not row["duplicate"]:
            self._tally.request_answered(decision.kind)
        recorded = Outcome(
            request=str(id),
            thread=str(row["thread"]),
            run=str(row["run"]),
            decision=json.loads(row["decision"]),
            by=row["answered_by"],
            duplicate=row["duplicate"],
            open=row["open"],
            status=RunStatus(row["status"]),
            seq=row["seq"],
        )
        return recorded, nudge

    def _nudge(self, row: Any) -> Nudge:
        dispatch = str(row["dispatch"]) if row["dispatch"] else None
        agent = row["agent"] if dispatch else None
        return Nudge(thread=str(row["thread"]), seq=row["seq"] or 0, agent=agent, run=dispatch)


def _hash(args_hash: str | None) -> bytes | None:
    try:
        return bytes.fromhex(args_hash) if args_hash else None
    except ValueError:
        raise InvalidInput(
            "args_hash is the hash that the request shows, in hex", field="args_hash"
        ) from None


def _refusal(request: str, row: Any) -> Exception:
    match row["outcome"]:
        case "not_found":
            return NotFound("request", request)
        case "forbidden":
            return Forbidden("answer this request")
        case "own_request":
            return OwnRequest(request)
        case "wrong_decision":
            return WrongDecision(request, kind=row["kind"], allowed=_ALLOWED.get(row["kind"], _REPLY))
        case "args_changed":
            return ArgsChanged(request)
        case "already_answered":
            return AlreadyAnswered(request, by=row["answered_by"], decision=json.loads(row["decision"]))
        case _:
            return RequestClosed(request, why="its run has ended")
