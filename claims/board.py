"""A few numbers that two processes share in memory, so that neither has to be listened to to be known.

After a tool has held a process for long, its timers run before it reads any pipe. What was renewed meanwhile stands
here.
"""

import mmap
import os
import struct
import tempfile
from typing import Final, Literal

SLOTS_MAX: Final = 32_768
Field = Literal["tick", "proof", "failing", "renewed", "renewals", "failures"]

_FIELDS: Final[dict[Field, int]] = {
    "tick": 0,
    "proof": 1,
    "failing": 2,
    "renewed": 3,
    "renewals": 4,
    "failures": 5,
}
_HEADER: Final = 16
# A number, whose it is, and the two combined: a reader that comes in the middle of a write sees that they do not fit.
_CELL: Final = struct.Struct("=QQQ")
_NUMBER: Final = struct.Struct("=d")
_MASK: Final = 0x5BD1E995_9E3779B9
_TRIES: Final = 100


class Board:
    """Numbers in shared memory, each with the one process that writes it.

    A slot belongs to one claim at a time, told by its owner's number, so that a late write for the claim before it
    counts for nothing. All numbers are seconds of the claims' clock, but for the two that count.

    Args:
        fd: the file that another process has made; a new one is made without.
    """

    def __init__(self, fd: int | None = None) -> None:
        size = (_HEADER + SLOTS_MAX) * _CELL.size
        self.fd = shared_file() if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        self._memory = mmap.mmap(self.fd, size)

    def write(self, field: Field, value: float) -> None:
        """Publish a number."""
        self._put(_FIELDS[field], value, owner=0)

    def read(self, field: Field) -> float:
        """Return a number; 0 if nobody has written it."""
        return self._get(_FIELDS[field], owner=0) or 0.0

    def extend(self, slot: int, owner: int, deadline: float) -> None:
        """Publish until when a claim may be trusted."""
        self._put(_HEADER + slot, deadline, owner=owner)

    def deadline(self, slot: int, owner: int) -> float:
        """Return until when a claim may be trusted as far as is known here; 0 if nothing is."""
        return self._get(_HEADER + slot, owner=owner) or 0.0

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self.fd)

    def _put(self, cell: int, value: float, *, owner: int) -> None:
        (bits,) = struct.unpack("=Q", _NUMBER.pack(value))
        _CELL.pack_into(self._memory, cell * _CELL.size, bits, owner, bits ^ owner ^ _MASK)

    def _get(self, cell: int, *, owner: int) -> float | None:
        for _ in range(_TRIES):
            bits, whose, check = _CELL.unpack_from(self._memory, cell * _CELL.size)
            if check == bits ^ whose ^ _MASK:
                return float(_NUMBER.unpack(struct.pack("=Q", bits))[0]) if whose == owner else None
        return None


def shared_file() -> int:
    """Return a file without a name, in memory where there is such a thing; a child may be given it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("threadhold")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
