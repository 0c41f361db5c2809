"""The call about what was spent."""

from threadhold.adapters.calls import query_of
from threadhold.adapters.exports import Exports
from threadhold.runner.spend import Spend


class Accounts(Exports):
    """Shows what was spent."""

    async def spend(self, *, principal: str | None = None, limit: int = 50) -> list[Spend]:
        """Return what was spent, the newest and the largest, at most `limit` (1 to 100).

        Args:
            principal: only what this one has spent; others than oneself are for operators.
            limit: how many.

        Raises:
            ClientError.
        """
        return await self._items(Spend, "/v1/spend", query_of(principal=principal, limit=limit))
