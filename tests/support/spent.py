"""What was spent, put into a database as runs of other days would have left it."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import asyncpg

COLUMNS = ("model_calls", "tool_calls", "tokens", "money", "seconds", "held_tokens", "held_money")


async def put_spent(
    url: str,
    workspace: str,
    principal: str | None = None,
    *,
    since: datetime | None = None,
    every: str = "month",
    scope: str | None = None,
    **spent: Any,
) -> None:
    """Say that a principal has spent so much, or a workspace where none is named.

    Args:
        url: of the database.
        workspace: in which.
        principal: who, or an id of that scope.
        since: when the day or month began; None for what is counted for good.
        every: which of both it was.
        scope: of the row, where it is not of a principal or a workspace.
        spent: what, by columns; nothing of those that are not named.
    """
    amounts = {"money": Decimal(0), "held_money": Decimal(0), **spent}
    place = scope or ("workspace" if principal is None else "principal")
    connection: Any = await asyncpg.connect(url, server_settings={"search_path": "threadhold"})
    try:
        await connection.execute("INSERT INTO workspaces (id) VALUES ($1) ON CONFLICT DO NOTHING", workspace)
        await connection.execute(
            f"INSERT INTO spend (workspace, scope, id, since, every, {', '.join(COLUMNS)})"
            " VALUES ($1, $2, $3, coalesce($4::timestamptz, '-infinity'), $5, $6, $7, $8, $9, $10, $11, $12)",
            workspace,
            place,
            principal or workspace,
            since,
            "ever" if since is None else every,
            *(amounts.get(name, 0) for name in COLUMNS),
        )
    finally:
        await connection.close()
