"""What the fan-out needs from the stores behind it."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from threadhold.fanout.frame import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a thread stands in Postgres: its newest fact, the highest fence it has given out, and its state."""

    thread: str
    seq: int
    fence: int
    state: Literal["idle", "busy", "paused"]


class FactLog(Protocol):
    """The durable log of facts (Postgres)."""

    async def facts(self, thread: str, *, after: int, limit: int) -> list[Frame]:
        """Return the facts with a seq above `after`, oldest first, at most `limit`."""
        ...

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        """Return the heads of these threads in one query; threads that are gone are left out."""
        ...


Place = tuple[int, int]
"""Of a live frame in its thread's stream: fence and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """Some stored live frames, oldest first; `more` if others come after them."""

    frames: Sequence[Frame]
    more: bool


class LiveLog(Protocol):
    """The window of live frames, and the channels over which processes wake each other (Redis)."""

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        """Store frames of one attempt and publish those that were accepted, in one step.

        Returns None, or the place of the newest stored frame if that has a larger fence; then nothing was stored or
        published.
        """
        ...

    async def clear(self, thread: str, top: Place) -> None:
        """Forget the stored frames of a thread, if the newest of them still is at `top`."""
        ...

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        """Return the stored live frames above `after`, at most `limit`, fewer if they are large."""
        ...

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        """Return where the newest stored live frames of these threads are; those that have none are left out."""
        ...

    async def ring(self, thread: str, seq: int) -> None:
        """Tell all watching processes that the thread's log has grown to `seq`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrived:
    """A live frame came in on a thread's channel, with its JSON if that came along."""

    frame: Frame
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A thread's stream holds frames that were not, or not fully, heard on its channel."""

    thread: str


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
    """The connection was lost: what is published for these threads until their next `Confirmed` is not heard."""

    threads: frozenset[str]


Signal = LiveArrived | Missed | Rung | Confirmed | Dropped


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

    def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield what arrives, reconnecting by itself, until `aclose`."""
        ...

    async def aclose(self) -> None:
        """End the connection and the iteration."""
        ...
