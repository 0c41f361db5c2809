"""Decides which workers are dead: those that have not shown for a while, without a break, that they live."""

from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from threadhold.claims.clock import Clock, now

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
DEAD_AFTER_S: Final = 3.0
# Nobody knows what was between two looks that lie further apart.
GAP_S_MAX: Final = 2.5


class Holders(Protocol):
    """Tells who shows that it lives, over one connection of its own."""

    async def ask(self) -> dict[str, bool]:
        """Return who holds claims, and whether each shows that it lives.

        Raises:
            Exception: whatever keeps it from telling; the next call uses another connection.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class Absences:
    """Since when each worker has been absent, as one observer has seen it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._looked = 0.0

    def see(self, present: Mapping[str, bool], *, began: float, ended: float) -> list[str]:
        """Take what a look between two times has shown, and return who has been absent for long enough.

        An absence counts from the end of the look that showed it first to the beginning of the newest.
        """
        if began - self._looked > GAP_S_MAX:
            self.forget()
        self._looked = ended
        absent = [name for name, here in present.items() if not here]
        self._since = {name: self._since.get(name, ended) for name in absent}
        return [name for name in absent if began - self._since[name] >= DEAD_AFTER_S]

    def forget(self) -> None:
        """Begin anew: what was between the looks before and those to come is not known."""
        self._since.clear()


class Deaths:
    """Looks for workers that have died.

    Args:
        holders: tells who shows that it lives.
        clock: seconds that only grow.
    """

    def __init__(self, holders: Holders, *, clock: Clock = now) -> None:
        self._holders = holders
        self._clock = clock
        self._absences = Absences()

    async def look(self) -> list[str]:
        """Return the workers that are dead.

        Raises:
            Exception: when it cannot be told; then all absences count anew.
        """
        began = self._clock()
        try:
            present = await self._holders.ask()
        except Exception:
            self._absences.forget()
            raise
        return self._absences.see(present, began=began, ended=self._clock())

    async def aclose(self) -> None:
        """Close the connection."""
        await self._holders.aclose()
