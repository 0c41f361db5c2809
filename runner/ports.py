"""What the Runner needs from the stores and the wires behind it."""

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from threadhold.fanout.cursor import Position
from threadhold.runner.checkpoints import Checkpoint, Replay
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import RequestClosed
from threadhold.runner.executions import Execution, ExecutionReceipt, ExecutionTree
from threadhold.runner.exports import ExportPage, Place
from threadhold.runner.machine import RunStatus
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import (
    Access,
    AttemptRecord,
    Fact,
    Member,
    Message,
    Nudge,
    OnBusy,
    Outcome,
    Page,
    Principal,
    Receipt,
    Request,
    Run,
    StopReceipt,
    Thread,
    ThreadStatus,
    WorkerRecord,
)


class ThreadStore(Protocol):
    """Threads, for the people who may see them.

    Whatever is about one thread, and does not make it, raises NotFound if there is none that the principal may see.
    """

    def new_thread_id(self, *, by: Principal, key: str | None) -> str:
        """Return a fresh id, or the one that belongs to this principal's key."""
        ...

    async def create(
        self,
        thread: str,
        *,
        agent: str,
        title: str | None,
        metadata: dict[str, Any],
        execution: str | None,
        by: Principal,
    ) -> Thread:
        """Make a thread; the same call again returns the same thread.

        Raises:
            ThreadExists: the id is taken by another thread.
        """
        ...

    async def get(self, thread: str, *, by: Principal) -> Thread:
        """Return a thread."""
        ...

    async def update(
        self,
        thread: str,
        *,
        title: str | None,
        metadata: dict[str, Any] | None,
        status: ThreadStatus | None,
        unchanged_since: datetime | None,
        by: Principal,
    ) -> Thread:
        """Change what people see of a thread and return it; None leaves a thing as it is.

        Raises:
            NotFound, Forbidden, ThreadChanged, ThreadBusy, ThreadArchived.
        """
        ...

    async def resolve(
        self,
        thread: str,
        *,
        agent: str,
        participants: Sequence[str],
        memory: Sequence[MemoryBinding],
        state_refs: Sequence[str],
        status: ThreadStatus | None,
        by: Principal,
    ) -> tuple[Thread, int]:
        """Find a thread or make it, and add to what it is about; returns it with the newest seq of its log.

        Raises:
            NotFound, Forbidden, ThreadMismatch, ThreadArchived, ThreadBusy, InvalidInput.
        """
        ...

    async def list(self, *, by: Principal, before: str | None, limit: int) -> list[Thread]:
        """Return the principal's threads by id, the highest first."""
        ...

    async def members(self, thread: str, *, by: Principal) -> builtins.list[Member]:
        """Return who may see a thread beside its owner."""
        ...

    async def set_member(self, thread: str, member: str, access: Access, *, by: Principal) -> Member:
        """Let somebody in, or change what they may do.

        Raises:
            NotFound, OwnersOnly, InvalidInput, MembersFull.
        """
        ...

    async def remove_member(self, thread: str, member: str, *, by: Principal) -> None:
        """Let somebody out, whether they were in or not.

        Raises:
            NotFound, OwnersOnly.
        """
        ...

    async def start_of_watch(self, thread: str, *, by: Principal, after: Literal["head"] | None) -> Position:
        """Return the head of the thread, or the start of its current or last run."""
        ...


class MessageStore(Protocol):
    """The inbox."""

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
        """Accept a message, durably and repeatably by key; `create_with` names the agent of a thread to be made.

        Raises:
            NotFound, Forbidden, KeyConflict, ThreadExists, ThreadArchived, ThreadBusy, InboxFull.
        """
        ...

    async def get(self, message: str, *, by: Principal) -> Message:
        """Return a message with what has become of it."""
        ...


class RunStore(Protocol):
    """Runs as people see them."""

    async def get(self, run: str, *, by: Principal) -> Run:
        """Return a run."""
        ...

    async def stop(
        self, *, run: str | None, thread: str | None, by: Principal, key: str | None
    ) -> tuple[StopReceipt, Nudge]:
        """Record a stop, durably."""
        ...

    async def begin(self, run: str, *, by: Principal) -> int | None:
        """Return the chunk of history that a run began with, None if it has written nothing down.

        Raises:
            NotFound: there is no run that the principal may see.
        """
        ...

    async def replay(self, run: str, *, chunk: int, by: Principal, key: str | None) -> tuple[Replay, Nudge]:
        """Make a run that goes on from a chunk of this one's history, durably and repeatably by key.

        Raises:
            NotFound, Forbidden, NotReplayable, KeyConflict, ThreadArchived, ThreadBusy.
        """
        ...

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
        ...

    async def explain(self, run: str) -> dict[str, Any]:
        """Return what is known of a run beyond its row: `stop`, `lost`, `claim` and `has_worker`, as in `Why`."""
        ...

    async def attempts(self, run: str) -> builtins.list[AttemptRecord]:
        """Return a run's attempts, oldest first."""
        ...

    async def tools(self, run: str) -> dict[str, str]:
        """Return what became of each tool call of a run."""
        ...

    async def workers(self) -> builtins.list[WorkerRecord]:
        """Return the workers that were seen in the last minute."""
        ...

    async def drain(self, worker: str) -> builtins.list[str]:
        """Ask workers of this id or name to hand their runs over and leave; returns who was asked."""
        ...


