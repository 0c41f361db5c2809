"""What a run's status means to whoever governs it: one word, derived, which nothing stores. Values in, values out."""

from collections.abc import Sequence
from typing import Final, Literal

from threadhold.runner.machine import FailReason, RunStatus
from threadhold.runner.records import Request, Run

GovernanceState = Literal[
    "starting",
    "running",
    "interrupted",
    "resuming",
    "completed",
    "rejected",
    "cancelled",
    "failed",
    "timeout",
    "budget_exhausted",
]
RESUMABLE: Final[frozenset[GovernanceState]] = frozenset({"starting", "running", "interrupted", "resuming"})
"""In these a run may still go on; the others are final."""

_REASONS: Final[dict[str, GovernanceState]] = {
    FailReason.REJECTED: "rejected",
    FailReason.TIMEOUT: "timeout",
    FailReason.BUDGET_EXHAUSTED: "budget_exhausted",
}


def governance_state(run: Run, requests: Sequence[Request]) -> GovernanceState:
    """Return where a run stands, in the words of those who govern it.

    A run that has completed after people, or their time, have rejected what it asked for last is `rejected`.

    Args:
        run: as it stands.
        requests: its own.
    """
    match run.status:
        case RunStatus.PENDING:
            return "resuming" if run.attempt else "starting"
        case RunStatus.RUNNING:
            return "running"
        case RunStatus.PAUSED:
            return "interrupted"
        case RunStatus.STOPPED:
            return "cancelled"
        case RunStatus.FAILED:
            return _REASONS.get(run.reason or "", "failed")
        case RunStatus.COMPLETED:
            return "rejected" if _last_rejected(requests) else "completed"


def _last_rejected(requests: Sequence[Request]) -> bool:
    """Tell whether the decision about an approval that came last was a rejection."""
    decided = [each for each in requests if each.kind == "approval" and each.answered_at is not None]
    last = max(decided, key=lambda request: (request.answered_at, request.id), default=None)
    return last is not None and last.status == "denied"
