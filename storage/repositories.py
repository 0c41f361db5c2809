"""Records of runs that a program of one's own keeps, on Postgres."""

import builtins
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import asyncpg

from threadhold.runner.admitting import PLAIN, Admitting
from threadhold.runner.decisions import NewRequest, Terms
from threadhold.runner.errors import (
    ClaimLost,
    DecideFirst,
    Forbidden,
    InvalidInput,
    NotFound,
    RunnerError,
    ThreadArchived,
    ThreadBusy,
)
from threadhold.runner.machine import FailReason, InvalidTransition, RunStatus, is_final
from threadhold.runner.memory import MemoryBinding, binding_data
from threadhold.runner.principals import checked_id
from threadhold.runner.records import REFS_MAX, Nudge, Principal, ThreadStatus
from threadhold.runner.repositories.errors import OtherProgram, RunChanged, RunExists, UnknownRun
from threadhold.runner.repositories.models import (
    PendingRequest,
    Run,
    RunConditionResult,
    RunFailureState,
    RunHistoryEntry,
    ThreadRecord,
    body_of,
    revised,
)
from threadhold.runner.resolving import checked_memory, checked_names
from threadhold.storage.encoding import asked_of, json_of
from threadhold.storage.ids import as_uuid, new_id
from threadhold.storage.pool import Database

RECORD_BYTES_MAX: Final = 1024 * 1024
PAGE_MAX: Final = 1000
ADD_TRIES: Final = 20
"""So often something is added to a record anew that others add to at the same time."""

PROGRAM_REASONS: Final = frozenset(
    {FailReason.ERROR, FailReason.TIMEOUT, FailReason.BUDGET_EXHAUSTED, FailReason.REJECTED}
)
"""Why a run failed, as far as its program may say so; the program's own word for it stands beside."""


def record_of(row: Any) -> Run:
    """Return the record that a row tells of; a failure that its program did not write is the protocol's own."""
    state, body = json.loads(row["state"]), json.loads(row["body"])
    failure = state.pop("failure")
    if state["status"] == RunStatus.FAILED and body["failure_state"] is None:
        error = failure or {}
        body["failure_state"] = {
            "reason": state["reason"],
            "message": error.get("message", ""),
            "details": error,
        }
    return Run.model_validate({**body, **state})


def _failed(run: Run) -> tuple[str | None, dict[str, Any] | None]:
    """Return the reason and the error that a failed run's row has."""
    if run.status is not RunStatus.FAILED:
        return None, None
    failure = run.failure_state or RunFailureState(reason=FailReason.ERROR, message=run.error or "")
    reason = failure.reason if failure.reason in PROGRAM_REASONS else FailReason.ERROR
    error = {**failure.details, "type": failure.reason, "message": failure.message or failure.reason}
    return str(reason), error


def _asked(run: Run) -> dict[str, Any] | None:
    """Return the request that a run waits for once it is paused, None where it says nothing of one.

    Raises:
        InvalidInput: nobody could decide it.
    """
    asked = run.pending_request
    if asked is None or run.status is not RunStatus.PAUSED:
        return None
    return asked_of(
        NewRequest(
            kind=asked.kind,
            call_id=asked.call_id or str(new_id()),
            tool=asked.tool,
            args=asked.args,
            terms=_terms(asked),
            metadata=asked.metadata,
        )
    )


def _terms(asked: PendingRequest) -> Terms:
    expires = None if asked.expires_in_s is None else timedelta(seconds=asked.expires_in_s)
    try:
        return Terms(approvers=asked.approvers, other_only=asked.other_only, expires_in=expires)
    except ValueError as error:
        raise InvalidInput(str(error), field="pending_request") from None


def _program(agent: str, version: str | None, deployment: str | None) -> dict[str, str | None]:
    """Return whose run or thread it is, in names that may be kept."""
    refs = {"version": version, "deployment": deployment}
    named = {key: ref if ref is None else checked_id(ref, f"{key}_ref") for key, ref in refs.items()}
    return {"agent": checked_id(agent, "agent"), **named}


def _told(run: Run) -> dict[str, Any]:
    """Return what a write says of a run beside its body."""
    reason, error = _failed(run)
    return {
        "claim": run.claim_id,
        **_program(run.agent, run.graph_version_ref, run.deployment_ref),
        "parent": None if run.parent_run_id is None else str(as_uuid(run.parent_run_id, "run")),
        "reason": reason,
        "error": error,
        "output": run.final_output,
        "request": _asked(run),
    }


