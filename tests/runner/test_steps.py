"""What answers and calls look like, by the facts about them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.histories import Json, model_called, tool_called, tool_returned
from threadhold.runner.records import Fact
from threadhold.runner.steps import Call, calls_of, step_of

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CLOSED: Json = {"fact": "attempt_closed", "outcome": "abandoned"}
OPENED: Json = {"fact": "request_opened", "call_id": "a", "request": "q"}


def answered(decision: str, **data: Any) -> Json:
    """The fact that the request about call `a` was answered."""
    return {"fact": "request_answered", "call_id": "a", "request": "q", "decision": decision, **data}


def log_of(*told: Json) -> list[Fact]:
    """Return facts as a log has them: numbered from 1, one a second."""
    return [
        Fact(
            seq=seq,
            run="r",
            fence=7,
            kind=each["fact"],
            data={name: value for name, value in each.items() if name != "fact"},
            at=BEGAN + timedelta(seconds=seq),
        )
        for seq, each in enumerate(told, start=1)
    ]


def calls(*told: Json, answers: tuple[int, ...] = (1,)) -> list[Call]:
    """Return the calls that facts tell of."""
    return calls_of(log_of(*told), answers=answers)


@pytest.mark.parametrize(
    ("facts", "state", "outcome"),
    [
        ([], "never_started", None),
        ([tool_called("a")], "still_running", None),
        ([tool_called("a"), CLOSED], "unknown", None),
        ([CLOSED], "never_started", None),
        ([tool_called("a"), tool_returned("a", "ok", result=3), CLOSED], "finished", "ok"),
        ([tool_called("a"), tool_returned("a", "retry", error="again")], "finished", "retry"),
        ([tool_called("a"), tool_returned("a", "failed", error="broken")], "finished", "failed"),
        ([OPENED, CLOSED], "waiting", None),
        ([tool_called("a"), tool_returned("a", "deferred"), OPENED], "waiting", None),
        ([OPENED, answered("approve")], "never_started", None),
        ([OPENED, answered("edit", args={"n": 2})], "never_started", None),
        ([OPENED, answered("approve"), tool_called("a")], "still_running", None),
        ([OPENED, answered("reply", value="yes")], "finished", "ok"),
        ([OPENED, answered("reject", reason="no")], "finished", "denied"),
        # A cancellation does not name the call.
        (
            [OPENED, {"fact": "request_answered", "request": "q", "decision": "cancelled"}],
            "never_started",
            None,
        ),
        ([tool_called("b"), tool_returned("b", "ok")], "never_started", None),
    ],
)
def test_a_call_is_where_its_facts_say(facts: list[Json], state: str, outcome: str | None) -> None:
    (call,) = calls(model_called("a"), *facts)
    assert (call.state, call.outcome) == (state, outcome)


def test_a_call_has_what_it_was_called_with_and_what_came_of_it() -> None:
    asked: Json = {"fact": "model_called", "calls": [{"id": "a", "tool": "add", "args": {"n": 1}}]}
    facts = [asked, tool_called("a"), tool_returned("a", "ok", result={"sum": 3}, ms=12.5)]
    assert calls(*facts) == [
        Call(
            id="a", tool="add", args={"n": 1}, seq=1, state="finished", outcome="ok", result={"sum": 3},
            error=None, request=None, ms=12.5, asked_at=BEGAN + timedelta(seconds=1),
            started_at=BEGAN + timedelta(seconds=2), ended_at=BEGAN + timedelta(seconds=3),
        )
    ]  # fmt: skip


def test_what_people_decided_is_seen_in_the_call() -> None:
    (edited,) = calls(model_called("a"), OPENED, answered("edit", args={"n": 2}))
    assert (edited.args, edited.request, edited.ended_at) == ({"n": 2}, "q", None)
    (denied,) = calls(model_called("a"), OPENED, answered("reject", reason="no"))
    assert (denied.error, denied.ended_at) == ("no", BEGAN + timedelta(seconds=3))
    (replied,) = calls(model_called("a"), OPENED, answered("reply", value=[1]))
    assert replied.result == [1]


def test_a_deferred_call_has_not_begun() -> None:
    (call,) = calls(model_called("a"), tool_called("a"), tool_returned("a", "deferred"))
    assert (call.state, call.started_at, call.ended_at) == ("never_started", None, None)


def test_parallel_calls_keep_the_order_of_their_answer() -> None:
    facts = [model_called("a", "b"), tool_called("b"), tool_called("a"), tool_returned("b", "ok")]
    assert [(call.id, call.state) for call in calls(*facts)] == [("a", "still_running"), ("b", "finished")]


def test_an_id_that_is_used_again_is_another_call() -> None:
    facts = [
        model_called("a"), tool_called("a"), tool_returned("a", "retry", error="again"),
        model_called("a"), tool_called("a"), tool_returned("a", "ok", result=1),
    ]  # fmt: skip
    first, second = calls(*facts, answers=(1, 4))
    assert (first.seq, first.outcome, second.seq, second.outcome) == (1, "retry", 4, "ok")
    assert calls(*facts, answers=(1,)) == [first]
    assert calls(*facts, answers=(4,)) == [second]


def test_an_answer_that_was_cut_off_asks_for_nothing() -> None:
    assert calls(model_called("a", state="interrupted")) == []


def test_an_answer_is_told_with_what_it_took() -> None:
    took = {"input_tokens": 5, "output_tokens": 2, "latency_ms": 1.5, "cost": "0.01", "cost_total": "0.03"}
    (fact,) = log_of(model_called("a", "b") | {"model": "m", "text": "let me see", **took})
    step = step_of(fact)
    assert (step.seq, step.fence, step.at) == (1, 7, BEGAN + timedelta(seconds=1))
    assert (step.model, step.text, step.calls, step.state) == ("m", "let me see", ("a", "b"), "complete")
    assert {name: getattr(step, name) for name in took} == took
    kept = replace(fact, data={"calls": [], "state": "interrupted", "text": None, "model": None})
    assert (step_of(kept).text, step_of(kept).cost_total) == ("", None)
