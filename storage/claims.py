"""Renews claims over a connection of its own, outside the pool: an exhausted pool must lose nobody's claim."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from threadhold.claims.claim import Claim, Renewal
from threadhold.storage.pool import connect
from threadhold.storage.sql import statements


class PostgresRenewer:
    """The `Renewer` on Postgres.

    Args:
        url: a Postgres URL, direct rather than through a transaction pooler.
        schema: where the tables live.
        worker: this worker's id.
        ttl: how long a renewed claim lasts.
    """

    def __init__(self, url: str, *, schema: str, worker: str, ttl: timedelta) -> None:
        self._url = url
        self._statement = statements(schema)["renew"]
        self._worker = worker
        self._ttl = ttl
        self._connection: Any = None

    async def renew(self, claims: Sequence[Claim]) -> list[Renewal]:
        """Renew these claims in one statement."""
        if self._connection is None:
            self._connection = await connect(self._url)
        threads = [UUID(claim.thread) for claim in claims]
        ids = [UUID(claim.claim_id) for claim in claims]
        rows = await self._connection.fetch(self._statement, self._worker, threads, ids, self._ttl)
        return [
            Renewal(
                claim_id=str(row["claim_id"]), result=row["result"], stop=row["stop"], waiting=row["waiting"]
            )
            for row in rows
        ]

    async def reset(self) -> None:
        """Drop the connection without waiting for the server: it may be the one that hangs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
