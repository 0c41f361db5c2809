"""Positions in a thread: how far a watcher has come, in the log of facts and in the live stream."""

import re
from dataclasses import dataclass
from typing import Final

# Larger than any real n, so that a position "after all of this fence" compares right.
N_MAX: Final = 2**31 - 1
_CURSOR: Final = re.compile(r"([0-9]{1,15})-([0-9]{1,18})-([0-9]{1,10})")


class InvalidCursor(ValueError):
    """The text is not a cursor that this system gave out."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not a cursor; use one from a frame, 'start' or 'head'")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The last fact and the last live frame that a watcher has seen."""

    seq: int = 0
    fence: int = 0
    n: int = 0

    def cursor(self) -> str:
        """Return the position as text; opaque to clients, and it grants nothing."""
        return f"{self.seq}-{self.fence}-{self.n}"

    @property
    def live(self) -> tuple[int, int]:
        """The place in the live stream."""
        return self.fence, self.n

    def at_fact(self, seq: int) -> "Position":
        """Return the position after the fact `seq`."""
        return Position(seq=seq, fence=self.fence, n=self.n)

    def at_live(self, fence: int, n: int) -> "Position":
        """Return the position after the live frame `(fence, n)`."""
        return Position(seq=self.seq, fence=fence, n=n)


def parse_cursor(text: str) -> Position:
    """Read a cursor.

    Raises:
        InvalidCursor: if the text does not have the form of one.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidCursor(text)
    seq, fence, n = (int(part) for part in match.groups())
    return Position(seq=seq, fence=fence, n=n)
