"""One subscription of a host: what it is told of, until it goes."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import mcp.types as types
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY

from threadhold.adapters.mcp import resources
from threadhold.adapters.mcp.declared import Context
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.reading import RUN_URI
from threadhold.adapters.mcp.task_methods import TaskNews, watched_tasks


class Listening:
    """Tells a host of changes of resources and of tasks.

    Args:
        ctx: the request that asked for it, on whose stream it is told.
        desk: of whoever asked.
        asked: what of.

    Raises:
        MCPError: the host may not ask for tasks.
    """

    def __init__(self, ctx: Context, desk: Desk, asked: types.SubscriptionFilter) -> None:
        self._ctx = ctx
        self._desk = desk
        self._uris = list(dict.fromkeys(asked.resource_subscriptions or ()))
        self._tasks = {RUN_URI + id: id for id in watched_tasks(ctx, asked)}
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}

    async def topics(self) -> list[resources.Topic]:
        """Return what to watch.

        Raises:
            MCPError: one of them is not there for the principal, or there are too many.
        """
        return await resources.topics(self._desk, [*self._uris, *self._tasks])

    async def acknowledge(self) -> None:
        """Say what will be told of."""
        more: dict[str, Any] = {"taskIds": list(self._tasks.values())} if self._tasks else {}
        honoured = types.SubscriptionFilter(resource_subscriptions=self._uris or None, **more)
        params = types.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, meta=self.meta)
        await self._send(types.SubscriptionsAcknowledgedNotification(params=params))

    async def tell(self, topics: Sequence[resources.Topic]) -> None:
        """Tell of each task as it stands, then of every change.

        Raises:
            MCPError: one of them cannot be watched any more.
        """
        news = TaskNews(self._ctx, self._desk, self.meta)
        for id in self._tasks.values():
            # It may have changed before anybody listened.
            await news.tell(id)
        async with aclosing(resources.changes(self._desk, topics)) as changes:
            async for uri in changes:
                if uri in self._uris:
                    updated = types.ResourceUpdatedNotificationParams(uri=uri, meta=self.meta)
                    await self._send(types.ResourceUpdatedNotification(params=updated))
                if uri in self._tasks:
                    await news.tell(self._tasks[uri])

    async def _send(self, notification: types.ServerNotification) -> None:
        await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)
