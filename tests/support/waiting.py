"""Wait for facts, never for time: each wait looks until it sees, and fails by saying what it saw instead."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY_S = 0.02


async def until(
    look: Callable[[], Awaitable[T]], *, within: float = 20.0, what: str | Callable[[], str] = ""
) -> T:
    """Return the first true answer of `look`.

    Raises:
        AssertionError: if there is none within `within` seconds; says the last answer.
    """
    end = time.monotonic() + within
    while True:
        seen = await look()
        if seen:
            return seen
        if time.monotonic() > end:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {within} s: {told or look}; last seen: {seen!r}")
        await asyncio.sleep(LOOK_EVERY_S)
