"""What the Runner needs from the stores and the wires behind it."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from threadhold.fanout.cursor import Position
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import (
    Ended,
    InboxMessage,
    Message,
    NewFact,
    Nudge,
    OnBusy,
    Principal,
    Receipt,
    Recorded,
    Run,
    Start,
    StopReceipt,
    Thread,
)


class ThreadStore(Protocol):
    """Threads, for the people who may see them."""

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
        """Return a thread.

        Raises:
            NotFound: there is none that the principal may see.
        """
        ...

    async def list(self, *, by: Principal, before: str | None, limit: int) -> list[Thread]:
        """Return the principal's threads, newest first."""
        ...

    async def start_of_watch(self, thread: str, *, by: Principal, after: Literal["head"] | None) -> Position:
        """Return the head of the thread, or the start of its current or last run.

        Raises:
            NotFound: there is no thread that the principal may see.
        """
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

    async def tools(self, run: str) -> dict[str, str]:
        """Return what became of each tool call of a run."""
        ...


class WorkStore(Protocol):
    """Runs as workers handle them. Every write carries the claim and is refused without it."""

    async def claim(
        self, thread: str, *, agents: Sequence[str], start_key: str
    ) -> tuple[Start | None, Nudge | None]:
        """Take a thread and start its pending run, if there is one for these agents and nobody holds it."""
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

        Raises:
            ClaimLost: the claim is not the present one; nothing was written.
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
        """End the run, or learn that it goes on. `data` goes onto its run_ended.

        Raises:
            ClaimLost: the claim is not the present one; nothing was written.
        """
        ...

    async def release(self, start: Start, *, cause: str) -> Nudge | None:
        """Give the claim up early; None when it was not ours any more."""
        ...

    async def pending(self, *, agents: Sequence[str], limit: int) -> list[str]:
        """Return threads whose pending run nobody took yet."""
        ...

    async def sweep(self, *, limit: int) -> list[Nudge]:
        """Take lapsed threads and record what their holders left."""
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
