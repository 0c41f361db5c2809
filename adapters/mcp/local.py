"""The desk of a replica: the Runner of this process."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing

from threadhold.adapters.http.auth import Caller
from threadhold.adapters.http.doors import Doors
from threadhold.adapters.http.watching import frames_while_allowed
from threadhold.adapters.mcp.desk import Seen
from threadhold.runner.decisions import Decision
from threadhold.runner.records import (
    OnBusy,
    Outcome,
    Receipt,
    Request,
    Run,
    StopReceipt,
    Thread,
    Until,
    WatchKind,
    Why,
)


class RunnerDesk:
    """The Runner of this process, within what one principal may have of it.

    Args:
        doors: the Runner, and the bounds of all doors.
        caller: who asks, and what they showed.
    """

    def __init__(self, doors: Doors, caller: Caller) -> None:
        self._doors = doors
        self._runner = doors.runner
        self._caller = caller
        self._by = caller.principal

    async def agents(self) -> Sequence[str]:
        """Return the names of the agents that may be sent to."""
        return self._runner.agents

    async def threads(self, *, before: str | None, limit: int) -> list[Thread]:
        """Return threads by id, the highest first, below `before`."""
        return await self._runner.threads(by=self._by, before=before, limit=limit)

    async def thread(self, thread: str) -> Thread:
        """Return a thread."""
        return await self._runner.thread(thread, by=self._by)

    async def run(self, run: str) -> Run:
        """Return a run."""
        return await self._runner.run(run, by=self._by)

    async def runs(self, *, thread: str, limit: int) -> list[Run]:
        """Return a thread's runs, newest first."""
        return await self._runner.runs(by=self._by, thread=thread, limit=limit)

    async def why(self, run: str) -> Why:
        """Return a run with its attempts, calls and requests."""
        return await self._runner.why(run, by=self._by)

    async def requests(self, *, thread: str) -> list[Request]:
        """Return a thread's open requests, newest first, at most 100."""
        return await self._runner.requests(by=self._by, thread=thread, limit=100)

    async def request(self, request: str) -> Request:
        """Return a request."""
        return await self._runner.request(request, by=self._by)

    async def send(
        self, thread: str | None, content: str, *, agent: str | None, key: str | None, on_busy: OnBusy | None
    ) -> Receipt:
        """Send a message."""
        self._doors.quotas.message(self._by)
        return await self._runner.send(thread, content, by=self._by, agent=agent, key=key, on_busy=on_busy)

    async def answer(self, request: str, decision: Decision, *, args_hash: str | None) -> Outcome:
        """Answer a request."""
        return await self._runner.answer(request, decision, by=self._by, args_hash=args_hash)

    async def stop(self, *, run: str | None, thread: str | None, key: str | None, wait: float) -> StopReceipt:
        """Stop a run, or whatever runs on a thread."""
        return await self._runner.stop(by=self._by, run=run, thread=thread, key=key, wait=wait)

    async def watch(
        self, thread: str, *, after: str | None, until: Until | None, kinds: Collection[WatchKind] | None
    ) -> AsyncGenerator[Seen, None]:
        """Yield a thread's frames for as long as the principal may see it."""
        with self._doors.quotas.watch(self._by):
            begin = await self._runner.position(thread, by=self._by, after=after)
            frames = frames_while_allowed(
                self._runner,
                thread,
                begin,
                by=self._by,
                until=until,
                kinds=kinds,
                recheck_s=self._doors.limits.recheck_s,
                look_again=self._caller.look_again,
            )
            async with aclosing(frames):
                async for delivery in frames:
                    yield Seen(delivery.frame, delivery.position.cursor())
