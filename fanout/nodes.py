"""Several Redis servers side by side: each thread lives on one of them, chosen by its name.

They know nothing of each other. Every process has to be told the same servers in the same order. When one is added at
the end or taken away from there, only its threads move, and their watchers are told of a gap at most.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import LiveLog, LivePage, Place, Signal

# What waits longer does so in the nodes' own queues, which are bounded.
_ARRIVED_MAX: Final = 64

Node = TypeVar("Node")


def node_of(key: str, count: int) -> int:
    """Return which of so many nodes a key belongs to: the one whose number, hashed with the key, comes out highest.

    The rule is rendezvous hashing (Thaler and Ravishankar, 1996): it needs no ring, and moves as few keys as can be.
    """
    if count == 1:
        return 0
    return max(range(count), key=lambda node: blake2b(f"{node} {key}".encode(), digest_size=8).digest())


class _Spread(Generic[Node]):
    """One thing per node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            raise ValueError("name at least one node")
        self._nodes = tuple(nodes)

    def _at(self, thread: str) -> Node:
        return self._nodes[node_of(thread, len(self._nodes))]


class NodesLive(_Spread[LiveLog]):
    """The live log over several nodes."""

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        """Store and publish frames on the thread's node."""
        return await self._at(thread).append(thread, fence, frames)

    async def clear(self, thread: str, top: Place) -> None:
        """Forget the stored frames on the thread's node."""
        await self._at(thread).clear(thread, top)

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        """Return stored frames from the thread's node."""
        return await self._at(thread).live(thread, after=after, limit=limit)

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        """Return the newest places, asking all nodes at once; one that is away leaves its threads out."""
        spread: list[list[str]] = [[] for _ in self._nodes]
        for thread in threads:
            spread[node_of(thread, len(self._nodes))].append(thread)
        asked = [_tops(node, some) for node, some in zip(self._nodes, spread, strict=True) if some]
        return {thread: top for tops in await asyncio.gather(*asked) for thread, top in tops.items()}

    async def ring(self, thread: str, seq: int) -> None:
        """Ring on the thread's node."""
        await self._at(thread).ring(thread, seq)


class NodeSubscriber(Protocol):
    """A subscription connection to one node."""

    @property
    def healthy(self) -> bool:
        """Tell whether it hears its own publish."""
        ...

    @property
    def resubscriptions(self) -> int:
        """How often it had to connect again."""
        ...

    async def subscribe(self, thread: str) -> None:
        """Ask for a thread's channel."""
        ...

    async def unsubscribe(self, thread: str) -> None:
        """Give it up."""
        ...

    def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield what arrives."""
        ...

    async def wait_healthy(self) -> None:
        """Wait until it hears its own publish."""
        ...

    async def aclose(self) -> None:
        """End the connection."""
        ...


class NodesSubscriber(_Spread[NodeSubscriber]):
    """The subscription connections to several nodes, as one."""

    @property
    def healthy(self) -> bool:
        """Tell whether all of them hear their own publish."""
        return all(node.healthy for node in self._nodes)

    @property
    def resubscriptions(self) -> int:
        """How often they had to connect again, all together."""
        return sum(node.resubscriptions for node in self._nodes)

    async def wait_healthy(self) -> None:
        """Wait until all of them do."""
        await asyncio.gather(*(node.wait_healthy() for node in self._nodes))

    async def subscribe(self, thread: str) -> None:
        """Ask the thread's node for its channel."""
        await self._at(thread).subscribe(thread)

    async def unsubscribe(self, thread: str) -> None:
        """Give it up."""
        await self._at(thread).unsubscribe(thread)

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield what arrives from any node, each node's in its order."""
        arrived: asyncio.Queue[Signal | Exception | None] = asyncio.Queue(_ARRIVED_MAX)
        tasks = [asyncio.create_task(_move(node, arrived)) for node in self._nodes]
        left = len(tasks)
        try:
            while left:
                signal = await arrived.get()
                if isinstance(signal, Exception):
                    raise signal
                if signal is None:
                    left -= 1
                else:
                    yield signal
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """End all connections."""
        await asyncio.gather(*(node.aclose() for node in self._nodes))


async def _move(node: NodeSubscriber, arrived: asyncio.Queue[Signal | Exception | None]) -> None:
    try:
        async for signal in node.signals():
            await arrived.put(signal)
        await arrived.put(None)
    except Exception as error:  # whoever iterates has to hear of it while the other nodes go on
        await arrived.put(error)


async def _tops(node: LiveLog, threads: Sequence[str]) -> dict[str, Place]:
    try:
        return await node.tops(threads)
    except LiveUnavailable:
        return {}
