"""What happens to runs, messages and requests, told to whoever counts it. Knows nothing of how it is counted."""

from typing import Final, Protocol


class Tally(Protocol):
    """Hears of each thing once, in the process that committed it. No call waits or raises."""

    def run_started(self, agent: str, *, waited_s: float) -> None:
        """Count the first attempt of a run, which a worker took so many seconds after the run was made."""
        ...

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        """Count the one end of a run.

        Args:
            agent: whose run.
            status: how it ended.
            reason: why, where it did not complete.
            lasted_s: seconds since it was made, with all that it waited for; None where that is not known.
        """
        ...

    def attempt_abandoned(self, cause: str) -> None:
        """Count an attempt whose claim was lost or given up."""
        ...

    def swept(self, *, lapsed: int) -> None:
        """Count a look for lapsed claims, and the claims that it took."""
        ...

    def message_accepted(self, disposition: str) -> None:
        """Count a message, not its repetitions."""
        ...

    def stop_asked(self, outcome: str) -> None:
        """Count a stop that was not refused, with what it found."""
        ...

    def request_answered(self, decision: str) -> None:
        """Count an answer, not its repetitions; `expired` where nobody gave one in time."""
        ...


class _Untold:
    """Counts nothing."""

    def run_started(self, agent: str, *, waited_s: float) -> None:
        pass

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        pass

    def attempt_abandoned(self, cause: str) -> None:
        pass

    def swept(self, *, lapsed: int) -> None:
        pass

    def message_accepted(self, disposition: str) -> None:
        pass

    def stop_asked(self, outcome: str) -> None:
        pass

    def request_answered(self, decision: str) -> None:
        pass


UNTOLD: Final[Tally] = _Untold()
"""For processes in which nobody counts."""
