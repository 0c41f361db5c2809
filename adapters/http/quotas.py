"""How much one principal may ask of this process: messages a minute, open streams, open sockets."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from threadhold.adapters.http.buckets import Buckets
from threadhold.adapters.http.errors import RateLimited
from threadhold.runner.records import Principal

# Nobody knows when one of them will be closed; soon enough not to be waited for, late enough not to be a burden.
_RETRY_OPEN_S: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What each principal may have of one process; None where that is not bounded.

    Args:
        messages_per_minute: on average; a minute's worth may come at once.
        watches: threads watched at once, over all of its sockets and streams.
        sockets: WebSockets open at once.
    """

    messages_per_minute: int | None = None
    watches: int | None = None
    sockets: int | None = None


class Quotas:
    """Counts what principals use.

    Args:
        allowance: what each may have.
        clock: seconds that only grow.
    """

    def __init__(self, allowance: Allowance, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance = allowance
        self._clock = clock
        self._messages = Buckets(per_minute=allowance.messages_per_minute or 0)
        self._watches: Counter[tuple[str, str]] = Counter()
        self._sockets: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[str] = Counter()
        """How often somebody was refused, by what they asked for."""

    @property
    def open_sockets(self) -> int:
        """How many WebSockets are open, all principals together."""
        return self._sockets.total()

    def message(self, by: Principal) -> None:
        """Count a message before it is sent.

        Raises:
            RateLimited: that was one too many.
        """
        limit = self._allowance.messages_per_minute
        if limit is None:
            return
        wait_s = self._messages.take(_who(by), now=self._clock())
        if wait_s:
            self.refused["messages"] += 1
            raise RateLimited(
                f"{limit} messages a minute are allowed", limit=limit, retry_after=math.ceil(wait_s)
            )

    @contextmanager
    def watch(self, by: Principal) -> Iterator[None]:
        """Count a watch for the length of the block.

        Raises:
            RateLimited: that was one too many.
        """
        with self._held(self._watches, by, limit=self._allowance.watches, what="watches"):
            yield

    @contextmanager
    def socket(self, by: Principal) -> Iterator[None]:
        """Count a WebSocket for the length of the block.

        Raises:
            RateLimited: that was one too many.
        """
        with self._held(self._sockets, by, limit=self._allowance.sockets, what="sockets"):
            yield

    @contextmanager
    def _held(
        self, counts: Counter[tuple[str, str]], by: Principal, *, limit: int | None, what: str
    ) -> Iterator[None]:
        who = _who(by)
        if limit is not None and counts[who] >= limit:
            self.refused[what] += 1
            text = f"{limit} {what} at once are allowed; close one first"
            raise RateLimited(text, limit=limit, retry_after=_RETRY_OPEN_S)
        counts[who] += 1
        try:
            yield
        finally:
            counts[who] -= 1
            if not counts[who]:
                del counts[who]


def _who(by: Principal) -> tuple[str, str]:
    return by.workspace, by.id
