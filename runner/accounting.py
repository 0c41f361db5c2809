"""The part of the Runner that tells what was spent."""

from threadhold.runner.exporting import Exporting
from threadhold.runner.principals import checked_id
from threadhold.runner.records import Principal
from threadhold.runner.reviewing import bounded
from threadhold.runner.spend import Spend, SpendStore


class Accounting(Exporting):
    """Shows what agents with a budget have spent; each call is checked like any other."""

    _spend: SpendStore

    async def spend(self, *, by: Principal, principal: str | None = None, limit: int = 20) -> list[Spend]:
        """Return what was spent: to operators by their workspace and each principal of it, to others by themselves.

        The newest periods come first, what is counted for good last; of one period the workspace, then who has spent
        most money, then most tokens. There are no further pages: it is the newest and the largest.

        Args:
            by: who asks.
            principal: only what this one has spent; others than oneself are for operators.
            limit: how many at most, 1 to 100.

        Raises:
            InvalidInput, OperatorsOnly, Unavailable, Closed.
        """
        self._check_open()
        whose = principal if principal is None else checked_id(principal, "principal")
        if "operator" not in by.roles:
            if whose not in (None, by.id):
                self._check_operator(by, "see what somebody else has spent")
            whose = by.id
        return await self._spend.list(by=by, principal=whose, limit=bounded(limit))
