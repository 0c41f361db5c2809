"""A process full of watchers.

Usage: python -m benchmarks.crowd hub|bare|ws|sse

Commands, as JSON lines on stdin; each is answered by one object:

    watch NAME THREADS EACH EVERY    enter, and return when all of them hear
    sample                           note from here on how late each delivery is
    until COUNT                      wait for so many deliveries, and report
    cpu, memory, trace               what this process has used; `trace` begins to count what Python allocates
    leave                            let all watchers go
"""

import asyncio
import gc
import logging
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import structlog

from benchmarks.remote import obey, resident_of
from benchmarks.sockets import socket_way, stream_way
from benchmarks.stamps import Stamper
from benchmarks.tally import Tally
from benchmarks.watchers import Way, bare_way, hub_way
from threadhold.adapters.processes import run
from threadhold.adapters.settings import Settings

WAYS: Final[dict[str, Callable[[Settings], AbstractAsyncContextManager[Way]]]] = {
    "hub": hub_way,
    "bare": bare_way,
    "ws": socket_way,
    "sse": stream_way,
}
LOOK_EVERY_S: Final = 0.005


class Crowd:
    """The watchers of this process."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._stamper = Stamper()
        self._tally = Tally("", every=1, stamper=self._stamper)

    async def watch(self, name: str, threads: list[str], each: int, every: int) -> None:
        """Enter."""
        self._tally = Tally(name, every=every, stamper=self._stamper)
        await self._way.enter(threads, each, self._tally)

    async def sample(self) -> None:
        """Note lags from here on."""
        self._tally.sample()

    async def until(self, count: int) -> dict[str, Any]:
        """Wait for so many deliveries, and report."""
        while True:
            if self._tally.count >= count:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return self._tally.report() | {"overflows": self._way.overflows()}

    async def cpu(self) -> dict[str, Any]:
        """Return the processor seconds that were used."""
        return {"cpu": time.process_time()}

    async def memory(self) -> dict[str, Any]:
        """Return the bytes in use."""
        gc.collect()
        return {"resident": resident_of(os.getpid()), "traced": tracemalloc.get_traced_memory()[0]}

    async def trace(self) -> None:
        """Count what is allocated from here on."""
        tracemalloc.start()

    async def leave(self) -> None:
        """Let all go."""
        await self._way.leave()

    async def obey(self) -> None:
        """Take commands."""
        commands = (self.watch, self.sample, self.until, self.cpu, self.memory, self.trace, self.leave)
        await obey({command.__name__: command for command in commands})


async def main(way: str) -> None:
    """Open a way to watch, and obey."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    async with WAYS[way](Settings()) as opened:
        await Crowd(opened).obey()


if __name__ == "__main__":
    run(main(sys.argv[1]))
