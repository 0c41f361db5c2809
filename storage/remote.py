"""Calls that executors carry out: as workers ask for them, and as executors take them."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from threadhold.runner.errors import ClaimLost
from threadhold.runner.records import Start
from threadhold.runner.remote_records import RemoteAsk, RemoteCall, RemoteEnd
from threadhold.storage.encoding import json_of
from threadhold.storage.pool import Database


class PostgresRemote:
    """The `RemoteStore` on Postgres, for one worker.

    Args:
        database: the pool.
        worker: this worker's id.
    """

    def __init__(self, database: Database, *, worker: str) -> None:
        self._database = database
        self._worker = worker

    async def ask(self, start: Start, ask: RemoteAsk) -> None:
        """Ask for a call under a claim, repeatably by its id."""
        row = await self._database.row(
            "remote_ask",
            UUID(start.thread),
            UUID(start.claim_id),
            UUID(ask.id),
            self._worker,
            ask.call_id,
            ask.tool,
            ask.queue,
            json_of(ask.args),
            json_of(ask.context),
            timedelta(seconds=ask.timeout),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)

    async def ended(self, ids: Sequence[str], *, silent: timedelta | None) -> dict[str, RemoteEnd]:
        """Return how those of these calls came out that have ended; an executor that was silent for long is dead."""
        rows = await self._database.rows("remote_ended", [UUID(id) for id in ids], silent)
        # Only whoever asked gives a call up while it waits for it, or an executor that found the run stopped.
        return {str(row["id"]): _end_of(row) or RemoteEnd(outcome="lost") for row in rows}

    async def give_up(self, start: Start, id: str, *, running: bool) -> tuple[RemoteEnd | None, str | None]:
        """Give a call up, with `running` also one that was taken; return how it had come out, and who has taken it."""
        row = await self._database.row(
            "remote_give_up", UUID(start.thread), UUID(id), UUID(start.claim_id), running
        )
        return _end_of(row), row["executor"]


class PostgresLent:
    """The `LentStore` on Postgres, for one executor.

    Args:
        database: the pool.
        executor: its id, unique to this incarnation of the process.
        queue: whose calls it takes.
        capacity: how many at once.
    """

    def __init__(self, database: Database, *, executor: str, queue: str, capacity: int) -> None:
        self._database = database
        self._executor = executor
        self._queue = queue
        self._capacity = capacity

    async def take(self, *, limit: int, id: str | None = None) -> list[RemoteCall]:
        """Take calls, for good: the one with an id, or those that have waited longest."""
        rows = await self._database.rows(
            "remote_take", self._executor, self._queue, None if id is None else UUID(id), limit
        )
        return [_call_of(row) for row in rows]

    async def beat(self, ids: Sequence[str]) -> tuple[list[str], bool]:
        """Say that this executor lives; return which of these calls nobody waits for, and whether it is to leave."""
        row = await self._database.row(
            "remote_beat",
            self._executor,
            self._queue,
            self._capacity,
            platform.node(),
            os.getpid(),
            [UUID(id) for id in ids],
        )
        return [str(id) for id in row["unwanted"]], row["draining"]

    async def tidy(self, *, silent: timedelta) -> None:
        """End the calls that nobody waits for any more, and those of executors that are gone, whatever their queue."""
        await self._database.run("remote_tidy", silent)

    async def finish(self, id: str, end: RemoteEnd) -> bool:
        """Record how a call came out; False if it had been given up by then."""
        row = await self._database.row(
            "remote_finish", UUID(id), self._executor, end.outcome, json_of(end.result)
        )
        return bool(row[0])

    async def leave(self) -> None:
        """Say that this executor leaves."""
        await self._database.run("unregister", self._executor)


def _end_of(row: Any) -> RemoteEnd | None:
    if row["outcome"] is None:
        return None
    return RemoteEnd(outcome=row["outcome"], result=json.loads(row["result"] or "null"))


def _call_of(row: Any) -> RemoteCall:
    return RemoteCall(
        id=str(row["id"]),
        workspace=row["workspace"],
        principal=row["principal"],
        roles=frozenset(row["roles"]),
        thread=str(row["thread"]),
        run=str(row["run"]),
        attempt=row["attempt"],
        fence=row["fence"],
        asked_by=row["asked_by"],
        call_id=row["call_id"],
        agent=row["agent"],
        tool=row["tool"],
        args=json.loads(row["args"]),
        context=json.loads(row["context"]),
        left_s=row["left_s"],
    )
