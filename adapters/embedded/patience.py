"""How often a server that keeps dying is started again: a rule without a clock of its own."""

from typing import Final

RESTARTS_MAX: Final = 5
# Who has lived for so long has recovered: its next death is a new story.
RECOVERED_S: Final = 60.0


class Patience:
    """The restarts of one server. Times are readings of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._restarts = 0
        self._up_since: float | None = None

    def spend(self, now: float) -> int | None:
        """Count one more restart and return which one it is since the server last was well.

        None means that it had its five, and none of them has lasted for a minute.
        """
        if self._up_since is not None and now - self._up_since >= RECOVERED_S:
            self._restarts = 0
        self._up_since = None
        if self._restarts >= RESTARTS_MAX:
            return None
        self._restarts += 1
        return self._restarts

    def succeeded(self, now: float) -> None:
        """Note that the restart brought the server up; one that failed is just spent."""
        self._up_since = now
