"""What a program needs of a store of run records, in narrow pieces. What they return are snapshots.

A store is opened for a principal, and shows nothing of other workspaces. All writes of a run go through its thread's
lock in one transaction: the record, a checkpoint of it, its status, and the thread.
"""

import builtins
from collections.abc import Sequence
from typing import Any, Protocol

from threadhold.runner.machine import RunStatus
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import ThreadStatus
from threadhold.runner.repositories.models import Run, RunConditionResult, RunHistoryEntry, ThreadRecord


class RunReader(Protocol):
    """Records by their id."""

    async def get(self, run_id: str) -> Run | None:
        """Return a record; None if there is none that may be seen."""
        ...


class RunWriter(Protocol):
    """Writes of records; each returns what is stored then, and writes nothing where it raises.

    All raise NotFound's kin for what may not be seen, Forbidden for who may only read, InvalidTransition for a step
    that the table does not have, ClaimLost when the run has another holder, ThreadBusy when another run has the thread,
    and DecideFirst when only an answer may make the run go on.
    """

    async def create(self, run: Run) -> Run:
        """Make a record, its run, and its thread if there is none, with a first checkpoint.

        Raises:
            RunExists, OtherProgram, ThreadArchived.
        """
        ...

    async def put(self, run: Run) -> Run:
        """Make a record, or replace what is stored of it."""
        ...

    async def put_if_status(self, run: Run, expected: RunStatus) -> Run:
        """Replace a record if its stored status is `expected`.

        Raises:
            RunChanged: it is another one.
            UnknownRun: there is no such record.
        """
        ...

    async def transition(self, run_id: str, status: RunStatus, **fields: Any) -> Run:
        """Bring a run to a status, with other values in some fields; where it has that status, nothing is written.

        Raises:
            UnknownRun, RunChanged.
            InvalidInput: a field is not there, or takes no such value.
        """
        ...


class RunNotes(Protocol):
    """What is added to a record, whoever else adds to it at once: nothing is lost."""

    async def record_history(self, run_id: str, entry: RunHistoryEntry) -> Run:
        """Append an entry of the history.

        Raises:
            UnknownRun, RunChanged.
        """
        ...

    async def record_conditions(self, run_id: str, results: Sequence[RunConditionResult]) -> Run:
        """Append results of conditions.

        Raises:
            UnknownRun, RunChanged.
        """
        ...


class RunLists(Protocol):
    """Records by what they have in common."""

    async def list_runs(
        self,
        *,
        deployment_ref: str | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Run]:
        """Return records, newest first; `limit` is 1 to 1000.

        Raises:
            InvalidInput: a bound is out of range.
        """
        ...

    async def list_child_runs(self, parent_run_id: str) -> list[Run]:
        """Return the records that name a run as their parent, oldest first, a thousand at most."""
        ...

    async def count_pending(self, *, deployment_ref: str | None = None) -> int:
        """Return how many records are pending."""
        ...


class CheckpointStore(Protocol):
    """Records as they stood; a checkpoint never changes."""

    async def write_checkpoint(self, run: Run) -> str:
        """Store a record without a step of its status, and return the id of the checkpoint that shows it so.

        Raises:
            UnknownRun, RunChanged.
        """
        ...

    async def get_checkpoint(self, checkpoint_id: str) -> Run | None:
        """Return a record as it stood; None if there is no such checkpoint that may be seen."""
        ...

    async def latest(self, thread_id: str) -> Run | None:
        """Return the record of a thread's newest checkpoint."""
        ...

    async def list(self, thread_id: str, *, after: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """Return the records of a thread's checkpoints, oldest first, behind one."""
        ...


class ThreadStore(Protocol):
    """Threads as they group runs."""

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
        """Find or make a thread, and merge into it what is named here: in order, without duplicates.

        Args:
            thread_id: None for the run's id, or for a new one.

        Raises:
            OtherProgram: it is another agent's or of another version or deployment, or the run is not its own;
                nothing was merged.
            Forbidden, ThreadArchived, ThreadBusy.
        """
        ...


class RunRepository(RunReader, RunWriter, RunNotes, RunLists, CheckpointStore, ThreadStore, Protocol):
    """All of it, as one store has it. Code that runs things asks for the pieces that it needs."""
