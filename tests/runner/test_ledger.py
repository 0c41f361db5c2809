"""What the log of facts tells of each call."""

import pytest

from tests.support.histories import (
    Json,
    model_called,
    request_answered,
    request_opened,
    tool_called,
    tool_returned,
)
from threadhold.runner.ledger import (
    EMPTY,
    Answer,
    Answered,
    Fate,
    Finished,
    NeverStarted,
    Unknown,
    ledger_of,
)

APPROVED = Answer(call="a", request="approval", decision="approve")
DENIED = Answer(call="a", request="approval", decision="reject", reason="no")
ASKED = [model_called("a"), tool_called("a"), request_opened("a")]


@pytest.mark.parametrize(
    ("facts", "fate"),
    [
        ([], Unknown()),
        ([model_called("a")], NeverStarted()),
        ([model_called("a", state="interrupted")], Unknown()),
        ([model_called("a"), tool_called("a")], Unknown()),
        ([tool_called("a")], Unknown()),
        ([model_called("a"), tool_called("a"), tool_returned("a", "ok", result=3)], Finished("ok", 3)),
        ([tool_returned("a", "retry", error="again")], Finished("retry", "again")),
        ([tool_returned("a", "failed", error="broken")], Finished("failed", "broken")),
        ([tool_returned("a", "denied", error="no")], Finished("denied", "no")),
        ([model_called("a"), tool_called("a"), tool_returned("a", "unknown")], Unknown()),
        ([model_called("a"), tool_called("a"), tool_returned("a", "deferred")], NeverStarted()),
        (ASKED, NeverStarted()),
        ([*ASKED, tool_called("a")], Unknown()),
        ([*ASKED, tool_called("a"), tool_returned("a", "ok", result="paid")], Finished("ok", "paid")),
        ([*ASKED, {"fact": "run_ended"}], NeverStarted()),
    ],
)
def test_the_last_that_was_seen_of_a_call_counts(facts: list[Json], fate: Fate) -> None:
    assert ledger_of(facts).fate("a") == fate


@pytest.mark.parametrize("facts", [[], [model_called("a")], ASKED, [*ASKED, tool_returned("a", "deferred")]])
def test_a_call_that_was_answered_waits_to_be_carried_out(facts: list[Json]) -> None:
    assert ledger_of(facts, [APPROVED]).fate("a") == Answered(APPROVED)
    assert ledger_of(facts, [APPROVED, DENIED]).fate("a") == Answered(DENIED)


@pytest.mark.parametrize(
    ("kind", "decision", "data"),
    [
        ("approval", "approve", {}),
        ("approval", "edit", {"args": {"x": 1}}),
        ("approval", "reject", {"reason": "no"}),
        ("question", "reply", {"value": "blue"}),
        ("external", "reject", {"reason": "gone"}),
    ],
)
def test_answers_are_known_from_their_facts(kind: str, decision: str, data: Json) -> None:
    answered = request_answered("a", kind, decision, **data)
    known = Answer(call="a", request=kind, decision=decision, **data)  # type: ignore[arg-type]
    assert ledger_of([*ASKED, answered]).fate("a") == Answered(known)
    assert ledger_of([*ASKED, answered, tool_called("a")]).fate("a") == Unknown()


def test_a_request_that_was_cancelled_is_no_answer() -> None:
    # It names no call: the run has ended.
    cancelled = {"fact": "request_answered", "kind": "approval", "decision": "cancelled"}
    assert ledger_of([*ASKED, cancelled]).fate("a") == NeverStarted()


@pytest.mark.parametrize("end", [[], [tool_returned("a", "ok", result=1)], [tool_returned("a", "failed")]])
def test_a_call_that_was_started_after_its_answer_is_not_started_again(end: list[Json]) -> None:
    fate = ledger_of([*ASKED, tool_called("a"), *end], [APPROVED]).fate("a")
    assert isinstance(fate, Finished if end else Unknown)


def test_an_id_that_occurs_again_is_another_call() -> None:
    ended = [tool_called("a"), tool_returned("a", "ok", result=1)]
    ledger = ledger_of(
        [model_called("a"), *ended, model_called("a", "b"), tool_called("a"), model_called("a")]
    )
    assert [ledger.fate("a", back=back) for back in range(4)] == [
        NeverStarted(),
        Unknown(),
        Finished("ok", 1),
        Unknown(),
    ]
    assert ledger.fate("b") == NeverStarted()


def test_nothing_is_known_without_facts() -> None:
    assert EMPTY.fate("a") == Unknown()
