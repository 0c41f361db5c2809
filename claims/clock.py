"""The clock of claims: it goes on while the machine sleeps, and no clock step moves it."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def now() -> float:
    """Return seconds since boot, suspension included where the platform can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
