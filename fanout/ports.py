"""What the fan-out needs from the stores behind it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from threadhold.fanout.frame import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a thread stands in Postgres: its newest fact and its state."""

    thread: str
    seq: int
    state: Literal["idle", "busy", "paused"]


class FactLog(Protocol):
    """The durable log of facts (Postgres)."""

    async def facts(self, thread: str, *, after: int, limit: int) -> list[Frame]:
        """Return the facts with a seq above `after`, oldest first, at most `limit`."""
        ...

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        """Return the heads of these threads in one query; threads that are gone are left out."""
        ...


AppendOutcome = Literal["accepted", "superseded"]


class LiveLog(Protocol):
    """The window of live frames, and the channels over which processes wake each other (Redis)."""

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> AppendOutcome:
        """Store frames of one attempt and publish those that were accepted, in one step.

        "superseded": the stream's top carries a larger fence; nothing was stored or published.
        """
        ...

    async def live(self, thread: str, *, after: tuple[int, int], limit: int) -> list[Frame]:
        """Return the stored live frames above `after`, oldest first, at most `limit`."""
        ...

    async def ring(self, thread: str, seq: int) -> None:
        """Tell all watching processes that the thread's log has grown to `seq`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrived:
    """A live frame came in on a thread's channel."""

    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A thread's log has grown to `seq`."""

    thread: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """A subscription to a thread's channel is in force from here on (first time or after a reconnect)."""

    thread: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The connection was lost: what is published until the next `Confirmed` is not heard."""


Signal = LiveArrived | Rung | Confirmed | Dropped


class Subscriber(Protocol):
    """One subscription connection of this process."""

    @property
    def healthy(self) -> bool:
        """Tell whether the connection is up, as far as its own heartbeat can tell."""
        ...

    async def subscribe(self, thread: str) -> None:
        """Ask for a thread's channel; a `Confirmed` follows when it is in force.

        Never raises for a lost connection.
        """
        ...

    async def unsubscribe(self, thread: str) -> None:
        """Give a thread's channel up."""
        ...

    def signals(self) -> AsyncIterator[Signal]:
        """Yield what arrives, reconnecting by itself, until `aclose`."""
        ...

    async def aclose(self) -> None:
        """End the connection and the iteration."""
        ...
