"""The models by themselves: JSON and back is the same, and what follows from something does."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from threadhold.runner.machine import RunStatus
from threadhold.runner.repositories import (
    ConditionResultRecorder,
    PendingRequest,
    Run,
    RunConditionResult,
    RunFailureState,
    RunHistoryEntry,
    RunState,
    ThreadMemoryBinding,
    ThreadRecord,
    branches,
)
from threadhold.runner.repositories.models import STORED, body_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)
times = st.datetimes(timezones=st.timezones(), min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1))  # noqa: DTZ001
entries = st.builds(
    RunHistoryEntry,
    node_id=text,
    status=st.sampled_from(["running", "completed", "failed", "retried", "skipped"]),
    attempt=st.integers(1, 9),
    input_snapshot=json_values,
    output_snapshot=json_values,
    started_at=st.none() | times,
    cost=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
)
results = st.builds(
    RunConditionResult, condition_id=text, matched=st.booleans(), evaluated_at=times, details=objects
)
runs = st.builds(
    Run,
    run_id=st.uuids().map(str),
    agent=text,
    status=st.sampled_from(RunStatus),
    artifacts=objects,
    channels=objects,
    metadata=objects,
    pending_request=st.none() | st.builds(PendingRequest, tool=text, args=objects),
    updated_at=times,
    history=st.lists(entries, max_size=3),
    condition_results=st.lists(results, max_size=2),
    final_output=json_values,
    failure_state=st.none() | st.builds(RunFailureState, reason=text, message=text, details=objects),
)


@settings(max_examples=50)
@given(runs)
def test_a_record_is_the_same_after_json(run: Run) -> None:
    again = Run.model_validate_json(run.model_dump_json())
    assert again == run
    assert again.model_dump_json() == run.model_dump_json()
    assert set(body_of(run)) | STORED == set(Run.model_fields)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (RunState, {"run_id": "r", "agent": "a"}),
        (Run, {"run_id": "r", "agent": "a"}),
        (RunHistoryEntry, {"node_id": "n", "status": "running"}),
        (RunConditionResult, {"condition_id": "c", "matched": True}),
        (RunFailureState, {"reason": "x"}),
        (PendingRequest, {"tool": "t"}),
        (
            ThreadRecord,
            {"thread_id": "t", "workspace": "w", "agent": "a", "created_at": NOW, "updated_at": NOW},
        ),
    ],
)
def test_nothing_is_taken_that_is_not_named(kind: type[Any], fields: dict[str, Any]) -> None:
    made = kind(**fields)
    assert kind.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(ValidationError, match="extra_forbidden"):
        kind(**fields, more=1)


def test_values_are_json_only() -> None:
    for value in (float("inf"), float("nan"), (1,), {1: 2}, object()):
        with pytest.raises(ValidationError):
            Run(run_id="r", agent="a", channels={"x": value})  # type: ignore[dict-item]


def test_a_thread_is_the_runs_own_unless_one_is_named() -> None:
    assert RunState(run_id="r", agent="a").thread_id == "r"
    assert RunState(run_id="r", thread_id="t", agent="a").thread_id == "t"


def test_touching_is_always_later() -> None:
    ahead = datetime.now(UTC) + timedelta(days=1)
    for run in (
        RunState(run_id="r", agent="a", updated_at=NOW),
        RunState(run_id="r", agent="a", updated_at=ahead),
    ):
        before = run.updated_at
        run.touch()
        assert run.updated_at > before


def test_completed_steps_follow_from_the_history() -> None:
    run = Run(run_id="r", agent="a", completed_steps=["invented"])
    assert run.completed_steps == []
    for node, status in [
        ("a", "retried"),
        ("a", "completed"),
        ("b", "failed"),
        ("c", "completed"),
        ("a", "completed"),
    ]:
        before = run.updated_at
        run.add(RunHistoryEntry(node_id=node, status=status))  # type: ignore[arg-type]
        assert run.updated_at > before
    assert run.completed_steps == ["a", "c"]
    assert run.node_visits == {"a": 3, "b": 1, "c": 1}
    assert len(run.history) == 5


@pytest.mark.parametrize(("message", "error"), [("it broke", "it broke"), ("", "x")])
def test_a_failure_is_the_error(message: str, error: str) -> None:
    failure = RunFailureState(reason="x", message=message)
    assert Run(run_id="r", agent="a", error="old", failure_state=failure).error == error


def test_the_recorder_appends_and_touches_once() -> None:
    class Counted(Run):
        touched: int = 0

        def touch(self) -> None:
            self.touched += 1
            super().touch()

    run = Counted(run_id="r", agent="a")
    recorder = ConditionResultRecorder()
    first, *others = branches("fork", ["a", "b", "c"], taken="b", evaluated_at=NOW, details={"x": 1})
    assert recorder.record(run, first) is run
    assert (run.touched, run.condition_results) == (1, [first])
    assert recorder.record_many(run, others) is run
    assert (run.touched, run.condition_results) == (2, [first, *others])
    assert [(each.selected_edge_id, each.matched) for each in run.condition_results] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


def test_a_binding_is_a_connector_an_instance_and_a_scope() -> None:
    binding = ThreadMemoryBinding(connector="kv", instance="main", scope="ada")
    thread = ThreadRecord(
        thread_id="t", workspace="w", agent="a", created_at=NOW, updated_at=NOW, memory_bindings=[binding]
    )
    assert ThreadRecord.model_validate_json(thread.model_dump_json()).memory_bindings == [binding]
