"""A loop's clock that a test puts forward, where otherwise it would have to stand still, or to be quick."""

import asyncio


def put_forward(seconds: float) -> None:
    """Put the clock of the running loop forward for good: to its timers it looks as if the process had stood still.

    All timers that are due by then are, and run in the next turn of the loop, in their order. A loop of uvloop has its
    clock to itself.
    """
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
