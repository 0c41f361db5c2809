"""What is under way in a process, so that a block can be traced to a call that no stack shows any more."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from threadhold.claims.clock import Clock, now

_ENDED_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Blocker:
    """Who blocks: a place in the application, and the tool that it belongs to."""

    where: str | None
    function: str | None
    tool: str | None


@dataclass(slots=True, eq=False)
class _Span:
    who: Blocker
    began: float
    ended: float | None = None


class Doing:
    """Calls that are under way, and the last ones that were.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, *, clock: Clock = now) -> None:
        self._clock = clock
        self._under_way: dict[int, _Span] = {}
        self._ended: deque[_Span] = deque(maxlen=_ENDED_MAX)

    @contextmanager
    def call(self, who: Blocker) -> Iterator[None]:
        """Show a call as under way for as long as the body lasts."""
        span = _Span(who, self._clock())
        self._under_way[id(span)] = span
        try:
            yield
        finally:
            span.ended = self._clock()
            del self._under_way[id(span)]
            self._ended.append(span)

    def through(self, since: float, until: float) -> Blocker | None:
        """Return the call that was under way through a time in which the main loop did nothing.

        It had begun while the loop still ran, and the loop has not seen its end before it ran again. Of several, it is
        the one that began last: the loop has lived with the others before.
        """
        middle = (since + until) / 2
        spans = (*self._under_way.copy().values(), *self._ended.copy())
        found = [
            span for span in spans if span.began <= middle and (span.ended is None or span.ended > middle)
        ]
        return max(found, key=lambda span: span.began).who if found else None
