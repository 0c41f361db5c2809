"""Renews claims and sees who has died, on connections outside the pool: an exhausted pool must lose nobody's claim."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from threadhold.claims.claim import Claim, Renewal
from threadhold.storage.errors import translated
from threadhold.storage.pool import connect
from threadhold.storage.sql import statements

ASK_TIMEOUT_S: Final = 2.0


class HintedConnection:
    """One connection that holds, while it stands, the lock that shows that a worker lives.

    Behind a transaction pooler there is no session to hold a lock in. Then `hinted` is False.

    Args:
        url: a Postgres URL.
        schema: where the tables live.
        worker: the worker's id.
    """

    def __init__(self, url: str, *, schema: str, worker: str) -> None:
        self._url = url
        self._statements = statements(schema)
        self._worker = worker
        self._connection: Any = None
        self.hinted = False

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        """Run a named statement; whoever sees it fail resets the connection."""
        if self._connection is None:
            self._connection = await connect(self._url)
            self.hinted = await self._take_hint()
        return list(await self._connection.fetch(self._statements[name], *args))

    async def _take_hint(self) -> bool:
        """Take the lock, and look in another transaction whether this session has it."""
        taken = await self._connection.fetchrow(self._statements["hint"], self._worker)
        held = await self._connection.fetchval(self._statements["hinted"], self._worker)
        direct: bool = taken["session"] == self._connection.get_server_pid()
        return bool(taken["taken"] and held and direct)

    async def reset(self) -> None:
        """Drop the connection without waiting for the server: it may be the one that hangs."""
        connection, self._connection = self._connection, None
        self.hinted = False
        if connection is not None:
            connection.terminate()


class PostgresRenewer:
    """The `Renewer` on Postgres.

    Args:
        url: a Postgres URL, direct rather than through a transaction pooler.
        schema: where the tables live.
        worker: this worker's id.
        ttl: how long a renewed claim lasts.
    """

    def __init__(self, url: str, *, schema: str, worker: str, ttl: timedelta) -> None:
        self._connection = HintedConnection(url, schema=schema, worker=worker)
        self._worker = worker
        self._ttl = ttl

    @property
    def hinted(self) -> bool:
        """Whether the connection holds the lock that shows that this worker lives."""
        return self._connection.hinted

    async def renew(self, claims: Sequence[Claim], *, blocked_s: float) -> list[Renewal]:
        """Renew these claims in one statement."""
        threads = [UUID(claim.thread) for claim in claims]
        ids = [UUID(claim.claim_id) for claim in claims]
        with translated():
            rows = await self._connection.fetch("renew", self._worker, threads, ids, self._ttl, blocked_s)
        return [
            Renewal(
                claim_id=str(row["claim_id"]), result=row["result"], stop=row["stop"], waiting=row["waiting"]
            )
            for row in rows
        ]

    async def prove(self) -> None:
        """Make sure that the connection still stands."""
        with translated():
            await self._connection.fetch("ping")

    async def reset(self) -> None:
        """Drop the connection without waiting for the server."""
        await self._connection.reset()


class PostgresHolders:
    """Tells which workers that hold claims still show that they live.

    Its connection holds the worker's own lock too: a keeper that is started anew is missed by nobody meanwhile.

    Args:
        url: a Postgres URL.
        schema: where the tables live.
        worker: this worker's id.
    """

    def __init__(self, url: str, *, schema: str, worker: str) -> None:
        self._connection = HintedConnection(url, schema=schema, worker=worker)

    async def ask(self) -> dict[str, bool]:
        """Return the holders of claims taken under a lock, and whether each still has its lock.

        Raises:
            Unavailable: and the connection is another one the next time.
        """
        try:
            with translated():
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    rows = await self._connection.fetch("holders")
        except BaseException:
            await self._connection.reset()
            raise
        return {row["holder"]: row["present"] for row in rows}

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.reset()
