"""What a worker says of itself, and what it looks at for all of them."""

import os
import platform
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from threadhold.storage.pool import Database


class Membership:
    """A worker among the others.

    Args:
        database: the pool.
        worker: its id.
    """

    def __init__(self, database: Database, *, worker: str) -> None:
        self._database = database
        self._worker = worker

    async def draining(self) -> bool:
        """Tell whether an operator asked this worker to leave."""
        row = await self._database.row("draining", self._worker)
        return bool(row[0])

    async def register(self, *, agents: Sequence[str], capacity: int) -> None:
        """Say that this worker is there."""
        await self._database.run(
            "register", self._worker, list(agents), capacity, platform.node(), os.getpid()
        )

    async def unregister(self) -> None:
        """Say that this worker leaves."""
        await self._database.run("unregister", self._worker)

    async def disown(self, name: str) -> int:
        """Let the claims of all workers of this name lapse at once, and return how many there were."""
        row = await self._database.row("disown", name)
        return int(row[0])

    async def audit(self, *, recent: timedelta | None = None) -> list[dict[str, Any]]:
        """Return every broken invariant of the threads that changed within `recent`, or of all."""
        return [dict(row) for row in await self._database.rows("audit", recent)]

    async def audited(self, *, every: timedelta) -> list[dict[str, Any]]:
        """Audit what has changed lately, if it is this worker's turn: one of all does it, once in `every`."""
        turn = await self._database.row("turn", "audit", every)
        return await self.audit(recent=2 * every) if turn[0] else []
