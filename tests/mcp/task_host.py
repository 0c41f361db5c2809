"""The host's half of the tasks extension, on the official client: it takes tasks, looks at them, answers, cancels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import mcp.types as types
from mcp import Client
from mcp.client import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

from tests.support.waiting import until
from threadhold.adapters.mcp.declared import TASKS
from threadhold.adapters.mcp.task_methods import STOPPED_KEY

ENDED: Final = ("completed", "failed", "cancelled")
APPROVED: Final = {"action": "accept", "content": {"decision": "approve"}}


class Created(types.Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class Answered(types.Result):
    """Whatever a method of tasks returns."""

    model_config = ConfigDict(extra="allow")


class Asks(types.RequestParams):
    """What the methods of tasks take."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(types.Request[Asks, str]):
    """A request about a task."""

    params: Asks
    name_param = "taskId"


class Told(BaseModel):
    """A notification, as it came."""

    model_config = ConfigDict(extra="allow")


class Tasks(ClientExtension):
    """Declares the extension; a call that gets a task returns what the task ends with. Keeps what it was told.

    Args:
        gates: opened one after the other, as calls get tasks.
    """

    identifier = TASKS

    def __init__(self, *gates: Path) -> None:
        self._gates = list(gates)
        self.created: list[Created] = []
        self.told: list[dict[str, Any]] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Take tasks."""
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        """Hear of tasks."""
        return [NotificationBinding(method="notifications/tasks", params_type=Told, handler=self._hear)]

    async def _resolve(self, created: Created, ctx: ClaimContext) -> types.CallToolResult:
        self.created.append(created)
        self._gates.pop(0).touch()
        task = await ended(ctx.session, created.task_id)
        return types.CallToolResult.model_validate(task["result"])

    async def _hear(self, told: Told) -> None:
        self.told.append(cast(dict[str, Any], told.model_extra))


async def ask(session: Any, method: str, id: str, **given: Any) -> dict[str, Any]:
    """Send a request about a task and return what is answered, as it came."""
    request = TaskRequest(method=method, params=Asks(task_id=id, **given))
    answered: Answered = await session.send_request(request, Answered)
    values: dict[str, Any] = {**(answered.model_extra or {})}
    assert values.pop("resultType") == "complete"
    # Beside what is ours the library says who the server is.
    ours = {name: value for name, value in (answered.meta or {}).items() if name.startswith("threadhold/")}
    return {**values, "_meta": ours} if ours else values


async def get(client: Client, id: str) -> dict[str, Any]:
    """Look at a task."""
    task = await ask(client.session, "tasks/get", id)
    assert (task["taskId"], task["ttlMs"]) == (id, None)
    return task


async def update(client: Client, id: str, responses: dict[str, Any]) -> None:
    """Answer the forms of a task."""
    assert await ask(client.session, "tasks/update", id, input_responses=responses) == {}


async def cancel(client: Client, id: str) -> dict[str, Any]:
    """Cancel a task and return what became of its run, which goes beside the empty result."""
    cancelled = await ask(client.session, "tasks/cancel", id)
    assert list(cancelled) == ["_meta"]
    return cast(dict[str, Any], cancelled["_meta"][STOPPED_KEY])


async def status(session: Any, id: str, *wanted: str) -> dict[str, Any]:
    """Return a task once its status is one of those wanted."""

    async def look() -> dict[str, Any] | None:
        task = await ask(session, "tasks/get", id)
        return task if task["status"] in wanted else None

    found = await until(look, what=f"task {id} does not become {' or '.join(wanted)}")
    assert found is not None
    return found


async def ended(session: Any, id: str) -> dict[str, Any]:
    """Return a task once it has ended."""
    return await status(session, id, *ENDED)


async def created(client: Client, tool: str, **given: Any) -> Created:
    """Call a tool that answers with a task."""
    task = await client.session.call_tool(tool, given, allow_claimed=True)
    assert isinstance(task, Created), task
    return task


async def refusal(error: Any) -> tuple[int, str | None]:
    """Return the protocol's code and ours of a request that is refused."""
    try:
        answered = await error
    except MCPError as refused:
        data = refused.error.data
        return refused.error.code, data.get("code") if isinstance(data, dict) else None
    raise AssertionError(f"it was not refused: {answered}")
