"""Stamps of other processes: which thing reached which point, and when, by the clock that all processes here share.

They travel as datagrams beside the system, so that telling the time costs the measured path next to nothing.
"""

import asyncio
import os
import socket
import time
from typing import Any, Final

from benchmarks.errors import NothingCame

PORT_VARIABLE: Final = "BENCH_STAMPS_PORT"
HOST: Final = "127.0.0.1"
STAMP_WITHIN_S: Final = 15.0


def now() -> float:
    """Return seconds of the machine's monotonic clock, the same in every process."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Stamper:
    """Sends stamps to the process that measures; its port is in the environment."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._to = (HOST, int(os.environ.get(PORT_VARIABLE, "0")))

    def send(self, point: str, id: str, at: float) -> None:
        """Say that `id` reached `point` at `at` seconds."""
        self._socket.sendto(f"{point} {id} {at!r}".encode(), self._to)


class Stamps(asyncio.DatagramProtocol):
    """Takes stamps in; they may come before somebody waits for them."""

    def __init__(self) -> None:
        self._arrived: dict[tuple[str, str], asyncio.Future[float]] = {}

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Note a stamp."""
        point, id, at = data.decode().split(" ")
        future = self._future(point, id)
        if not future.done():
            future.set_result(float(at))

    async def of(self, point: str, id: str) -> float:
        """Return when `id` reached `point`, in seconds.

        Raises:
            NothingCame: if no stamp came in time.
        """
        try:
            async with asyncio.timeout(STAMP_WITHIN_S):
                return await self._future(point, id)
        except TimeoutError:
            raise NothingCame(f"the stamp {point!r} of {id}", STAMP_WITHIN_S) from None
        finally:
            self._arrived.pop((point, id), None)

    def _future(self, point: str, id: str) -> asyncio.Future[float]:
        key = (point, id)
        if key not in self._arrived:
            self._arrived[key] = asyncio.get_running_loop().create_future()
        return self._arrived[key]
