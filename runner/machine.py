"""The life of a run as one table: which status may follow which, and what each status allows.

The same rows stand in the database (`run_transitions`, held by a trigger); a test keeps both equal.
"""

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run stands. `completed`, `stopped` and `failed` are final."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class FailReason(StrEnum):
    """Why a run failed."""

    ERROR = "error"
    ABANDONED = "abandoned"
    POISON = "poison"
    TIMEOUT = "timeout"
    BUDGET_EXHAUSTED = "budget_exhausted"
    HISTORY_UNSAFE = "history_unsafe"
    REJECTED = "rejected"


class StopReason(StrEnum):
    """Who or what stopped a run."""

    PERSON = "person"
    OPERATOR = "operator"
    INTERRUPTED_BY_MESSAGE = "interrupted_by_message"


class AttemptOutcome(StrEnum):
    """How an attempt was closed; a closed attempt never changes."""

    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    ABANDONED = "abandoned"
    HANDED_OVER = "handed_over"


_S = RunStatus

RUN_TRANSITIONS: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    # A pending run starts, is stopped before it starts, or fails when its starts never work (poison).
    _S.PENDING: frozenset({_S.RUNNING, _S.STOPPED, _S.FAILED}),
    # Back to pending: a start that was never acknowledged, a hand-over, or a retry after an abandonment.
    _S.RUNNING: frozenset({_S.PENDING, _S.PAUSED, _S.COMPLETED, _S.STOPPED, _S.FAILED}),
    # A paused run resumes by becoming pending again, or is stopped while it waits.
    _S.PAUSED: frozenset({_S.PENDING, _S.STOPPED}),
    _S.COMPLETED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.FAILED: frozenset(),
}


class InvalidTransition(ValueError):
    """The table has no such step; nothing was changed."""

    def __init__(self, before: RunStatus, after: RunStatus) -> None:
        super().__init__(f"invalid run transition: {before} -> {after}")
        self.before = before
        self.after = after


def advance(before: RunStatus, after: RunStatus) -> RunStatus:
    """Return `after` if the table allows the step.

    Raises:
        InvalidTransition: if it does not.
    """
    if after not in RUN_TRANSITIONS[before]:
        raise InvalidTransition(before, after)
    return after


def is_resumable(status: RunStatus) -> bool:
    """Tell whether a run in this status may go on as another attempt once something else has happened to it."""
    return not is_final(status) and RunStatus.PENDING in RUN_TRANSITIONS[status]


def is_replayable(status: RunStatus) -> bool:
    """Tell whether a new run may repeat one in this status; the old one is never edited."""
    return is_final(status)


def is_archivable(status: RunStatus | None) -> bool:
    """Tell whether a thread whose current run has this status (None: it has none) may be archived."""
    return status is None or is_final(status)


def is_final(status: RunStatus) -> bool:
    """Tell whether a run in this status has ended."""
    return not RUN_TRANSITIONS[status]


def is_active(status: RunStatus) -> bool:
    """Tell whether a run in this status occupies its thread."""
    return not is_final(status)


def diagram() -> str:
    """Return the table as a state diagram in Mermaid's notation, for the documentation."""
    steps = [
        f"    {before} --> {after}"
        for before in RunStatus
        for after in RunStatus
        if after in RUN_TRANSITIONS[before]
    ]
    ends = [f"    {status} --> [*]" for status in RunStatus if is_final(status)]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {RunStatus.PENDING}", *steps, *ends])
