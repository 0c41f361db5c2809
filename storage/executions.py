"""Executions, and the trees of what they are tried in."""

import builtins
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from threadhold.runner.admitting import PLAIN, Admitting
from threadhold.runner.errors import KeyConflict, NotFound
from threadhold.runner.executions import (
    Execution,
    ExecutionReceipt,
    ExecutionTree,
    RunTree,
    ThreadTree,
    status_of,
)
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Nudge, Principal, Run, Thread
from threadhold.storage.encoding import json_of
from threadhold.storage.ids import as_uuid, execution_ids, new_id
from threadhold.storage.pool import Database
from threadhold.storage.requests import request_of
from threadhold.storage.runs import attempt_of, run_of
from threadhold.storage.threads import thread_of

THREADS_MAX: Final = 100
RUNS_MAX: Final = 20
PARTS_MAX: Final = 20
"""A tree has at most so many threads, runs of each, and attempts and requests of each of those."""

T = TypeVar("T")


def _execution(row: Any) -> Execution:
    status = status_of([RunStatus(each) for each in row["statuses"]])
    done = status is RunStatus.COMPLETED
    reasons = {RunStatus.FAILED: row["failed_reason"], RunStatus.STOPPED: row["stopped_reason"]}
    return Execution(
        id=str(row["id"]),
        workspace=row["workspace"],
        principal=row["principal"],
        agent=row["agent"],
        mission=row["mission"],
        status=status,
        reason=reasons.get(status),
        result=json.loads(row["result"] or "null") if done else None,
        created_at=row["created_at"],
        ended_at=row["ended_at"] if done or status in reasons else None,
    )


class PostgresExecutions:
    """The `ExecutionStore` on Postgres."""

    def __init__(self, database: Database, *, admitting: Admitting = PLAIN) -> None:
        self._database = database
        self._admitting = admitting

    async def execute(
        self, agent: str, mission: str, *, by: Principal, key: str | None
    ) -> tuple[ExecutionReceipt, Nudge]:
        """Start an execution in one transaction, repeatably by key."""
        execution, thread = execution_ids(by.workspace, by.id, key)
        message = new_id()
        row = await self._database.row(
            "execute",
            by.workspace,
            by.id,
            sorted(by.roles),
            execution,
            agent,
            mission,
            thread,
            key or str(message),
            hashlib.sha256(mission.encode()).digest(),
            message,
            new_id(),
            json_of(self._admitting.of(by)),
        )
        if row["outcome"] != "ok":
            raise KeyConflict(key or "")
        receipt = ExecutionReceipt(
            execution=str(execution),
            thread=str(thread),
            run=str(row["run"]),
            message=str(row["message"]),
            seq=row["seq"],
            duplicate=row["duplicate"],
            no_worker=not row["has_worker"],
        )
        waits = row["dispatch"] is not None
        next_agent, next_run = (agent, receipt.run) if waits else (None, None)
        return receipt, Nudge(thread=receipt.thread, seq=row["seq"], agent=next_agent, run=next_run)

    async def find(self, execution: str, *, by: Principal) -> Execution:
        """Return an execution."""
        id = as_uuid(execution, "execution")
        row = await self._database.row("get_execution", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("execution", execution)
        return _execution(row)

    async def list(self, *, by: Principal, before: str | None, limit: int) -> list[Execution]:
        """Return executions that the principal may see by id, the highest first."""
        older = as_uuid(before, "execution") if before else None
        rows = await self._database.rows("list_executions", by.workspace, by.id, list(by.roles), older, limit)
        return [_execution(row) for row in rows]

    async def threads(
        self, execution: str, *, by: Principal, after: str | None, limit: int
    ) -> builtins.list[Thread]:
        """Return threads of an execution that the principal may see, oldest first."""
        await self.find(execution, by=by)
        return await self._threads(execution, by, after, limit)

    async def _threads(
        self, execution: str, by: Principal, after: str | None, limit: int
    ) -> builtins.list[Thread]:
        younger = as_uuid(after, "thread") if after else None
        rows = await self._database.rows(
            "threads_of_execution", UUID(execution), by.workspace, by.id, list(by.roles), younger, limit
        )
        return [thread_of(row) for row in rows]

    async def tree(self, execution: str, *, by: Principal) -> ExecutionTree:
        """Return an execution with all that it is tried in, as far as a tree goes."""
        found = await self.find(execution, by=by)
        threads = await self._threads(found.id, by, None, THREADS_MAX + 1)
        runs, more_runs = await self._of(
            "runs_of_threads", [thread.id for thread in threads[:THREADS_MAX]], RUNS_MAX, run_of, "thread_id"
        )
        ids = [run.id for each in runs.values() for run in each]
        attempts, more_tries = await self._of("attempts_of_runs", ids, PARTS_MAX, attempt_of, "run_id")
        requests, more_asked = await self._of("requests_of_runs", ids, PARTS_MAX, request_of, "run_id")

        def tree_of(run: Run) -> RunTree:
            tries, asked = reversed(attempts[run.id]), reversed(requests[run.id])
            return RunTree(run=run, attempts=tuple(tries), requests=tuple(asked))

        return ExecutionTree(
            execution=found,
            threads=tuple(
                ThreadTree(thread=thread, runs=tuple(tree_of(run) for run in runs[thread.id]))
                for thread in threads[:THREADS_MAX]
            ),
            cut_short=len(threads) > THREADS_MAX or more_runs or more_tries or more_asked,
        )

    async def _of(
        self, statement: str, ids: Sequence[str], most: int, item: Callable[[Any], T], owner: str
    ) -> tuple[defaultdict[str, builtins.list[T]], bool]:
        """Return the newest things of each owner, newest first, and whether one has more of them."""
        found: defaultdict[str, builtins.list[T]] = defaultdict(list)
        rows = await self._database.rows(statement, [UUID(id) for id in ids], most + 1) if ids else []
        for row in rows:
            found[str(row[owner])].append(item(row))
        more = any(len(items) > most for items in found.values())
        return defaultdict(builtins.list, {id: items[:most] for id, items in found.items()}), more
