"""What waits to be written to one peer: bounded, so that a slow peer holds back nobody but itself."""

import asyncio
from collections import deque


class Outbox:
    """Texts on their way to one peer, in order. Whoever puts waits for room; nothing is dropped.

    Args:
        items_max: how many texts may wait.
        chars_max: how many characters they may have together; a single larger one still gets through.
    """

    def __init__(self, *, items_max: int, chars_max: int) -> None:
        self._items: deque[str] = deque()
        self._size = 0
        self._items_max = items_max
        self._chars_max = chars_max
        self._closed = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, text: str) -> None:
        """Add a text when there is room; after `close` it is dropped, as nobody will read it."""
        while self._is_full() and not self._closed:
            self._room.clear()
            await self._room.wait()
        self.put_last(text)

    def put_last(self, text: str) -> None:
        """Add a text at once, room or not: for the few that end a stream."""
        if self._closed:
            return
        self._items.append(text)
        self._size += len(text)
        self._filled.set()

    async def take(self) -> list[str]:
        """Return all that waits, as soon as there is something; an empty list once closed and empty."""
        while not self._items and not self._closed:
            self._filled.clear()
            await self._filled.wait()
        taken = list(self._items)
        self._items.clear()
        self._size = 0
        self._room.set()
        return taken

    def close(self) -> None:
        """Take no more texts; what waits can still be taken."""
        self._closed = True
        self._filled.set()
        self._room.set()

    def _is_full(self) -> bool:
        return len(self._items) >= self._items_max or self._size >= self._chars_max
