"""What the keeper needs: a store, and somebody who renews."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from threadhold.claims.claim import Claim, Renewal

Line = list[Any]


class Renewer(Protocol):
    """Renews claims over one connection of its own."""

    @property
    def hinted(self) -> bool:
        """Whether the last answer came over a connection that holds the lock which shows that this worker lives."""
        ...

    async def renew(self, claims: Sequence[Claim], *, blocked_s: float) -> list[Renewal]:
        """Renew these claims in one statement and say that this process lives; any exception is a failure.

        Args:
            claims: at most as many as fit into one statement.
            blocked_s: for how many seconds the process's main loop has not ticked.
        """
        ...

    async def prove(self) -> None:
        """Make sure that the connection still stands."""
        ...

    async def reset(self) -> None:
        """Drop the connection without waiting for it; the next call opens another."""
        ...


class Link(Protocol):
    """Leads to whoever renews: another process, which is started anew when it dies."""

    def start(self, *, hear: Callable[[Line], None], greet: Callable[[], Sequence[Line]]) -> None:
        """Start it, and return before it is ready.

        Args:
            hear: called in the main loop with each line that it says.
            greet: returns what a new one has to know; called at each start.
        """
        ...

    def send(self, line: Line) -> None:
        """Tell it something, at once and without waiting."""
        ...

    async def aclose(self) -> None:
        """End it."""
        ...
