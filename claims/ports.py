"""What the keeper needs from a store."""

from collections.abc import Sequence
from typing import Protocol

from threadhold.claims.claim import Claim, Renewal


class Renewer(Protocol):
    """Renews claims over a connection of its own. Used from the keeper's thread only."""

    async def renew(self, claims: Sequence[Claim]) -> list[Renewal]:
        """Renew these claims in one statement and say that this process lives; any exception is a failure."""
        ...

    async def reset(self) -> None:
        """Drop the connection without waiting for it; the next renewal opens another."""
        ...
