"""The calls about grants."""

from datetime import timedelta
from uuid import uuid4

from threadhold.adapters.calls import query_of
from threadhold.adapters.replies import decoded, segment
from threadhold.adapters.tries import Tries
from threadhold.runner.grants import Grant


class Granted(Tries):
    """Makes grants, shows and revokes them."""

    async def create_grant(
        self,
        capability: str,
        *,
        uses: int,
        principal: str | None = None,
        thread: str | None = None,
        expires_in: timedelta | None = None,
        reason: str = "",
        key: str | None = None,
    ) -> Grant:
        """Grant uses of a capability, at most once whatever happens to the connection.

        Args:
            capability: what a rule of a policy names as its `grant`.
            uses: how often it may be used.
            principal: for runs that act for whom; None for whoever.
            thread: for runs on which thread; None for any.
            expires_in: how long it may be used; None for as long as it is not revoked.
            reason: why, for people.
            key: repeats a call of before; without it every call is a new grant.

        Raises:
            ClientError.
        """
        seconds = None if expires_in is None else expires_in.total_seconds()
        body = {"capability": capability, "uses": uses} | query_of(
            principal=principal, thread=thread, expires_in=seconds, reason=reason or None
        )
        return decoded(Grant, await self._call("POST", "/v1/grants", body=body, key=key or uuid4().hex))

    async def grants(self, *, before: str | None = None, limit: int = 50) -> list[Grant]:
        """Return grants, newest first, before `before`, at most `limit` (1 to 100). Raises ClientError."""
        return await self._items(Grant, "/v1/grants", query_of(cursor=before, limit=limit))

    async def grant(self, grant: str) -> Grant:
        """Return a grant. Raises ClientError."""
        return decoded(Grant, await self._call("GET", f"/v1/grants/{segment(grant)}"))

    async def revoke_grant(self, grant: str) -> Grant:
        """Let a grant be used no more. Raises ClientError."""
        path = f"/v1/grants/{segment(grant)}/revoke"
        return decoded(Grant, await self._call("POST", path, repeatable=True))
