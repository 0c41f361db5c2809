"""Asks the servers behind this process what no counter tells: whether they answer, and how many runs wait."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from threadhold.claims.clock import Clock, now

# Several scrapers, and whoever presses reload, ask the servers no more often than this.
FRESH_S: Final = 5.0
WITHIN_S: Final = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen. `pending` counts the runs of each agent that wait for a worker; None where that is not known."""

    postgres: bool = False
    redis: bool = False
    pending: Mapping[str, int] | None = None


@dataclass(slots=True)
class Sampler:
    """Asks, and remembers the answers for a few seconds.

    Args:
        pending: counts the runs that wait in Postgres, by agent.
        ping: returns when Redis answers.
        clock: seconds that only grow.
    """

    pending: Callable[[], Awaitable[Mapping[str, int]]]
    ping: Callable[[], Awaitable[object]]
    clock: Clock = now
    last: Sample = field(default_factory=Sample, init=False)
    _until: float = field(default=0.0, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _agents: set[str] = field(default_factory=set, init=False)

    async def look(self) -> None:
        """Bring `last` up to date, unless that is a few seconds old at most."""
        async with self._asking:
            if self.clock() >= self._until:
                self.last = await self._asked()
                self._until = self.clock() + FRESH_S

    async def _asked(self) -> Sample:
        pending, pong = await asyncio.gather(
            _within(self.pending()), _within(self.ping()), return_exceptions=True
        )
        redis = not isinstance(pong, BaseException)
        if isinstance(pending, BaseException):
            return Sample(redis=redis)
        # An agent that had some is shown with none, rather than left out.
        self._agents |= pending.keys()
        return Sample(
            postgres=True, redis=redis, pending={name: pending.get(name, 0) for name in self._agents}
        )


async def _within(answer: Awaitable[T]) -> T:
    async with asyncio.timeout(WITHIN_S):
        return await answer
