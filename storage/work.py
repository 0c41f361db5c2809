"""Runs as workers handle them: claim, record, end, give up, sweep."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Ended, InboxMessage, NewFact, Nudge, Recorded, Start
from threadhold.runner.storable import storable
from threadhold.storage.ids import new_id
from threadhold.storage.pool import Database

log = structlog.get_logger(__name__)


def _json(value: Any) -> str:
    return json.dumps(storable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _facts(facts: Sequence[NewFact]) -> str:
    return _json([{"kind": fact.kind, "data": fact.data} for fact in facts])


def _history(messages: Sequence[Any]) -> str | None:
    return _json(list(messages)) if messages else None


def _inbox(text: str) -> tuple[InboxMessage, ...]:
    return tuple(InboxMessage(**item) for item in json.loads(text))


def _start(thread: str, row: Any) -> Start:
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
        history_chunks=row["history_chunks"],
        seq=row["seq"],
        fresh=row["fresh"],
        inbox=_inbox(row["inbox"]),
    )


class PostgresWork:
    """The `WorkStore` on Postgres, for one worker.

    Args:
        database: the pool.
        worker: this worker's id, unique to this incarnation of the process.
        ttl: how long a claim lasts without a renewal.
    """

    def __init__(self, database: Database, *, worker: str, ttl: timedelta) -> None:
        self._database = database
        self._worker = worker
        self._ttl = ttl

    async def claim(
        self, thread: str, *, agents: Sequence[str], start_key: str
    ) -> tuple[Start | None, Nudge | None]:
        """Take a thread and start its pending run."""
        row = await self._database.row(
            "claim", UUID(thread), list(agents), self._worker, UUID(start_key), self._ttl, new_id()
        )
        start = _start(thread, row) if row["outcome"] == "started" else None
        nudge = Nudge(thread=thread, seq=row["seq"]) if row["lapsed"] else None
        return start, nudge

    async def history(self, thread: str, *, chunks: int) -> list[Any]:
        """Return the thread's messages as JSON values."""
        if chunks == 0:
            return []
        rows = await self._database.rows("history", UUID(thread), chunks)
        return [message for row in rows for message in json.loads(row["messages"])]

    async def record(
        self,
        start: Start,
        *,
        rec_no: int,
        facts: Sequence[NewFact],
        history: Sequence[Any] = (),
        delivered: Sequence[int] = (),
        shown: Sequence[Any] = (),
    ) -> Recorded:
        """Record what the run did, under its claim."""
        row = await self._database.row(
            "record",
            UUID(start.thread),
            UUID(start.claim_id),
            rec_no,
            _facts(facts),
            _history(history),
            list(delivered),
            _history(shown),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)
        return Recorded(seq=row["seq"], waiting=row["waiting"], stop_requested=row["stop"])

    async def inbox(self, start: Start) -> list[InboxMessage]:
        """Return the messages that wait for this run."""
        row = await self._database.row("inbox", UUID(start.thread), UUID(start.claim_id))
        if row[0] is None:
            raise ClaimLost(start.thread, start.fence)
        return list(_inbox(row[0]))

    async def end(
        self,
        start: Start,
        *,
        status: RunStatus,
        reason: str | None = None,
        error: dict[str, Any] | None = None,
        cause: str | None = None,
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
        data: dict[str, Any],
    ) -> tuple[Ended, Nudge]:
        """End the run, or learn that it goes on."""
        row = await self._database.row(
            "end_run",
            UUID(start.thread),
            UUID(start.run),
            UUID(start.claim_id),
            status,
            reason,
            _json(error) if error else None,
            cause,
            _facts(facts),
            _history(history),
            _json(data),
            new_id(),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)
        following = str(row["next_run"]) if row["next_run"] else None
        ended = Ended(
            outcome=row["outcome"],
            status=RunStatus(row["status"]) if row["status"] else None,
            seq=row["seq"],
            next_run=following,
        )
        return ended, Nudge(
            thread=start.thread, seq=row["seq"], agent=row["agent"] if following else None, run=following
        )

    async def release(self, start: Start, *, cause: str) -> Nudge | None:
        """Give the claim up early."""
        row = await self._database.row("release", UUID(start.thread), UUID(start.claim_id), cause, new_id())
        if row["outcome"] == "fenced":
            return None
        return Nudge(thread=start.thread, seq=row["seq"], agent=start.agent, run=start.run)

    async def pending(self, *, agents: Sequence[str], limit: int) -> list[str]:
        """Return threads whose pending run nobody took yet."""
        rows = await self._database.rows("pending", list(agents), limit)
        return [str(row[0]) for row in rows]

    async def sweep(self, *, limit: int) -> list[Nudge]:
        """Take lapsed threads, one short transaction each; one that cannot be taken does not keep the others."""
        nudges = []
        for (thread,) in await self._database.rows("lapsed", limit):
            try:
                nudge = await self._lapse(thread)
            except asyncpg.PostgresError as error:
                log.error(
                    "lapse_failed", thread=str(thread), error=type(error).__name__, detail=str(error)[:200]
                )
                continue
            if nudge is not None:
                nudges.append(nudge)
        return nudges

    async def _lapse(self, thread: UUID) -> Nudge | None:
        row = await self._database.row("lapse", thread, new_id())
        if row["result"] is None:
            return None
        run = str(row["run"]) if row["run"] else None
        return Nudge(thread=str(thread), seq=row["seq"], agent=row["agent"] if run else None, run=run)

    async def register(self, *, agents: Sequence[str], capacity: int) -> None:
        """Say that this worker is there."""
        await self._database.run(
            "register", self._worker, list(agents), capacity, platform.node(), os.getpid()
        )

    async def unregister(self) -> None:
        """Say that this worker leaves."""
        await self._database.run("unregister", self._worker)

    async def disown(self, name: str) -> int:
        """Let the claims of all workers of this name lapse at once, and return how many there were."""
        row = await self._database.row("disown", name)
        return int(row[0])

    async def audit(self) -> list[dict[str, Any]]:
        """Return every broken invariant; empty on a healthy system."""
        return [dict(row) for row in await self._database.rows("audit")]
