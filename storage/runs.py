"""Runs as people see them."""

import builtins
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from threadhold.runner.admitting import PLAIN, Admitting
from threadhold.runner.checkpoints import Replay, checkpoint_id
from threadhold.runner.errors import (
    ActsForAnother,
    DecideFirst,
    Forbidden,
    KeyConflict,
    NotFound,
    NotReplayable,
    RunnerError,
    ThreadArchived,
    ThreadBusy,
    Unavailable,
)
from threadhold.runner.machine import AttemptOutcome, RunStatus
from threadhold.runner.records import (
    AttemptRecord,
    Nudge,
    Principal,
    Run,
    StopReceipt,
    WorkerRecord,
)
from threadhold.runner.tally import UNTOLD, Tally
from threadhold.storage.encoding import json_of
from threadhold.storage.ids import as_uuid, new_id
from threadhold.storage.pool import Database


def run_of(row: Any) -> Run:
    """Return the run that a row tells of."""
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
        interface=row["interface"],
        environment=row["environment"],
        budget=row["budget"],
        output=json.loads(row.get("output") or "null"),
        replay_of=str(row["replay_of"]) if row["replay_of"] else None,
        replay_from=checkpoint_id(row["replay_begin"], row["replay_chunk"]) if row["replay_of"] else None,
    )


def attempt_of(row: Any) -> AttemptRecord:
    """Return the attempt that a row tells of."""
    return AttemptRecord(
        run=str(row["run_id"]),
        attempt=row["attempt"],
        fence=row["fence"],
        worker=row["worker"],
        outcome=AttemptOutcome(row["outcome"]) if row["outcome"] else None,
        cause=row["cause"],
        started_at=row["started_at"],
        closed_at=row["closed_at"],
    )


def _worker(row: Any) -> WorkerRecord:
    return WorkerRecord(
        id=row["id"],
        agents=tuple(row["agents"]),
        capacity=row["capacity"],
        running=row["running"],
        host=row["host"],
        pid=row["pid"],
        draining=row["draining"],
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        queue=row["queue"],
    )


def _fate(row: Any) -> str:
    """Say what is known of one tool call."""
    if row["returned"]:
        return "finished"
    if not row["called"]:
        return "never_started"
    return "unknown" if row["ended"] else "still_running"


def _replay_refusal(row: Any, run: str, key: str | None) -> RunnerError:
    """Return the typed form of a refused replay."""
    match row["outcome"]:
        case "forbidden":
            return Forbidden("replay")
        case "not_yours":
            return ActsForAnother("replay it")
        case "key_conflict":
            return KeyConflict(key or "")
        case "not_ended":
            return NotReplayable(run, "it has not ended; stop it first, or send a message to it")
        case "no_checkpoint":
            return NotReplayable(run, "that is no checkpoint of it")
        case "thread_archived":
            return ThreadArchived(str(row["thread"]))
        case "thread_busy":
            return ThreadBusy(str(row["run"]))
        case _:
            return NotFound("run", run)


class PostgresRuns:
    """The `RunStore` on Postgres."""

    def __init__(self, database: Database, *, tally: Tally = UNTOLD, admitting: Admitting = PLAIN) -> None:
        self._database = database
        self._tally = tally
        self._admitting = admitting

    async def get(self, run: str, *, by: Principal) -> Run:
        """Return a run."""
        id = as_uuid(run, "run")
        row = await self._database.row("get_run", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("run", run)
        return run_of(row)

    async def begin(self, run: str, *, by: Principal) -> int | None:
        """Return the chunk of history that a run began with, None if it has written nothing down."""
        id = as_uuid(run, "run")
        row = await self._database.row("begin_of_run", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("run", run)
        chunk: int | None = row["chunk"]
        return chunk

    async def replay(self, run: str, *, chunk: int, by: Principal, key: str | None) -> tuple[Replay, Nudge]:
        """Make a run that goes on from a chunk of this one's history, under the thread's lock."""
        id, roles, admission = as_uuid(run, "run"), sorted(by.roles), json_of(self._admitting.of(by))
        row = await self._database.row(
            "replay", by.workspace, by.id, roles, id, chunk, key, new_id(), admission
        )
        if row["outcome"] != "ok":
            raise _replay_refusal(row, run, key)
        thread, made = str(row["thread"]), str(row["run"])
        replay = Replay(
            thread=thread,
            run=made,
            origin=str(id),
            checkpoint=checkpoint_id(row["begun_by"], chunk),
            seq=row["seq"],
            duplicate=row["duplicate"],
            no_worker=not row["has_worker"],
        )
        waits = row["dispatch"] is not None
        agent, next_run = (row["agent"], made) if waits else (None, None)
        return replay, Nudge(thread=thread, seq=row["seq"], agent=agent, run=next_run)

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
        if row["outcome"] == "decide_first":
            raise DecideFirst(str(row["run"]))
        await self._tell_stop(row)
        return self._receipt(row), self._nudge(row)

    async def _tell_stop(self, row: Any) -> None:
        """Count a stop, and the end of a run that nobody was working on; any other is counted where it ends."""
        self._tally.stop_asked(row["outcome"])
        if row["outcome"] != "stopped":
            return
        with contextlib.suppress(Unavailable):
            run = await self._database.row("how_ended", row["run"])
            self._tally.run_ended(
                run["agent"], status=run["status"], reason=run["reason"], lasted_s=run["lasted_s"]
            )

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

    async def list(
        self,
        *,
        by: Principal,
        status: Sequence[RunStatus] | None,
        agent: str | None,
        principal: str | None,
        thread: str | None,
        before: str | None,
        limit: int,
    ) -> builtins.list[Run]:
        """Return runs that the principal may see, newest first."""
        rows = await self._database.rows(
            "list_runs",
            by.workspace,
            by.id,
            list(by.roles),
            None if status is None else [each.value for each in status],
            agent,
            principal,
            as_uuid(thread, "thread") if thread else None,
            as_uuid(before, "run") if before else None,
            limit,
        )
        return [run_of(row) for row in rows]

    async def explain(self, run: str) -> dict[str, Any]:
        """Return what is known of a run beyond its row."""
        row = await self._database.row("explain", as_uuid(run, "run"))
        return {
            "stop": json.loads(row["stop"]) if row["stop"] else None,
            "lost": tuple(json.loads(row["lost"])),
            "claim": json.loads(row["claim"]) if row["claim"] else None,
            "has_worker": row["has_worker"],
            "spent": json.loads(row["spent"]),
            "charged": tuple(json.loads(row["charged"])),
            "decisions": tuple(json.loads(row["decisions"])),
        }

    async def attempts(self, run: str) -> builtins.list[AttemptRecord]:
        """Return a run's attempts, oldest first."""
        return [attempt_of(row) for row in await self._database.rows("attempts", as_uuid(run, "run"))]

    async def pending(self) -> dict[str, int]:
        """Return how many runs of each agent wait for a worker."""
        return {row["agent"]: row["runs"] for row in await self._database.rows("pending_by_agent")}

    async def workers(self) -> builtins.list[WorkerRecord]:
        """Return the workers that were seen in the last minute."""
        return [_worker(row) for row in await self._database.rows("workers")]

    async def drain(self, worker: str) -> builtins.list[str]:
        """Ask workers of this id or name to hand their runs over and leave."""
        return [row[0] for row in await self._database.rows("drain", worker)]

    async def tools(self, run: str) -> dict[str, str]:
        """Return what became of each tool call that the model asked for."""
        rows = await self._database.rows("tools_of_run", as_uuid(run, "run"))
        return {row["call_id"]: _fate(row) for row in rows}
