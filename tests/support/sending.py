"""Repeat what a replica refuses for the moment, as clients do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from threadhold.adapters.replies import ClientError

# A bound for people: nothing is judged by it, and a machine may be slow.
BACK_S_MAX: Final = 120.0
AGAIN_S: Final = 0.1

T = TypeVar("T")


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    """Return what a call returns, as soon as it is not refused as one that may be repeated.

    Args:
        call: may be made twice: what it sends has a key.

    Raises:
        AssertionError: if it is still refused after two minutes; says how.
        ClientError: if it is refused for good.
    """
    told: ClientError | None = None
    for _ in range(int(BACK_S_MAX / AGAIN_S)):
        try:
            return await call()
        except ClientError as error:
            if not error.passing:
                raise
            told = error
        await asyncio.sleep(AGAIN_S)
    raise AssertionError(f"this has not passed: {told!r}")
