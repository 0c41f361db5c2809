"""The part of the Runner that is about grants: who may use a capability, and how often."""

from datetime import timedelta

from threadhold.runner.content import checked_key
from threadhold.runner.executing import Executing
from threadhold.runner.grant_ports import GrantStore
from threadhold.runner.grants import Grant, checked_grant
from threadhold.runner.ids import canonical
from threadhold.runner.records import Principal
from threadhold.runner.reviewing import bounded


class Granting(Executing):
    """Makes, shows and revokes grants; each call is checked like any other."""

    _grants: GrantStore

    async def create_grant(
        self,
        capability: str,
        *,
        by: Principal,
        uses: int,
        principal: str | None = None,
        thread: str | None = None,
        expires_in: timedelta | None = None,
        reason: str = "",
        key: str | None = None,
    ) -> Grant:
        """Grant so many uses of a capability; for operators.

        Durable when it returns. With a `key` it may be repeated: the same call gets the same grant, as it stands by
        then.

        Args:
            capability: what a rule of a policy names as its `grant`; 1 to 200 printable characters.
            by: who grants.
            uses: how often it may be used, 1 to 1,000,000.
            principal: for runs that act for whom; None for whoever.
            thread: for runs on which thread; None for any thread of the workspace.
            expires_in: how long it may be used, one second to 3,650 days; None for as long as it is not revoked.
            reason: why, for people; at most 1,000 characters.
            key: at most 128 printable characters, unique per principal.

        Raises:
            InvalidInput, NotFound, OperatorsOnly, KeyConflict, GrantsFull, Unavailable, Closed.
        """
        self._check_operator(by, "grant a capability")
        key = checked_key(key)
        new = checked_grant(
            capability,
            uses=uses,
            principal=principal,
            thread=thread,
            expires_in=expires_in,
            reason=reason,
        )
        return await self._grants.create(new, by=by, key=key)

    async def grant(self, grant: str, *, by: Principal) -> Grant:
        """Return a grant, to whom it is for, to those who may see the thread that it is for, and to operators.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._grants.get(canonical(grant, "grant"), by=by)

    async def grants(self, *, by: Principal, before: str | None = None, limit: int = 20) -> list[Grant]:
        """Return grants that the principal may see, newest first, at most `limit` (1 to 100).

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._grants.list(by=by, before=before, limit=bounded(limit))

    async def revoke_grant(self, grant: str, *, by: Principal) -> Grant:
        """Let a grant be used no more, and return it; for operators. What it was used for goes on.

        Repeating it changes nothing: the first one who revoked it stays on record.

        Raises:
            NotFound, OperatorsOnly, Unavailable, Closed.
        """
        self._check_operator(by, "revoke a grant")
        return await self._grants.revoke(canonical(grant, "grant"), by=by)
