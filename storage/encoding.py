"""How runs go to the database and come from it, for workers."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from threadhold.runner.decisions import NewRequest
from threadhold.runner.errors import Forbidden, NotFound, RunnerError, ThreadArchived, ThreadBusy
from threadhold.runner.records import InboxMessage, NewFact, Nudge, Start
from threadhold.runner.storable import storable
from threadhold.storage.ids import new_id


def json_of(value: Any) -> str:
    """Return a value as JSON that Postgres takes."""
    return json.dumps(storable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def facts_of(facts: Sequence[NewFact]) -> str:
    """Return facts as JSON."""
    return json_of([{"kind": fact.kind, "data": fact.data} for fact in facts])


def history_of(messages: Sequence[Any]) -> str | None:
    """Return messages as JSON; None where there are none."""
    return json_of(list(messages)) if messages else None


def inbox_of(text: str) -> tuple[InboxMessage, ...]:
    """Return the waiting messages that a row tells of."""
    return tuple(InboxMessage(**item) for item in json.loads(text))


def start_of(thread: str, row: Any) -> Start:
    """Return the start that a row tells of."""
    return Start(
        workspace=row["workspace"],
        thread=thread,
        run=str(row["run"]),
        agent=row["agent"],
        principal=row["principal"],
        roles=frozenset(row["roles"]),
        attempt=row["attempt"],
        claim_id=str(row["claim_id"]),
        fence=row["fence"],
        history_head=row["history_head"],
        seq=row["seq"],
        fresh=row["fresh"],
        inbox=inbox_of(row["inbox"]),
        interface=row["interface"],
        environment=row["environment"],
        budget=row["budget"],
        memory=tuple(json.loads(row["memory"])),
        failed_tries=row["failed_tries"],
    )


def nudge_of(thread: str, row: Any, *, run: UUID | None) -> Nudge:
    """Return what to tell others: that the thread has news, and that a run waits for a worker, if one does."""
    return Nudge(
        thread=thread, seq=row["seq"], agent=row["agent"] if run else None, run=str(run) if run else None
    )


def refusal_of(thread: str, outcome: str) -> RunnerError:
    """Return the typed form of a refused hold."""
    match outcome:
        case "forbidden":
            return Forbidden("hold it")
        case "thread_archived":
            return ThreadArchived(thread)
        case "thread_busy":
            return ThreadBusy(None)
        case _:
            return NotFound("thread", thread)


def asked_of(request: NewRequest) -> dict[str, Any]:
    """Return a request as the database makes one of it."""
    terms = request.terms
    return {
        "id": str(new_id()),
        "kind": request.kind,
        "call_id": request.call_id,
        "tool": request.tool,
        "args": request.args,
        "hash": request.args_hash,
        "other_only": terms.other_only,
        "approvers": None if terms.approvers is None else list(terms.approvers),
        "expires_in_s": None if terms.expires_in is None else terms.expires_in.total_seconds(),
        "metadata": request.metadata,
    }
