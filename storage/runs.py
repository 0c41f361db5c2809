"""Runs as people see them."""

import json
from typing import Any

from threadhold.runner.errors import Forbidden, NotFound
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Nudge, Principal, Run, StopReceipt
from threadhold.storage.ids import as_uuid, new_id
from threadhold.storage.pool import Database


def _run(row: Any) -> Run:
    return Run(
        id=str(row["id"]),
        thread=str(row["thread_id"]),
        agent=row["agent"],
        principal=row["principal"],
        status=RunStatus(row["status"]),
        reason=row["reason"],
        error=json.loads(row["error"]) if row["error"] else None,
        attempt=row["attempt"],
        first_seq=row["first_seq"],
        stop_requested=row["stop_requested"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def _fate(row: Any) -> str:
    """Say what is known of one tool call."""
    if row["returned"]:
        return "finished"
    if not row["called"]:
        return "never_started"
    return "unknown" if row["ended"] else "still_running"


class PostgresRuns:
    """The `RunStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, run: str, *, by: Principal) -> Run:
        """Return a run."""
        id = as_uuid(run, "run")
        row = await self._database.row("get_run", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("run", run)
        return _run(row)

    async def stop(
        self, *, run: str | None, thread: str | None, by: Principal, key: str | None
    ) -> tuple[StopReceipt, Nudge]:
        """Record a stop, durably and repeatably."""
        what, id = ("run", run) if run is not None else ("thread", thread or "")
        target = as_uuid(id or "", what)
        row = await self._database.row(
            "stop",
            by.workspace,
            by.id,
            sorted(by.roles),
            None if run is not None else target,
            target if run is not None else None,
            key,
            new_id(),
        )
        if row["outcome"] == "not_found":
            raise NotFound(what, id or "")
        if row["outcome"] == "forbidden":
            raise Forbidden("stop")
        return self._receipt(row), self._nudge(row)

    def _receipt(self, row: Any) -> StopReceipt:
        return StopReceipt(
            thread=str(row["thread"]),
            run=str(row["run"]) if row["run"] else None,
            settled=row["outcome"] != "requested",
            status=RunStatus(row["status"]) if row["status"] else None,
            seq=row["seq"],
        )

    def _nudge(self, row: Any) -> Nudge:
        following = str(row["next_run"]) if row["next_run"] else None
        holder = row["holder"] if row["outcome"] == "requested" else None
        agent = row["agent"] if following else None
        return Nudge(thread=str(row["thread"]), seq=row["seq"], agent=agent, run=following, holder=holder)

    async def tools(self, run: str) -> dict[str, str]:
        """Return what became of each tool call that the model asked for."""
        rows = await self._database.rows("tools_of_run", as_uuid(run, "run"))
        return {row["call_id"]: _fate(row) for row in rows}
