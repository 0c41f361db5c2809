"""What the Runner needs from the stores and the wires behind it."""

import builtins
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from threadhold.fanout.cursor import Position
from threadhold.runner.decisions import Decision, NewRequest
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import (
    Access,
    AttemptRecord,
    Ended,
    Fact,
    HandedOver,
    InboxMessage,
    Member,
    Message,
    NewFact,
    Nudge,
    OnBusy,
    Outcome,
    Page,
    Principal,
    Receipt,
    Recorded,
    Request,
    Run,
    Start,
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
        self, thread: str, *, agent: str, title: str | None, metadata: dict[str, Any], by: Principal
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
    ) -> tuple[Outcome, Nudge]:
        """Record a decision, durably and repeatably; the last open one makes the run go on.

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

    async def history(self, thread: str, *, by: Principal, after: int, limit: int) -> Page[Any]:
        """Return a thread's messages as JSON values, from a chunk on; `limit` counts chunks."""
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


class HoldStore(Protocol):
    """Threads that code of one's own holds."""

    async def hold(self, thread: str, *, by: Principal, start_key: str) -> tuple[Start, Nudge]:
        """Take an idle thread; the same key returns the same claim while it lives.

        Raises:
            NotFound, Forbidden, ThreadArchived, ThreadBusy.
        """
        ...

    async def end(
        self,
        start: Start,
        *,
        status: RunStatus,
        reason: str | None = None,
        error: dict[str, Any] | None = None,
        data: dict[str, Any],
    ) -> tuple[Ended, Nudge]:
        """End it.

        Raises:
            ClaimLost: the claim is not the present one; nothing was written.
        """
        ...


class WorkStore(Protocol):
    """Runs as workers handle them. Every write carries the claim.

    `record`, `end`, `pause`, `hand_over` and `partial` raise ClaimLost if it is not the present one, and write nothing.
    """

    async def claim(
        self, thread: str, *, agents: Mapping[str, int], start_key: str, hinted: bool = False
    ) -> tuple[Start | None, Nudge | None]:
        """Take a thread and start its pending run, if there is one for these agents and nobody holds it.

        `agents` says how often a run of each may start again after an abandonment; `hinted`, that this process shows
        with a session lock that it lives.
        """
        ...

    async def history(self, thread: str, *, chunks: int) -> list[Any]:
        """Return the messages of the first `chunks` chunks, as JSON values."""
        ...

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
        """Record what the run did, and consume messages together with the history that shows them.

        After a stop nothing is consumed any more, and the answer says so.
        """
        ...

    async def inbox(self, start: Start) -> list[InboxMessage]:
        """Return the messages that wait for this run."""
        ...

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
        """End the run, or learn that it goes on. `data` goes onto its run_ended."""
        ...

    async def pause(
        self,
        start: Start,
        *,
        requests: Sequence[NewRequest],
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
    ) -> Nudge | None:
        """Close the attempt with requests to people; None when a stop came first and nothing was written."""
        ...

    async def hand_over(
        self, start: Start, *, facts: Sequence[NewFact] = (), history: Sequence[Any] = ()
    ) -> tuple[HandedOver, Nudge]:
        """Give the run to another worker, or end it when it was asked to stop."""
        ...

    async def partial(self, start: Start, message: Any) -> None:
        """Keep the response in progress, in case this process dies."""
        ...

    async def holds(self, start: Start) -> bool:
        """Tell whether this claim is the thread's present one."""
        ...

    async def call_facts(self, thread: str, *, calls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the thread's facts about these tool calls, each with its kind as `fact`, oldest first."""
        ...

    async def release(self, start: Start, *, cause: str) -> Nudge | None:
        """Give the claim up early; None when it was not ours any more."""
        ...

    async def pending(self, *, agents: Sequence[str], limit: int) -> list[str]:
        """Return threads whose pending run nobody took yet."""
        ...

    async def sweep(self, *, limit: int, dead: Sequence[str] = ()) -> list[Nudge]:
        """Take lapsed threads, and those of holders that are dead, and record what they left.

        Requests whose time is over are denied.
        """
        ...

    async def audited(self, *, every: timedelta) -> list[dict[str, Any]]:
        """Return the invariants that are broken, if it is this worker's turn to look: one does, once in `every`."""
        ...

    async def draining(self) -> bool:
        """Tell whether an operator asked this worker to leave."""
        ...

    async def register(self, *, agents: Sequence[str], capacity: int) -> None:
        """Say that this worker is there."""
        ...

    async def unregister(self) -> None:
        """Say that this worker leaves."""
        ...


class Wires(Protocol):
    """Hints to other processes, sent in the background. They may be lost, late or repeated; none raises or waits."""

    def announce(self, nudge: Nudge) -> None:
        """After a commit: ring the thread's watchers, wake a worker for a new run, poke the holder."""
        ...

    def ring(self, thread: str, seq: int) -> None:
        """Ring the thread's watchers soon, without waiting; only the newest seq of a thread counts."""
        ...
