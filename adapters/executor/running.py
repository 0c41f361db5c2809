"""The composition root of an executor."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from threadhold.adapters.bootstrap import Parts, end_dispatch, executor_wires, hearing
from threadhold.adapters.dispatch import dispatch
from threadhold.adapters.endings import first_of
from threadhold.adapters.executor.children import Children
from threadhold.adapters.executor.executor import Executor
from threadhold.adapters.executor.wires import executor_channel
from threadhold.runner.app import Threadhold
from threadhold.storage.remote import PostgresLent

log = structlog.get_logger(__name__)


async def run_executor(
    app: Threadhold,
    parts: Parts,
    ending: asyncio.Event,
    *,
    id: str,
    target: str,
    queue: str,
    capacity: int,
) -> None:
    """Carry out calls until `ending` is set or an operator drains this executor.

    Args:
        app: what its child processes load as well.
        parts: what this process has.
        ending: set when it is to end.
        id: its own.
        target: where the child processes find the app.
        queue: whose calls.
        capacity: how many at once.

    Raises:
        ChildFailed, Unavailable.
    """
    if not (tools := app.bound_to(queue)):
        log.warning("nothing_bound", queue=queue, detail="no tool of this app is bound to this executor")
    async with running_executor(target, parts, id=id, queue=queue, capacity=capacity) as running:
        log.info("executor_ready", executor=id, queue=queue, tools=list(tools), capacity=capacity)
        await first_of(ending.wait(), running.drained())
        asked_by = "signal" if ending.is_set() else "operator"
        log.info("executor_ending", executor=id, asked_by=asked_by, calls=running.running)
    log.info("executor_ended", executor=id)


@asynccontextmanager
async def running_executor(
    target: str, parts: Parts, *, id: str, queue: str, capacity: int
) -> AsyncIterator[Executor]:
    """Run an executor; on leaving, what it still carries out after the grace period is killed.

    Raises:
        ChildFailed: the app cannot be loaded in a child process.
        Unavailable: the database cannot be reached.
    """
    calls = executor_wires(parts)
    running = Executor(
        queue,
        store=PostgresLent(parts.database, executor=id, queue=queue, capacity=capacity),
        children=lambda on_ready: Children(target, count=capacity, on_ready=on_ready),
        ended=calls.ended,
    )
    await parts.ears.subscribe_channel(executor_channel(id), hearing(running.drop))
    dispatching: asyncio.Task[None] | None = None
    try:
        await running.start()
        dispatching = asyncio.create_task(dispatch(running, calls.queue), name="dispatch")
        yield running
    finally:
        running.leave()
        if dispatching is not None:
            await end_dispatch(dispatching)
        grace = parts.settings.grace.total_seconds()
        await asyncio.shield(asyncio.ensure_future(running.aclose(grace=grace)))
        await calls.aclose()
