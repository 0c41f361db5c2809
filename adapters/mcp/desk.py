"""What the tools ask for, in one shape: of the Runner of this process, or of a replica over the network."""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from threadhold.fanout.frame import Frame
from threadhold.runner.decisions import Decision
from threadhold.runner.records import (
    OnBusy,
    Outcome,
    Receipt,
    Request,
    Run,
    StopReceipt,
    Thread,
    Until,
    WatchKind,
    Why,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame, and the cursor after it."""

    frame: Frame
    cursor: str


class Desk(Protocol):
    """Everything that one principal may do; what is not theirs is `not_found`."""

    async def agents(self) -> Sequence[str]:
        """Return the names of the agents that may be sent to."""
        ...

    async def threads(self, *, before: str | None, limit: int) -> list[Thread]:
        """Return threads by id, the highest first, below `before`."""
        ...

    async def thread(self, thread: str) -> Thread:
        """Return a thread."""
        ...

    async def run(self, run: str) -> Run:
        """Return a run."""
        ...

    async def runs(self, *, thread: str, limit: int) -> list[Run]:
        """Return a thread's runs, newest first."""
        ...

    async def why(self, run: str) -> Why:
        """Return a run with its attempts, calls and requests."""
        ...

    async def requests(self, *, thread: str) -> list[Request]:
        """Return a thread's open requests, newest first, at most 100."""
        ...

    async def request(self, request: str) -> Request:
        """Return a request."""
        ...

    async def send(
        self, thread: str | None, content: str, *, agent: str | None, key: str | None, on_busy: OnBusy | None
    ) -> Receipt:
        """Send a message."""
        ...

    async def answer(self, request: str, decision: Decision, *, args_hash: str | None) -> Outcome:
        """Answer a request."""
        ...

    async def stop(self, *, run: str | None, thread: str | None, key: str | None, wait: float) -> StopReceipt:
        """Stop a run, or whatever runs on a thread."""
        ...

    def watch(
        self, thread: str, *, after: str | None, until: Until | None, kinds: Collection[WatchKind] | None
    ) -> AsyncGenerator[Seen, None]:
        """Yield a thread's frames."""
        ...