def _refusal(run: Run, row: Any) -> Exception:
    """Return the typed form of a refused write."""
    state = json.loads(row["state"] or "{}")
    status = RunStatus(state.get("status", RunStatus.PENDING))
    refusals: dict[str, Callable[[], Exception]] = {
        "not_found": lambda: UnknownRun(run.run_id),
        "no_parent": lambda: UnknownRun(run.parent_run_id or ""),
        "forbidden": lambda: Forbidden("write to it"),
        "exists": lambda: RunExists(run.run_id),
        "mismatch": lambda: OtherProgram(run.thread_id),
        "thread_archived": lambda: ThreadArchived(run.thread_id),
        "thread_busy": lambda: ThreadBusy(str(row["next_run"])),
        "invalid": lambda: InvalidTransition(status, run.status),
        "fenced": lambda: ClaimLost(run.thread_id, run.fence),
        "decide_first": lambda: DecideFirst(run.run_id),
        "asks_nothing": lambda: InvalidInput("a paused run waits: say for what", field="pending_request"),
    }
    return refusals.get(row["outcome"], lambda: RunChanged(run.run_id, status=status))()


class PostgresRepository:
    """The `RunRepository` on Postgres, for one principal.

    Args:
        database: the pool.
        by: who reads and writes.
        holder: this process's name, for whoever asks who holds a run.
        ttl: how long a running run may go without a write before it counts as abandoned.
        announce: tells other processes what was committed.
        admitting: what runs are admitted with.
    """

    def __init__(
        self,
        database: Database,
        *,
        by: Principal,
        holder: str,
        ttl: timedelta,
        announce: Callable[[Nudge], None],
        admitting: Admitting = PLAIN,
    ) -> None:
        self._database = database
        self._by = by
        self._holder = holder
        self._ttl = ttl
        self._announce = announce
        self._admission = {"interface": "repository", "environment": admitting.environment}

    async def get(self, run_id: str) -> Run | None:
        """Return a record; None if there is none that may be seen."""
        return await self._one("get_record", run_id)

    async def create(self, run: Run) -> Run:
        """Make a record, its run, and its thread if there is none, with a first checkpoint."""
        return await self._save(run, "create")

    async def put(self, run: Run) -> Run:
        """Make a record, or replace what is stored of it."""
        return await self._save(run, "put")

    async def put_if_status(self, run: Run, expected: RunStatus) -> Run:
        """Replace a record if its stored status is `expected`."""
        return await self._save(run, "change", expected=expected)

    async def transition(self, run_id: str, status: RunStatus, **fields: Any) -> Run:
        """Bring a run to a status, with other values in some fields; where it has that status, nothing is written."""
        run = await self._found(run_id)
        if run.status == status and not fields:
            return run
        try:
            changed = revised(run, {**fields, "status": status})
        except ValueError as error:
            raise InvalidInput(f"this is no record of a run: {error}", field="fields") from None
        return await self._save(changed, "change", expected=run.status, seen=run.checkpoint_id)

    async def record_history(self, run_id: str, entry: RunHistoryEntry) -> Run:
        """Append an entry of the history, whoever else adds to the record at once."""
        return await self._add(run_id, lambda run: run.add(entry))

    async def record_conditions(self, run_id: str, results: Sequence[RunConditionResult]) -> Run:
        """Append results of conditions, whoever else adds to the record at once."""
        return await self._add(run_id, lambda run: run.condition_results.extend(results))

    async def list_runs(
        self,
        *,
        deployment_ref: str | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> builtins.list[Run]:
        """Return records, newest first."""
        _bounded(limit)
        if offset < 0:
            raise InvalidInput("offset is 0 or more", field="offset")
        rows = await self._database.rows("list_records", *self._who(), deployment_ref, status, limit, offset)
        return [record_of(row) for row in rows]

    async def list_child_runs(self, parent_run_id: str) -> builtins.list[Run]:
        """Return the records that name a run as their parent, oldest first, a thousand at most."""
        try:
            id = as_uuid(parent_run_id, "run")
        except NotFound:
            return []
        rows = await self._database.rows("child_records", id, *self._who(), PAGE_MAX)
        return [record_of(row) for row in rows]

    async def count_pending(self, *, deployment_ref: str | None = None) -> int:
        """Return how many records are pending."""
        row = await self._database.row("count_pending_records", *self._who(), deployment_ref)
        return int(row[0])

    async def write_checkpoint(self, run: Run) -> str:
        """Store a record without a step of its status, and return the id of the checkpoint that shows it so."""
        stored = await self._save(run, "change", expected=run.status)
        assert stored.checkpoint_id is not None
        return stored.checkpoint_id

    async def get_checkpoint(self, checkpoint_id: str) -> Run | None:
        """Return a record as it stood; None if there is no such checkpoint that may be seen."""
        return await self._one("record_checkpoint", checkpoint_id)

    async def latest(self, thread_id: str) -> Run | None:
        """Return the record of a thread's newest checkpoint."""
        return await self._one("latest_record_checkpoint", thread_id)

    async def list(self, thread_id: str, *, after: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """Return the records of a thread's checkpoints, oldest first, behind one."""
        _bounded(limit)
        try:
            id, behind = as_uuid(thread_id, "thread"), as_uuid(after, "checkpoint") if after else None
        except NotFound:
            return []
        rows = await self._database.rows("record_checkpoints", id, *self._who(), behind, limit)
        return [record_of(row) for row in rows]

    async def resolve(
        self,
        thread_id: str | None,
        *,
        agent: str,
        graph_version_ref: str | None = None,
        deployment_ref: str | None = None,
        participating_agent_refs: Sequence[str] = (),
        state_snapshot_refs: Sequence[str] = (),
        checkpoint_refs: Sequence[str] = (),
        memory_bindings: Sequence[MemoryBinding] = (),
        run_id: str | None = None,
        status: ThreadStatus | None = None,
    ) -> ThreadRecord:
        """Find or make a thread, and merge into it what is named here."""
        run = None if run_id is None else str(as_uuid(run_id, "run"))
        thread = as_uuid(thread_id or run or str(new_id()), "thread")
        ask = {
            **_program(agent, graph_version_ref, deployment_ref),
            "run": run,
            "participants": checked_names(participating_agent_refs, "participating_agent_refs"),
            "states": checked_names(state_snapshot_refs, "state_snapshot_refs"),
            "checkpoints": checked_names(checkpoint_refs, "checkpoint_refs"),
            "memory": binding_data(checked_memory(memory_bindings)),
            "status": status,
        }
        row = await self._database.row("resolve_thread", *self._who(), thread, json_of(ask), REFS_MAX)
        if row["outcome"] != "ok":
            raise _unresolved(str(thread), row)
        if row["seq"] is not None:
            self._announce(Nudge(thread=str(thread), seq=row["seq"]))
        return ThreadRecord.model_validate_json(row["thread"])

    def _who(self) -> tuple[str, str, builtins.list[str]]:
        return self._by.workspace, self._by.id, sorted(self._by.roles)

    async def _one(self, statement: str, id: str) -> Run | None:
        try:
            known = as_uuid(id, "record")
        except NotFound:
            return None
        row = await self._database.row(statement, known, *self._who())
        return None if row is None else record_of(row)

    async def _found(self, run_id: str) -> Run:
        run = await self.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        return run

    async def _add(self, run_id: str, change: Callable[[Run], None]) -> Run:
        """Change what is stored, anew whenever it is not any more what was read."""
        for left in reversed(range(ADD_TRIES)):
            run = await self._found(run_id)
            change(run)
            try:
                return await self._save(run, "change", expected=run.status, seen=run.checkpoint_id)
            except RunChanged as changed:
                if not left or is_final(changed.status):
                    raise
        raise AssertionError("the last try raises")

    async def _save(
        self, run: Run, mode: str, *, expected: RunStatus | None = None, seen: str | None = None
    ) -> Run:
        """Write a record with a checkpoint, in one transaction."""
        if run.workspace not in (None, self._by.workspace):
            raise UnknownRun(run.run_id)
        body = _encoded(run)
        how = {"mode": mode, "expected": expected, "seen": seen, **_told(run)}
        try:
            row = await self._database.row(
                "save_record",
                *self._who(),
                as_uuid(run.thread_id, "thread"),
                as_uuid(run.run_id, "run"),
                run.status,
                json_of(how),
                body,
                new_id(),
                self._holder,
                self._ttl,
                new_id(),
                json_of(self._admission),
            )
        except asyncpg.UniqueViolationError:
            # Somebody else made a run of this id on another thread meanwhile.
            raise RunExists(run.run_id) from None
        if row["outcome"] == "ended" and json.loads(row["body"]) == json.loads(body):
            return record_of(row)
        if row["outcome"] != "ok":
            raise _refusal(run, row)
        following = None if row["next_run"] is None else str(row["next_run"])
        agent = row["agent"] if following else None
        self._announce(Nudge(thread=str(row["thread"]), seq=row["seq"], agent=agent, run=following))
        return record_of(row)


def _encoded(run: Run) -> str:
    """Return the body of a record as JSON.

    Raises:
        InvalidInput: it is not one, or is too large.
    """
    try:
        text = json_of(body_of(run))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is no record of a run: {str(error)[:200]}", field="run") from None
    size = len(text.encode())
    if size > RECORD_BYTES_MAX:
        raise InvalidInput(f"the record has {size} bytes, {RECORD_BYTES_MAX} are allowed", field="run")
    return text


def _bounded(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidInput(f"limit is 1 to {PAGE_MAX}", field="limit")


def _unresolved(thread: str, row: Any) -> RunnerError:
    """Return the typed form of a thread that was not resolved."""
    match row["outcome"]:
        case "forbidden":
            return Forbidden("change it")
        case "thread_archived":
            return ThreadArchived(thread)
        case "thread_busy":
            return ThreadBusy(None)
        case "full":
            field = row["full_of"]
            return InvalidInput(f"a thread has at most {REFS_MAX} {field}", field=field)
        case _:
            return OtherProgram(thread)
