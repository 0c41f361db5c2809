"""The calls about intents and second tries: executions, checkpoints and replays."""

from typing import Any
from uuid import uuid4

from threadhold.adapters.calls import query_of
from threadhold.adapters.replies import decoded, segment
from threadhold.adapters.reviews import PAGE, Reviews
from threadhold.runner.checkpoints import Checkpoint, Replay
from threadhold.runner.executions import Execution, ExecutionReceipt, ExecutionTree
from threadhold.runner.records import Page, Thread


class Tries(Reviews):
    """Starts executions and shows them, and runs what has ended again."""

    async def execute(self, agent: str, mission: str, *, key: str | None = None) -> ExecutionReceipt:
        """Start an execution, at most once whatever happens to the connection.

        Args:
            agent: which agent is to achieve it.
            mission: what.
            key: repeats a call of before; without it every call is a new execution.

        Raises:
            ClientError.
        """
        body = {"agent": agent, "mission": mission}
        answer = await self._call("POST", "/v1/executions", body=body, key=key or uuid4().hex)
        return decoded(ExecutionReceipt, answer)

    async def executions(self, *, before: str | None = None, limit: int = 50) -> list[Execution]:
        """Return executions by id, the highest first, below `before`, at most `limit`. Raises ClientError."""
        return await self._items(Execution, "/v1/executions", query_of(cursor=before, limit=limit))

    async def execution(self, execution: str) -> ExecutionTree:
        """Return an execution with what it is tried in. Raises ClientError."""
        return decoded(ExecutionTree, await self._call("GET", f"/v1/executions/{segment(execution)}"))

    async def threads_of(self, execution: str, *, after: str | None = None, limit: int = 50) -> list[Thread]:
        """Return threads of an execution, oldest first, behind `after`, at most `limit`. Raises ClientError."""
        path = f"/v1/executions/{segment(execution)}/threads"
        return await self._items(Thread, path, query_of(cursor=after, limit=limit))

    async def checkpoints(self, run: str, *, after: int = 0, limit: int = PAGE) -> Page[Checkpoint]:
        """Return positions that a run has reached, behind `after`, at most `limit` (1 to 100). Raises ClientError."""
        return await self._page(Checkpoint, f"/v1/runs/{segment(run)}/checkpoints", after, limit)

    async def checkpoint(self, checkpoint: str) -> Checkpoint:
        """Return a position by its id. Raises ClientError."""
        return decoded(Checkpoint, await self._call("GET", f"/v1/checkpoints/{segment(checkpoint)}"))

    async def history_at(self, checkpoint: str, *, after: int = 0, limit: int = PAGE) -> Page[Any]:
        """Return what the model had been shown and had said at a position, as `history` does. Raises ClientError."""
        return await self._page(object, f"/v1/checkpoints/{segment(checkpoint)}/history", after, limit)

    async def replay(self, run: str, *, checkpoint: str | None = None, key: str | None = None) -> Replay:
        """Run an ended run again, at most once whatever happens to the connection.

        Args:
            run: which run.
            checkpoint: where it is to go on; None for its beginning.
            key: repeats a call of before; without it every call is a new run.

        Raises:
            ClientError.
        """
        path, body = f"/v1/runs/{segment(run)}/replay", query_of(checkpoint=checkpoint)
        return decoded(Replay, await self._call("POST", path, body=body, key=key or uuid4().hex))
