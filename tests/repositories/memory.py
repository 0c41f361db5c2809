"""A store of run records that keeps them in memory: for tests of programs that keep them, and for the suite itself."""

import asyncio
import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

from threadhold.runner.errors import ClaimLost, DecideFirst, InvalidInput, ThreadArchived, ThreadBusy
from threadhold.runner.machine import RunStatus, advance, is_final
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import ThreadStatus
from threadhold.runner.repositories import (
    OtherProgram,
    Run,
    RunChanged,
    RunConditionResult,
    RunExists,
    RunHistoryEntry,
    ThreadRecord,
    UnknownRun,
)
from threadhold.runner.repositories.models import STORED, body_of, revised

_GIVEN = frozenset({"run_id", "thread_id", "agent", "parent_run_id", "graph_version_ref", "deployment_ref"})


@dataclass
class Shelf:
    """What is stored: records, threads, and checkpoints in the order in which they were written."""

    runs: dict[str, Run] = field(default_factory=dict)
    threads: dict[str, ThreadRecord] = field(default_factory=dict)
    checkpoints: dict[str, Run] = field(default_factory=dict)
    fences: Iterator[int] = field(default_factory=lambda: count(1))


class MemoryRepository:
    """The `RunRepository` in memory, for one workspace. Nothing waits within a write, so that each is whole.

    Args:
        shelf: what several may share.
        workspace: what is shown, and where threads are made.
    """

    def __init__(self, shelf: Shelf, *, workspace: str) -> None:
        self._shelf = shelf
        self._workspace = workspace

    async def get(self, run_id: str) -> Run | None:
        """Return a record; None if there is none that may be seen."""
        return self._seen(self._shelf.runs.get(run_id))

    async def create(self, run: Run) -> Run:
        """Make a record, its run, and its thread if there is none, with a first checkpoint."""
        await asyncio.sleep(0)
        if run.run_id in self._shelf.runs:
            raise RunExists(run.run_id)
        return self._make(_checked(run), new=True)

    async def put(self, run: Run) -> Run:
        """Make a record, or replace what is stored of it."""
        return await self._save(run, new=True)

    async def put_if_status(self, run: Run, expected: RunStatus) -> Run:
        """Replace a record if its stored status is `expected`."""
        return await self._save(run, expected=expected)

    async def transition(self, run_id: str, status: RunStatus, **fields: Any) -> Run:
        """Bring a run to a status, with other values in some fields; where it has that status, nothing is written."""
        run = self._found(run_id)
        if run.status == status and not fields:
            return run
        try:
            changed = revised(run, {**fields, "status": status})
        except ValueError as error:
            raise InvalidInput(str(error), field="fields") from None
        return await self._save(changed, expected=run.status)

    async def record_history(self, run_id: str, entry: RunHistoryEntry) -> Run:
        """Append an entry of the history."""
        return self._add(run_id, lambda run: run.add(entry))

    async def record_conditions(self, run_id: str, results: Sequence[RunConditionResult]) -> Run:
        """Append results of conditions."""
        return self._add(run_id, lambda run: run.condition_results.extend(results))

    async def list_runs(
        self,
        *,
        deployment_ref: str | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> builtins.list[Run]:
        """Return records, newest first."""
        if not 1 <= limit <= 1000 or offset < 0:
            raise InvalidInput("out of range", field="limit")
        found = [
            run
            for run in reversed(self._shelf.runs.values())
            if deployment_ref in (None, run.deployment_ref) and status in (None, run.status)
        ]
        return self._shown(found)[offset : offset + limit]

    async def list_child_runs(self, parent_run_id: str) -> builtins.list[Run]:
        """Return the records that name a run as their parent, oldest first."""
        return self._shown([run for run in self._shelf.runs.values() if run.parent_run_id == parent_run_id])

    async def count_pending(self, *, deployment_ref: str | None = None) -> int:
        """Return how many records are pending."""
        pending = await self.list_runs(deployment_ref=deployment_ref, status=RunStatus.PENDING, limit=1000)
        return len(pending)

    async def write_checkpoint(self, run: Run) -> str:
        """Store a record without a step of its status, and return the id of the checkpoint that shows it so."""
        return str((await self._save(run, expected=run.status)).checkpoint_id)

    async def get_checkpoint(self, checkpoint_id: str) -> Run | None:
        """Return a record as it stood."""
        return self._seen(self._shelf.checkpoints.get(checkpoint_id))

    async def latest(self, thread_id: str) -> Run | None:
        """Return the record of a thread's newest checkpoint."""
        return next(reversed(await self.list(thread_id)), None)

    async def list(self, thread_id: str, *, after: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """Return the records of a thread's checkpoints, oldest first, behind one."""
        found = self._shown([run for run in self._shelf.checkpoints.values() if run.thread_id == thread_id])
        begin = 1 + next((n for n, run in enumerate(found) if run.checkpoint_id == after), -1)
        return found[begin : begin + limit]

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
        await asyncio.sleep(0)
        id = thread_id or run_id or str(uuid4())
        run = self._shelf.runs.get(run_id or "")
        if run is not None and run.thread_id != id:
            raise OtherProgram(id)
        thread = self._thread(id, agent, graph_version_ref, deployment_ref)
        adds = (participating_agent_refs, state_snapshot_refs, checkpoint_refs, memory_bindings)
        if thread.status == "archived" and (any(adds) or status not in (None, "archived")):
            raise ThreadArchived(id)
        if thread.active_run_id is not None and status in ("completed", "archived"):
            raise ThreadBusy(thread.active_run_id)
        thread.participating_agent_refs = _merged(thread.participating_agent_refs, participating_agent_refs)
        thread.state_snapshot_refs = _merged(thread.state_snapshot_refs, state_snapshot_refs)
        thread.checkpoint_refs = _merged(thread.checkpoint_refs, checkpoint_refs)
        thread.memory_bindings = _merged(thread.memory_bindings, memory_bindings)
        thread.status = status or thread.status
        shown = thread.model_copy(deep=True)
        shown.checkpoint_refs += [key for key, run in self._shelf.checkpoints.items() if run.thread_id == id]
        return shown

    def answer(self, run_id: str) -> None:
        """Answer what a paused run waits for."""
        self._shelf.runs[run_id].status = RunStatus.PENDING

    def _seen(self, run: Run | None) -> Run | None:
        if run is None or run.workspace != self._workspace:
            return None
        return run.model_copy(deep=True)

    def _shown(self, runs: Sequence[Run]) -> builtins.list[Run]:
        return [seen for run in runs if (seen := self._seen(run)) is not None]

    def _found(self, run_id: str) -> Run:
        run = self._seen(self._shelf.runs.get(run_id))
        if run is None:
            raise UnknownRun(run_id)
        return run

    def _thread(self, id: str, agent: str, version: str | None, deployment: str | None) -> ThreadRecord:
        now = datetime.now(UTC)
        fresh = ThreadRecord(
            thread_id=id,
            workspace=self._workspace,
            agent=agent,
            participating_agent_refs=[agent],
            created_at=now,
            updated_at=now,
        )
        thread = self._shelf.threads.get(id, fresh)
        same = (thread.workspace, thread.agent) == (self._workspace, agent)
        if not (
            same and _agree(thread.graph_version_ref, version) and _agree(thread.deployment_ref, deployment)
        ):
            raise OtherProgram(id)
        thread.graph_version_ref = thread.graph_version_ref or version
        thread.deployment_ref = thread.deployment_ref or deployment
        return self._shelf.threads.setdefault(id, thread)

    def _add(self, run_id: str, change: Callable[[Run], None]) -> Run:
        run = self._found(run_id)
        if is_final(run.status):
            raise RunChanged(run_id, status=run.status)
        change(run)
        return self._store(run, self._found(run_id))

    async def _save(self, run: Run, *, new: bool = False, expected: RunStatus | None = None) -> Run:
        run = _checked(run)
        await asyncio.sleep(0)
        stored = self._seen(self._shelf.runs.get(run.run_id))
        if stored is None:
            return self._make(run, new=new)
        if expected not in (None, stored.status):
            raise RunChanged(run.run_id, status=stored.status)
        if run.status != stored.status:
            advance(stored.status, run.status)
        if is_final(stored.status):
            if body_of(run) == body_of(stored):
                return stored
            raise RunChanged(run.run_id, status=stored.status)
        if stored.status is RunStatus.RUNNING and run.claim_id != stored.claim_id:
            raise ClaimLost(run.thread_id, run.fence)
        if (stored.status, run.status) == (RunStatus.PAUSED, RunStatus.PENDING):
            raise DecideFirst(run.run_id)
        if run.thread_id != stored.thread_id:
            raise OtherProgram(run.thread_id)
        self._thread(run.thread_id, run.agent, run.graph_version_ref, run.deployment_ref)
        return self._store(run, stored)

    def _make(self, run: Run, *, new: bool) -> Run:
        if not new:
            raise UnknownRun(run.run_id)
        if run.run_id in self._shelf.runs:
            raise RunExists(run.run_id)
        if run.status is not RunStatus.PENDING:
            advance(RunStatus.PENDING, run.status)
        if run.parent_run_id is not None:
            self._found(run.parent_run_id)
        known = self._shelf.threads.get(run.thread_id)
        if known is not None and known.status == "archived":
            raise ThreadArchived(run.thread_id)
        if known is not None and known.workspace == self._workspace and known.active_run_id is not None:
            raise ThreadBusy(known.active_run_id)
        thread = self._thread(run.thread_id, run.agent, run.graph_version_ref, run.deployment_ref)
        thread.run_ids.append(run.run_id)
        thread.active_run_id = thread.last_run_id = run.run_id
        thread.status = "active"
        given = Run(
            **{name: getattr(run, name) for name in _GIVEN}, principal="me", workspace=self._workspace
        )
        given.created_at = datetime.now(UTC)
        return self._store(run, given)

    def _store(self, run: Run, stored: Run) -> Run:
        """Keep a record with a checkpoint, after the step from where it stands."""
        if run.status is RunStatus.PAUSED and run.pending_request is None:
            raise InvalidInput("say for what", field="pending_request")
        known = {name: getattr(stored, name) for name in STORED}
        kept = Run.model_validate({**body_of(run), **known, "status": run.status})
        self._step(kept, stored.status)
        kept.touch()
        thread = self._shelf.threads[run.thread_id]
        kept.parent_checkpoint_id = next(
            (
                key
                for key, each in reversed(self._shelf.checkpoints.items())
                if each.thread_id == run.thread_id
            ),
            None,
        )
        kept.checkpoint_id = str(uuid4())
        kept.graph_version_ref, kept.deployment_ref = thread.graph_version_ref, thread.deployment_ref
        self._shelf.runs[run.run_id] = kept
        self._shelf.checkpoints[kept.checkpoint_id] = kept.model_copy(deep=True)
        return kept.model_copy(deep=True)

    def _step(self, run: Run, before: RunStatus) -> None:
        if run.status is before:
            return
        run.claim_id = None
        if run.status is RunStatus.RUNNING:
            run.claim_id, run.fence, run.attempt = str(uuid4()), next(self._shelf.fences), run.attempt + 1
            run.started_at = run.started_at or datetime.now(UTC)
        elif run.status is RunStatus.PAUSED:
            run.request_id = str(uuid4())
        elif is_final(run.status):
            run.ended_at = datetime.now(UTC)
            self._shelf.threads[run.thread_id].active_run_id = None
            why = {RunStatus.FAILED: "error", RunStatus.STOPPED: "person"}
            run.reason = why.get(run.status)


def _checked(run: Run) -> Run:
    try:
        return Run.model_validate(run.model_dump(warnings=False))
    except ValueError as error:
        raise InvalidInput(str(error), field="run") from None


def _agree(known: str | None, said: str | None) -> bool:
    return known is None or said is None or known == said


def _merged(old: Sequence[Any], new: Sequence[Any]) -> builtins.list[Any]:
    return list(dict.fromkeys([*old, *new]))
