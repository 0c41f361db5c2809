"""What the process that renews knows of the one whose claims these are."""

import os
from pathlib import Path
from typing import Final

from threadhold.claims.board import Board
from threadhold.claims.clock import Clock, now

# Who looks this seldom has not been running, and cannot blame the other one.
STALLED_AFTER_S: Final = 2.0


class ParentProcess:
    """Watches the process that started this one.

    Args:
        pid: its process id.
        board: where it ticks.
        clock: the clock of its ticks.
    """

    def __init__(self, pid: int, board: Board, *, clock: Clock = now) -> None:
        self._pid = pid
        self._board = board
        self._clock = clock
        self._looked = clock()
        # Until then it could not have ticked, or we could not have seen it.
        self._excused = 0.0

    @property
    def ticked(self) -> float:
        """When it ticked last."""
        return self._board.read("tick")

    def alive(self) -> bool:
        """Tell whether it lives. A pipe to it may outlive it, in a process that it has forked."""
        return os.getppid() == self._pid

    def frozen(self) -> bool:
        """Tell whether it has been stopped from running; always False where the system does not say."""
        at = self._clock()
        stopped = _state(self._pid) in ("T", "t")
        if stopped or at - self._looked > STALLED_AFTER_S:
            self._excused = at
        self._looked = at
        return stopped

    def blocked_s(self) -> float:
        """Return for how many seconds its main loop has not ticked, although it could have."""
        return max(0.0, self._clock() - max(self.ticked, self._excused))


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    # The name before it is in brackets, and may hold anything.
    return stat.rpartition(")")[2].split()[0]
