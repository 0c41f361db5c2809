"""The inbox."""

import hashlib
from typing import Any

from threadhold.runner.admitting import PLAIN, Admitting
from threadhold.runner.errors import (
    Forbidden,
    InboxFull,
    InvalidInput,
    KeyConflict,
    NotFound,
    RunnerError,
    ThreadArchived,
    ThreadBusy,
    ThreadExists,
)
from threadhold.runner.machine import RunStatus, StopReason
from threadhold.runner.records import INBOX_MAX, Message, Nudge, OnBusy, Principal, Receipt
from threadhold.runner.tally import UNTOLD, Tally
from threadhold.storage.encoding import json_of
from threadhold.storage.ids import as_uuid, new_id
from threadhold.storage.pool import Database


def _text(id: Any) -> str | None:
    return None if id is None else str(id)


def _refusal(row: Any, thread: str, key: str | None) -> RunnerError:
    """Return the typed form of a refused send."""
    match row["outcome"]:
        case "not_found":
            return NotFound("thread", thread)
        case "forbidden":
            return Forbidden("send")
        case "key_conflict":
            return KeyConflict(key or "")
        case "thread_exists":
            return ThreadExists(thread)
        case "thread_archived":
            return ThreadArchived(thread)
        case "thread_busy":
            return ThreadBusy(_text(row["run"]))
        case "inbox_full":
            return InboxFull(INBOX_MAX)
        case other:
            return InvalidInput(f"the message was refused: {other}")


class PostgresMessages:
    """The `MessageStore` on Postgres."""

    def __init__(self, database: Database, *, tally: Tally = UNTOLD, admitting: Admitting = PLAIN) -> None:
        self._database = database
        self._tally = tally
        self._admitting = admitting

    async def send(
        self,
        thread: str,
        content: str,
        *,
        by: Principal,
        key: str | None,
        on_busy: OnBusy,
        create_with: str | None,
    ) -> tuple[Receipt, Nudge]:
        """Accept a message in one transaction under the thread's lock."""
        id = new_id()
        row = await self._database.row(
            "send",
            by.workspace,
            by.id,
            sorted(by.roles),
            as_uuid(thread, "thread"),
            create_with,
            key or str(id),
            hashlib.sha256(content.encode()).digest(),
            content,
            id,
            new_id(),
            on_busy,
            INBOX_MAX,
            json_of(self._admitting.of(by)),
        )
        if row["outcome"] != "ok":
            raise _refusal(row, thread, key)
        self._tell(row)
        receipt = Receipt(
            thread=thread,
            disposition=row["disposition"],
            message=str(row["message"]),
            run=_text(row["run"]),
            seq=row["seq"],
            duplicate=row["duplicate"],
            no_worker=not row["has_worker"],
        )
        dispatch = _text(row["dispatch"])
        agent = row["agent"] if dispatch else None
        return receipt, Nudge(thread=thread, seq=row["seq"], agent=agent, run=dispatch, holder=row["holder"])

    def _tell(self, row: Any) -> None:
        """Count a message, and the end of a run that it interrupted before any worker had it."""
        if row["duplicate"]:
            return
        self._tally.message_accepted(row["disposition"])
        if row["disposition"] == "queued" and row["dispatch"] is not None:
            reason = StopReason.INTERRUPTED_BY_MESSAGE
            self._tally.run_ended(row["agent"], status=RunStatus.STOPPED, reason=reason, lasted_s=None)

    async def get(self, message: str, *, by: Principal) -> Message:
        """Return a message with what has become of it."""
        id = as_uuid(message, "message")
        row = await self._database.row("get_message", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("message", message)
        return Message(
            id=str(row["id"]),
            thread=str(row["thread_id"]),
            sender=row["sender"],
            content=row["content"],
            disposition=row["disposition"],
            state=row["state"],
            run=_text(row["run_id"] or row["for_run"]),
            reason=row["reason"],
            accepted_at=row["accepted_at"],
            settled_at=row["settled_at"],
        )
