"""The methods of the tasks extension, and its notifications. What they change is checked as everywhere."""

from typing import Annotated, Any, Final, cast

import mcp.types as types
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from threadhold.adapters.mcp.asking import decision
from threadhold.adapters.mcp.declared import TASKS, Context, OpenDesk, can_ask, is_modern
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.reading import RUN_URI, stopped
from threadhold.adapters.mcp.resources import refused
from threadhold.adapters.mcp.tasks import task_of, unbound
from threadhold.adapters.mcp.waiting import finished
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import InvalidInput, NotFound
from threadhold.runner.ids import canonical

# As many open requests as a thread shows.
RESPONSES_MAX: Final = 100
STOPPED_KEY: Final = "threadhold/stopped"
# Somebody has decided already: whoever comes late, or once more, is told by the task.
_PAST: Final = ("already_answered", "request_closed")


class TaskParams(types.RequestParams):
    """Which task."""

    task_id: Annotated[str, Field(min_length=1, max_length=200)]


class UpdateParams(TaskParams):
    """Forms as they were filled in, by the keys that they were shown under."""

    input_responses: Annotated[dict[str, types.ElicitResult], Field(max_length=RESPONSES_MAX)]


class TaskNotification(BaseModel):
    """A task has changed; it stands there whole."""

    method: str = "notifications/tasks"
    params: dict[str, Any]


class TaskMethods:
    """Answers requests about tasks.

    Args:
        open_desk: returns the desk of whoever sent a request.
    """

    def __init__(self, open_desk: OpenDesk) -> None:
        self._open_desk = open_desk

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return a task as it stands."""
        desk = self._desk(ctx)
        try:
            return await task_of(desk, params.task_id, ask=can_ask(ctx))
        except Exception as error:
            raise _refused(error, params) from error

    async def update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        """Decide what the filled-in forms say, or nothing if one of them is not of this task."""
        desk = self._desk(ctx)
        try:
            await finished(_update(desk, params))
        except Exception as error:
            raise _refused(error, params) from error
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Stop the run; the task tells when it has ended."""
        desk = self._desk(ctx)
        try:
            receipt = await finished(desk.stop(run=params.task_id, thread=None, key=None, wait=0))
        except Exception as error:
            raise _refused(error, params) from error
        return {"_meta": {STOPPED_KEY: stopped(receipt).model_dump(mode="json", exclude_none=True)}}

    def _desk(self, ctx: Context) -> Desk:
        """Return the desk of a host that has declared the extension.

        Raises:
            MCPError: it has not, or there is no such thing in its era.
        """
        if not is_modern(ctx):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        require_client_extension(ctx, TASKS)
        return self._open_desk(ctx)


def _refused(error: Exception, params: TaskParams) -> MCPError:
    return refused(error, RUN_URI + params.task_id)


async def _update(desk: Desk, params: UpdateParams) -> None:
    """Take the decisions.

    Raises:
        NotFound: a form is not of this task. Nothing was decided then.
        InvalidInput: a form is not filled in. Nothing was decided then.
        What the desk raises, for the first that was refused, after the others were taken.
    """
    run = canonical(params.task_id, "run")
    if not params.input_responses:
        await desk.run(run)
    made = [await _made(desk, run, key, filled) for key, filled in params.input_responses.items()]
    errors = [await _decide(desk, *each) for each in made if each is not None]
    for error in filter(None, errors):
        raise error


async def _made(
    desk: Desk, run: str, key: str, filled: types.ElicitResult
) -> tuple[str, str, Decision] | None:
    """Return a request, the hash of what was shown of it, and the decision; None if the form was put away."""
    id, args_hash = unbound(key)
    request = await desk.request(id)
    if request.run != run or not args_hash:
        raise NotFound("request", key[:80])
    made = decision(request.kind, filled.action, filled.content)
    if made is None and filled.action == "accept":
        text = f"the form for {request.tool} is not filled in as it asks; send what its schema says"
        raise InvalidInput(text, field="inputResponses")
    return (request.id, args_hash, made) if made is not None else None


async def _decide(desk: Desk, request: str, args_hash: str, made: Decision) -> Exception | None:
    try:
        await desk.answer(request, made, args_hash=args_hash)
    except Exception as error:
        return None if getattr(error, "code", None) in _PAST else error
    return None


def watched_tasks(ctx: Context, asked: types.SubscriptionFilter) -> list[str]:
    """Return the tasks that a host wants to hear of.

    Raises:
        MCPError: it has not declared the extension, or these are no ids.
    """
    ids = (asked.model_extra or {}).get("taskIds")
    if ids is None:
        return []
    require_client_extension(ctx, TASKS)
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise MCPError(types.INVALID_PARAMS, "taskIds is a list of strings", {"code": "invalid_input"})
    return list(dict.fromkeys(ids))


class TaskNews:
    """Tells one subscription of tasks, each state once.

    Args:
        ctx: the subscription.
        desk: of whoever subscribed.
        meta: what goes with each notification.
    """

    def __init__(self, ctx: Context, desk: Desk, meta: dict[str, Any]) -> None:
        self._ctx = ctx
        self._desk = desk
        self._meta = meta
        self._told: dict[str, dict[str, Any]] = {}

    async def tell(self, id: str) -> None:
        """Tell of a task, if there is news.

        Raises:
            MCPError: it cannot be read.
        """
        try:
            task = await task_of(self._desk, id, ask=can_ask(self._ctx))
        except Exception as error:
            raise refused(error, RUN_URI + id) from error
        state = {name: value for name, value in task.items() if name != "lastUpdatedAt"}
        if self._told.get(id) == state:
            return
        self._told[id] = state
        # The library knows no such notification, and sends any.
        notification = cast(Any, TaskNotification(params={**task, "_meta": self._meta}))
        await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)
