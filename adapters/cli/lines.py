"""Reads lines from stdin without holding up the loop, and without a thread that would block the exit."""

import asyncio
import os
import sys
from typing import Final

from threadhold.adapters.cli.failure import CliError

READ_BYTES: Final = 64 * 1024
# More than any message may have, so that too long a one is refused by the server and not cut here.
LINE_BYTES_MAX: Final = 1024 * 1024
# The kernel keeps no more of a line that is typed or pasted, and drops the rest without a word.
TERMINAL_BYTES_MAX: Final = 4095


class Lines:
    """The lines of a file descriptor, read only when asked for: nothing piles up here.

    Args:
        fd: a terminal, a pipe, or a file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._ended = False
        self._is_terminal = os.isatty(fd)
        self._cut = False

    @property
    def cut(self) -> bool:
        """Tell whether the last line may lack its end, because the terminal holds no more."""
        return self._cut

    async def next(self) -> str | None:
        """Return the next line without its end, or None at the end of the input."""
        while not self._ended and b"\n" not in self._buffer and len(self._buffer) < LINE_BYTES_MAX:
            await self._readable()
            data = self._read()
            self._buffer += data
            self._ended = not data
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        self._cut = self._is_terminal and len(line) >= TERMINAL_BYTES_MAX
        return line.decode("utf-8", "replace").removesuffix("\r")

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, READ_BYTES)
        except OSError:
            return b""  # A closed stdin, or a terminal that went away, has nothing more to say.

    async def _readable(self) -> None:
        """Return when a read would not block. A plain file never does, and cannot be waited for."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._fd, _done, ready)
        except OSError:
            return
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)


def stdin_text() -> str:
    """Return all of stdin.

    Raises:
        CliError: it was typed, and the terminal has cut a line of it.
    """
    data = sys.stdin.buffer.read()
    if sys.stdin.isatty() and any(len(line) >= TERMINAL_BYTES_MAX for line in data.split(b"\n")):
        text = f"not sent: a terminal line holds {TERMINAL_BYTES_MAX} bytes; give stdin a file with `< file`"
        raise CliError("usage", text)
    return data.decode("utf-8", "replace")


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
