"""Counts what a crowd of watchers got, and how late: the same few lines for every way of watching."""

import time
from typing import Any, Final

from benchmarks.stamps import Stamper, now
from threadhold.fanout.frame import Kind

KIND: Final[Kind] = "draft"
"""The kind of the frames that are counted; heads and attempts come along."""
LAGS_MAX: Final = 5000


class Tally:
    """The deliveries of one round.

    Args:
        name: of the round; its marks are stamped as `heard NAME:1`, `heard NAME:2`, ...
        every: deliveries from one mark to the next.
        stamper: says that a mark was reached, so that whoever feeds the crowd does not run ahead of it.
    """

    def __init__(self, name: str, *, every: int, stamper: Stamper) -> None:
        self.count = 0
        self.gaps = 0
        self._name = name
        self._every = every
        self._stamper = stamper
        self._marks: list[tuple[int, float, float]] = []
        self._lags: list[float] | None = None

    def take(self, stamp: float) -> None:
        """Count one delivery of what was stamped at `stamp` seconds."""
        self.count += 1
        if self._lags is not None:
            self._lags.append(now() - stamp)
        if self.count % self._every == 0:
            self._mark()

    def sample(self) -> None:
        """Note from here on how late each delivery is."""
        self._lags = []

    def report(self) -> dict[str, Any]:
        """Return counts; seconds and processor seconds between the first mark and the last; and some lags."""
        (first, began, busy), (last, ended, done) = self._marks[0], self._marks[-1]
        lags = self._lags or []
        return {
            "count": self.count,
            "gaps": self.gaps,
            "deliveries": last - first,
            "wall": ended - began,
            "cpu": done - busy,
            "lags": lags[:: len(lags) // LAGS_MAX + 1],
        }

    def _mark(self) -> None:
        at = now()
        self._marks.append((self.count, at, time.process_time()))
        self._stamper.send("heard", f"{self._name}:{len(self._marks)}", at)
