"""The desk of `threadhold mcp`: a replica over the network."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing

from threadhold.adapters.client import Client
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


class ClientDesk:
    """A replica elsewhere. Who asks is whoever the replica takes the client for.

    Args:
        client: talks to the replica.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def agents(self) -> Sequence[str]:
        """Return the names of the agents that may be sent to."""
        return await self._client.agents()

    async def threads(self, *, before: str | None, limit: int) -> list[Thread]:
        """Return threads by id, the highest first, below `before`."""
        return await self._client.threads(before=before, limit=limit)

    async def thread(self, thread: str) -> Thread:
        """Return a thread."""
        return await self._client.thread(thread)

    async def run(self, run: str) -> Run:
        """Return a run."""
        return await self._client.run(run)

    async def runs(self, *, thread: str, limit: int) -> list[Run]:
        """Return a thread's runs, newest first."""
        return await self._client.runs(thread=thread, limit=limit)

    async def why(self, run: str) -> Why:
        """Return a run with its attempts, calls and requests."""
        return await self._client.why(run)

    async def requests(self, *, thread: str) -> list[Request]:
        """Return a thread's open requests, newest first, at most 100."""
        return await self._client.requests(thread=thread, limit=100)

    async def request(self, request: str) -> Request:
        """Return a request."""
        return await self._client.request(request)

    async def send(
        self, thread: str | None, content: str, *, agent: str | None, key: str | None, on_busy: OnBusy | None
    ) -> Receipt:
        """Send a message."""
        return await self._client.send(thread, content, agent=agent, key=key, on_busy=on_busy)

    async def answer(self, request: str, decision: Decision, *, args_hash: str | None) -> Outcome:
        """Answer a request."""
        return await self._client.answer(request, decision, args_hash=args_hash)

    async def stop(self, *, run: str | None, thread: str | None, key: str | None, wait: float) -> StopReceipt:
        """Stop a run, or whatever runs on a thread."""
        return await self._client.stop(run=run, thread=thread, key=key, wait=wait)

    async def watch(
        self, thread: str, *, after: str | None, until: Until | None, kinds: Collection[WatchKind] | None
    ) -> AsyncGenerator[Seen, None]:
        """Yield a thread's frames, over any number of connections."""
        frames = self._client.watch(thread, after=after, until=until, kinds=kinds)
        async with aclosing(frames):
            async for watched in frames:
                yield Seen(watched.frame, watched.cursor)
