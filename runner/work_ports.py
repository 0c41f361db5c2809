"""What workers, and code that holds a thread itself, need from the stores. Every write carries the claim."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Protocol

from threadhold.runner.decisions import NewRequest
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import (
    Ended,
    HandedOver,
    InboxMessage,
    NewFact,
    Nudge,
    Principal,
    Recorded,
    Start,
)


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

    async def history(self, thread: str, *, head: int) -> list[Any]:
        """Return the messages of the history as it stands at the chunk `head`, as JSON values."""
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
        spend: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """Record what the run did, and consume messages together with the history that shows them.

        After a stop nothing is consumed any more, and the answer says so. What is about to be spent is set aside in the
        same step; if it may not be, nothing is written, and the answer says why.
        """
        ...

    async def settle(self, call: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None) -> None:
        """Say what a model's call came to, whoever holds the thread by now; a repeat changes nothing."""
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
        self,
        start: Start,
        *,
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
        failed: Mapping[str, Any] | None = None,
        after: timedelta = timedelta(seconds=1),
    ) -> tuple[HandedOver, Nudge]:
        """Give the run to another worker, or end it when it was asked to stop.

        `failed` says why it is tried again, if it is by that; then nobody takes it before `after` has passed.
        """
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
