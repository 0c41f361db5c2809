"""Where the watched threads stand in Postgres: read for all of them at once, at every beat and when somebody asks."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from threadhold.fanout.ports import Head
from threadhold.fanout.reading import FactsDown, FactsReader
from threadhold.fanout.topic import Topic

_PER_QUERY: Final = 1000
# Heads that watchers ask for are collected this long, so that a crowd costs one query.
_PAUSE: Final = 0.01


class Found(Protocol):
    """Takes what a reading found."""

    def __call__(self, topic: Topic, head: Head | None, *, number: int, beat: bool) -> None:
        """Take the head of a thread, None if there is no such thread, from the reading `number`."""
        ...


class Heads:
    """Reads the heads of the watched threads.

    Args:
        reader: Postgres.
        topics: the watched threads.
        every: seconds between two beats.
        found: takes what was read of a thread.
        down: told why, when Postgres has been away for too long.
    """

    def __init__(
        self,
        reader: FactsReader,
        topics: Mapping[str, Topic],
        *,
        every: float,
        found: Found,
        down: Callable[[str], None],
    ) -> None:
        self._reader, self._topics = reader, topics
        self._every, self._found, self._down = every, found, down
        self._due: set[str] = set()
        self._due_soon = asyncio.Event()
        self.begun = 0
        """The number of the last reading that was begun."""

    def ask(self, thread: str) -> None:
        """Have a thread's head read soon."""
        self._due.add(thread)
        self._due_soon.set()

    async def follow(self) -> None:
        """Read at every beat, and in between what was asked for."""
        loop = asyncio.get_running_loop()
        next_beat = loop.time() + self._every
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_beat):
                    await self._due_soon.wait()
            self._due_soon.clear()
            beat = loop.time() >= next_beat
            if beat:
                next_beat = loop.time() + self._every
            due, self._due = self._due, set()
            await self._read(self._topics if beat else due, beat=beat)
            await asyncio.sleep(_PAUSE)

    async def _read(self, threads: Iterable[str], *, beat: bool) -> None:
        watched = [topic for thread in threads if (topic := self._topics.get(thread)) is not None]
        for start in range(0, len(watched), _PER_QUERY):
            if not await self._read_some(watched[start : start + _PER_QUERY], beat=beat):
                return

    async def _read_some(self, topics: list[Topic], *, beat: bool) -> bool:
        """Read the heads of some threads in one query; tell whether Postgres answered."""
        self.begun += 1
        number = self.begun
        for topic in topics:
            topic.asked_no = number
        try:
            heads = {
                head.thread: head for head in await self._reader.heads([topic.thread for topic in topics])
            }
        except FactsDown as error:
            self._down(str(error))
            return False
        for topic in topics:
            if self._topics.get(topic.thread) is topic:
                self._found(topic, heads.get(topic.thread), number=number, beat=beat)
        return True