class RequestStore(Protocol):
    """What paused runs wait for."""

    async def get(self, request: str, *, by: Principal) -> Request:
        """Return a request.

        Raises:
            NotFound: there is none that the principal may see.
        """
        ...

    async def list(
        self, *, by: Principal, status: str | None, thread: str | None, before: str | None, limit: int
    ) -> list[Request]:
        """Return requests that the principal may see, newest first."""
        ...

    async def answer(
        self, request: str, decision: Decision, *, by: Principal, args_hash: str | None
    ) -> tuple[Outcome | RequestClosed, Nudge]:
        """Record a decision, durably and repeatably; the last open one makes the run go on.

        Where the request's time was over, that is recorded instead, which others have to be told of as well: so it is
        returned, to be raised after that.

        Raises:
            NotFound, Forbidden, OwnRequest, WrongDecision, ArgsChanged, AlreadyAnswered, RequestClosed.
        """
        ...


class LogStore(Protocol):
    """What is on record, for the people who may see it. All pages go forward, and begin behind `after`.

    All but `calls` raise NotFound where there is nothing that the principal may see.
    """

    async def facts(self, thread: str, *, by: Principal, after: int, limit: int) -> Page[Fact]:
        """Return facts of a thread, from a `seq` on."""
        ...

    async def history(
        self, thread: str, *, by: Principal, after: int, limit: int, head: int | None = None
    ) -> Page[Any]:
        """Return a thread's messages as JSON values, from a chunk on; `limit` counts chunks.

        They are the history as it stood at the chunk `head`, or as it stands now.
        """
        ...

    async def checkpoints(self, run: str, *, by: Principal, after: int, limit: int) -> Page[Checkpoint]:
        """Return the positions that a run has reached, from a chunk on."""
        ...

    async def checkpoint(self, run: str, chunk: int, *, by: Principal) -> Checkpoint:
        """Return one position."""
        ...

    async def attempts(self, run: str, *, by: Principal, after: int, limit: int) -> Page[AttemptRecord]:
        """Return attempts of a run, from one on."""
        ...

    async def answers(
        self, run: str, *, by: Principal, after: int, limit: int, calling: bool = False
    ) -> Page[Fact]:
        """Return the `model_called` facts of a run, from a `seq` on; only those with calls if they are `calling`."""
        ...

    async def calls(self, run: str, *, by: Principal, answers: list[int]) -> list[Fact]:
        """Return the facts about the calls of these answers, as `calls_of` takes them; none if they may not be seen."""
        ...

    async def export(self, *, thread: str | None, run: str | None, by: Principal, after: Place) -> ExportPage:
        """Return facts behind a place: of a thread, of a run, or of all threads of an operator's workspace."""
        ...


class ExecutionStore(Protocol):
    """Executions, for those who started them and for operators."""

    async def execute(
        self, agent: str, mission: str, *, by: Principal, key: str | None
    ) -> tuple[ExecutionReceipt, Nudge]:
        """Start an execution in one transaction, repeatably by key.

        Raises:
            KeyConflict.
        """
        ...

    async def find(self, execution: str, *, by: Principal) -> Execution:
        """Return an execution.

        Raises:
            NotFound: there is none that the principal may see.
        """
        ...

    async def tree(self, execution: str, *, by: Principal) -> ExecutionTree:
        """Return an execution with all that it is tried in.

        Raises:
            NotFound: there is none that the principal may see.
        """
        ...

    async def list(self, *, by: Principal, before: str | None, limit: int) -> list[Execution]:
        """Return executions that the principal may see by id, the highest first."""
        ...

    async def threads(
        self, execution: str, *, by: Principal, after: str | None, limit: int
    ) -> builtins.list[Thread]:
        """Return threads of an execution that the principal may see, oldest first.

        Raises:
            NotFound: there is no execution that the principal may see.
        """
        ...


class Wires(Protocol):
    """Hints to other processes, sent in the background. They may be lost, late or repeated; none raises or waits."""

    def announce(self, nudge: Nudge) -> None:
        """After a commit: ring the thread's watchers, wake a worker for a new run, poke the holder."""
        ...

    def ring(self, thread: str, seq: int) -> None:
        """Ring the thread's watchers soon, without waiting; only the newest seq of a thread counts."""
        ...
