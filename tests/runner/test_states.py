"""One word for where a run stands, for those who govern it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from threadhold.runner.machine import FailReason, RunStatus, is_final
from threadhold.runner.records import Request, Run
from threadhold.runner.states import RESUMABLE, GovernanceState, governance_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run(
    id="r",
    thread="t",
    agent="a",
    principal="ada",
    status=RunStatus.PENDING,
    reason=None,
    error=None,
    attempt=0,
    first_seq=0,
    stop_requested=False,
    created_at=NOW,
    started_at=None,
    ended_at=None,
)


def request(status: Any, after: int) -> Request:
    """Return a request that was decided, so many seconds later."""
    return Request(
        id=f"q{after}",
        thread="t",
        run="r",
        attempt=1,
        kind="approval",
        call_id="c",
        tool="pay",
        args={},
        args_hash="",
        requested_by="ada",
        other_only=False,
        approvers=None,
        metadata={},
        status=status,
        answer=None,
        answered_by=None if status == "cancelled" else "bob",
        answered_at=None if status == "cancelled" else NOW + timedelta(seconds=after),
        expires_at=None,
        created_at=NOW,
    )


@pytest.mark.parametrize(
    ("changes", "requests", "state"),
    [
        ({}, [], "starting"),
        ({"attempt": 1}, [request("answered", 1)], "resuming"),
        ({"status": RunStatus.RUNNING}, [request("denied", 1)], "running"),
        ({"status": RunStatus.PAUSED}, [], "interrupted"),
        ({"status": RunStatus.COMPLETED}, [], "completed"),
        ({"status": RunStatus.COMPLETED}, [request("denied", 1), request("answered", 2)], "completed"),
        ({"status": RunStatus.COMPLETED}, [request("denied", 2), request("answered", 1)], "rejected"),
        ({"status": RunStatus.STOPPED, "reason": "person"}, [request("cancelled", 1)], "cancelled"),
        ({"status": RunStatus.FAILED, "reason": FailReason.REJECTED}, [request("denied", 1)], "rejected"),
        ({"status": RunStatus.FAILED, "reason": FailReason.TIMEOUT}, [], "timeout"),
        ({"status": RunStatus.FAILED, "reason": FailReason.BUDGET_EXHAUSTED}, [], "budget_exhausted"),
        ({"status": RunStatus.FAILED, "reason": FailReason.ABANDONED}, [request("denied", 1)], "failed"),
    ],
)
def test_the_word_follows_from_status_reason_and_the_last_decision(
    changes: dict[str, Any], requests: list[Request], state: GovernanceState
) -> None:
    run = replace(RUN, **changes)
    assert governance_state(run, requests) == state
    assert (state in RESUMABLE) is not is_final(run.status)


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("reason", [None, *FailReason])
def test_each_status_has_a_word(status: RunStatus, reason: str | None) -> None:
    assert governance_state(replace(RUN, status=status, reason=reason), []) in get_args(GovernanceState)
