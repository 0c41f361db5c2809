"""The part of the Runner that is about intents and second tries: executions, checkpoints and replays."""

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse

from threadhold.runner.app import Threadhold
from threadhold.runner.checkpoints import Checkpoint, Replay, checkpoint_id, parse_checkpoint
from threadhold.runner.content import checked_content, checked_key
from threadhold.runner.errors import NotFound, NotReplayable
from threadhold.runner.executions import Execution, ExecutionReceipt, ExecutionTree
from threadhold.runner.history import is_askable, loaded
from threadhold.runner.ids import canonical
from threadhold.runner.ports import ExecutionStore
from threadhold.runner.records import Page, Principal, Thread
from threadhold.runner.resolving import Resolving
from threadhold.runner.reviewing import PAGE_MAX, bounded
from threadhold.runner.spans import span


class Executing(Resolving):
    """Starts executions and shows them, and runs what has ended again; each call is checked like any other."""

    app: Threadhold
    _executions: ExecutionStore

    async def execute(
        self, agent: str, mission: str, *, by: Principal, key: str | None = None
    ) -> ExecutionReceipt:
        """Start an execution: a thread of its own, whose first message is the mission.

        Durable when it returns. With a `key` it may be repeated: the same call gets the same receipt.

        Args:
            agent: which agent is to achieve it.
            mission: what, at most 64 KiB.
            by: who wants it.
            key: at most 128 printable characters, unique per principal.

        Raises:
            InvalidInput, UnknownAgent, KeyConflict, Unavailable, Closed.
        """
        self._check_open()
        mission, key = checked_content(mission, field="mission"), checked_key(key)
        self.app.hosted(agent)
        with span("execute", agent=agent) as tell:
            receipt, nudge = await self._executions.execute(agent, mission, by=by, key=key)
            tell(execution=receipt.execution, thread=receipt.thread, run=receipt.run)
        self._wires.announce(nudge)
        return receipt

    async def execution(self, execution: str, *, by: Principal) -> ExecutionTree:
        """Return an execution with its threads, their runs, and the attempts and requests of those.

        It is for whoever started it, and for operators.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._executions.tree(canonical(execution, "execution"), by=by)

    async def executions(
        self, *, by: Principal, before: str | None = None, limit: int = 20
    ) -> list[Execution]:
        """Return executions that the principal may see by id, the highest first, at most `limit` (1 to 100).

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._executions.list(by=by, before=before, limit=bounded(limit))

    async def threads_of(
        self, execution: str, *, by: Principal, after: str | None = None, limit: int = 20
    ) -> list[Thread]:
        """Return threads of an execution, oldest first, at most `limit` (1 to 100), made after `after`.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        id = canonical(execution, "execution")
        return await self._executions.threads(id, by=by, after=after, limit=bounded(limit))

    async def checkpoints(
        self, run: str, *, by: Principal, after: int = 0, limit: int = 20
    ) -> Page[Checkpoint]:
        """Return the positions that a run has reached, oldest first, at most `limit` (1 to 100).

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._log.checkpoints(run, by=by, after=after, limit=bounded(limit))

    async def checkpoint(self, checkpoint: str, *, by: Principal) -> Checkpoint:
        """Return a position by its id.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        run, chunk = parse_checkpoint(checkpoint)
        return await self._log.checkpoint(run, chunk, by=by)

    async def history_at(
        self, checkpoint: str, *, by: Principal, after: int = 0, limit: int = 20
    ) -> Page[Any]:
        """Return what the model had been shown and had said at a position, page by page, as `history` does.

        Raises:
            NotFound, Unavailable, Closed.
        """
        found = await self.checkpoint(checkpoint, by=by)
        head = parse_checkpoint(checkpoint)[1]
        return await self._log.history(found.thread, by=by, after=after, limit=bounded(limit), head=head)

    async def replay(
        self, run: str, *, by: Principal, checkpoint: str | None = None, key: str | None = None
    ) -> Replay:
        """Run an ended run again, as a new run that names it. The old one stays as it is.

        The new run goes on from a position in the history; what the thread's model had been shown and had said behind
        that is left out from here on, and stays on record. It acts for whom the old one acted, so only they and
        operators may ask for it. Durable when it returns. With a `key` it may be repeated.

        Args:
            run: which run; it has ended, and nothing runs on its thread now.
            by: who asks.
            checkpoint: where to go on, one of the run's own; None for its beginning, with the messages it had then.
            key: at most 128 printable characters, unique per principal and run.

        Raises:
            InvalidInput, NotFound, Forbidden, NotReplayable, KeyConflict, ThreadArchived, ThreadBusy, Unavailable,
            Closed.
        """
        self._check_open()
        key = checked_key(key)
        origin = await self._runs.get(run, by=by)
        chunk = await self._runs.begin(origin.id, by=by)
        if checkpoint is not None:
            named, chunk = parse_checkpoint(checkpoint)
            if named != origin.id and checkpoint_id(named, chunk) != origin.replay_from:
                raise NotFound("checkpoint", checkpoint)
            await self._log.checkpoint(named, chunk, by=by)
        if chunk is None:
            raise NotReplayable(origin.id, "it has written nothing down; send its message again")
        if not is_askable(await self._tail(origin.thread, chunk, by=by)):
            why = "at that checkpoint there is nothing to ask the model; choose one that ends in a request"
            raise NotReplayable(origin.id, why)
        with span("replay", run=origin.id, chunk=chunk) as tell:
            replay, nudge = await self._runs.replay(origin.id, chunk=chunk, by=by, key=key)
            tell(thread=replay.thread, run=replay.run, duplicate=replay.duplicate)
        self._wires.announce(nudge)
        return replay

    async def _tail(self, thread: str, chunk: int, *, by: Principal) -> list[ModelMessage]:
        """Return the end of a history as it stood at a chunk, from its last response on."""
        size = 1
        while True:
            after = max(0, chunk - size)
            tail = loaded(await self._between(thread, after, chunk, by=by))
            if after == 0 or any(isinstance(message, ModelResponse) for message in tail):
                return tail
            size *= 2

    async def _between(self, thread: str, after: int, head: int, *, by: Principal) -> list[Any]:
        found: list[Any] = []
        behind: int | None = after
        while behind is not None:
            page = await self._log.history(thread, by=by, after=behind, limit=PAGE_MAX, head=head)
            found += page.items
            behind = page.next
        return found
