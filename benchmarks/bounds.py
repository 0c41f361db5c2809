"""Bounds in number and time, so that a busy machine makes a measurement coarser and never endless."""

from collections.abc import Iterator
from typing import Final

from benchmarks.stamps import now

SAMPLES_MIN: Final = 20


def bounded(samples: int, within: float) -> Iterator[int]:
    """Yield 0, 1, ... up to `samples` numbers, fewer if `within` seconds are over; never fewer than twenty."""
    end = now() + within
    for number in range(samples):
        if number >= SAMPLES_MIN and now() > end:
            return
        yield number
