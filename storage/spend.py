"""What was spent."""

import builtins

from threadhold.runner.records import Principal
from threadhold.runner.spend import Spend
from threadhold.storage.pool import Database


class PostgresSpend:
    """The `SpendStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, *, by: Principal, principal: str | None, limit: int) -> builtins.list[Spend]:
        """Return what was spent, the newest periods first, and in each who spent most."""
        rows = await self._database.rows("list_spend", by.workspace, principal, limit)
        return [Spend(**row) for row in rows]
