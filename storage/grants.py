"""Grants."""

import builtins
from typing import Any

from threadhold.runner.errors import GrantsFull, KeyConflict, NotFound
from threadhold.runner.grants import GRANTS_MAX, Grant, NewGrant
from threadhold.runner.records import Principal
from threadhold.storage.ids import as_uuid, new_id
from threadhold.storage.pool import Database


def _grant(row: Any) -> Grant:
    return Grant(
        id=str(row["id"]),
        workspace=row["workspace"],
        capability=row["capability"],
        principal=row["principal"],
        thread=str(row["thread_id"]) if row["thread_id"] else None,
        uses=row["uses"],
        used=row["used"],
        status=row["status"],
        granted_by=row["granted_by"],
        reason=row["reason"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        revoked_by=row["revoked_by"],
    )


class PostgresGrants:
    """The `GrantStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewGrant, *, by: Principal, key: str | None) -> Grant:
        """Make a grant in one transaction, repeatably by key."""
        row = await self._database.row(
            "create_grant",
            by.workspace,
            by.id,
            key,
            new_id(),
            new.capability,
            new.principal,
            as_uuid(new.thread, "thread") if new.thread else None,
            new.uses,
            new.reason,
            None if new.expires_in is None else new.expires_in.total_seconds(),
            GRANTS_MAX,
        )
        match row["outcome"]:
            case "not_found":
                raise NotFound("thread", new.thread or "")
            case "key_conflict":
                raise KeyConflict(key or "")
            case "full":
                raise GrantsFull(GRANTS_MAX)
        return await self.get(str(row["id"]), by=by)

    async def get(self, grant: str, *, by: Principal) -> Grant:
        """Return a grant."""
        id = as_uuid(grant, "grant")
        row = await self._database.row("get_grant", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("grant", grant)
        return _grant(row)

    async def list(self, *, by: Principal, before: str | None, limit: int) -> builtins.list[Grant]:
        """Return grants that the principal may see, newest first."""
        older = as_uuid(before, "grant") if before else None
        rows = await self._database.rows("list_grants", by.workspace, by.id, list(by.roles), older, limit)
        return [_grant(row) for row in rows]

    async def revoke(self, grant: str, *, by: Principal) -> Grant:
        """Let a grant be used no more."""
        await self._database.run("revoke_grant", as_uuid(grant, "grant"), by.workspace, by.id)
        return await self.get(grant, by=by)
