"""In which words a call that has no result is closed, and which calls stay open."""

from dataclasses import replace

import pytest
from pydantic_ai import ToolApproved, ToolDenied
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturn, ToolReturnPart

from tests.support.histories import asks, call, result, returns, says, texts
from tests.support.strict import refusals
from threadhold.runner.decisions import DecisionKind, RequestKind
from threadhold.runner.history import NOT_EXECUTED, OUTCOME_UNKNOWN, REJECTED, continuable, open_calls
from threadhold.runner.ledger import EMPTY, Answer, Answered, Fate, Finished, Ledger, NeverStarted, Unknown


def answer(
    decision: DecisionKind, request: RequestKind = "approval", *, id: str = "a", **what: object
) -> Answered:
    """How somebody answered the request of a call."""
    return Answered(Answer(call=id, request=request, decision=decision, **what))  # type: ignore[arg-type]


def closed(fate: Fate, *, resuming: bool = False) -> list[tuple[str, object]]:
    """Return how a call is closed of which this is known."""
    ledger = Ledger({"a": (fate,)})
    messages = continuable([asks("go"), says(call("a"))], ledger, resuming=resuming).messages
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [(part.outcome, part.content) for part in parts]


@pytest.mark.parametrize(
    ("fate", "outcome", "content"),
    [
        (NeverStarted(), "interrupted", NOT_EXECUTED),
        (Unknown(), "interrupted", OUTCOME_UNKNOWN),
        (Finished("ok", {"sum": 3}), "success", {"sum": 3}),
        (Finished("retry", "again"), "retried", "again"),
        (Finished("failed", "broken"), "failed", "broken"),
        (Finished("denied", "no"), "denied", "no"),
        (answer("approve"), "interrupted", NOT_EXECUTED),
        (answer("edit", args={"x": 1}), "interrupted", NOT_EXECUTED),
        (answer("reject", reason="too dear"), "denied", "too dear"),
        (answer("reject"), "denied", REJECTED),
        (answer("reply", "question", value="blue"), "success", "blue"),
    ],
)
def test_a_call_is_closed_with_what_is_known_of_it(fate: Fate, outcome: str, content: object) -> None:
    assert closed(fate) == [(outcome, content)]
    # When the same run goes on, what was decided is carried out instead.
    assert closed(fate, resuming=True) == ([] if isinstance(fate, Answered) else [(outcome, content)])


@pytest.mark.parametrize(
    ("fate", "decided"),
    [
        (answer("approve"), ToolApproved()),
        (answer("edit", args={"x": 1}), ToolApproved(override_args={"x": 1})),
        (answer("reject", reason="too dear"), ToolDenied("too dear")),
        (answer("reject"), ToolDenied(REJECTED)),
        (answer("reply", "question", value="blue"), ToolReturn("blue")),
        (answer("reply", "external", value={"kind": "tool-denied"}), ToolReturn({"kind": "tool-denied"})),
        (answer("reject", "external", reason="expired"), ToolFailed("expired")),
        (answer("reject", "question"), ToolFailed(REJECTED)),
    ],
)
def test_what_was_decided_is_handed_on(fate: Fate, decided: object) -> None:
    on = continuable([asks("go"), says(call("a"))], Ledger({"a": (fate,)}), resuming=True)
    assert on.results is not None
    assert [*on.results.approvals.values(), *on.results.calls.values()] == [decided]


def test_siblings_of_a_call_that_waits_are_closed_and_keep_their_results() -> None:
    history: list[ModelMessage] = [asks("go"), says(*map(call, "abcd")), returns(result("b"))]
    fates: dict[str, tuple[Fate, ...]] = {
        "a": (answer("approve"),),
        "c": (Finished("ok", 3),),
        "d": (Unknown(),),
    }
    on = continuable(history, Ledger(fates), resuming=True)
    assert on.results is not None
    assert list(on.results.approvals) == ["a"]
    assert texts(on.messages, ToolReturnPart) == ["result of b", 3, OUTCOME_UNKNOWN]


def test_an_answer_to_a_call_of_an_earlier_response_is_not_carried_out() -> None:
    history: list[ModelMessage] = [
        asks("go"),
        says(call("a")),
        asks("never mind"),
        says("Fine."),
        asks("more"),
    ]
    on = continuable(history, Ledger({"a": (answer("approve"),)}), resuming=True)
    assert on.results is None
    assert texts(on.messages, ToolReturnPart) == [NOT_EXECUTED]


def test_calls_of_one_response_with_one_id_are_not_carried_out() -> None:
    history: list[ModelMessage] = [asks("go"), says(call("a"), call("a"))]
    on = continuable(history, Ledger({"a": (answer("approve"), answer("approve"))}), resuming=True)
    assert on.results is None
    assert refusals(on.messages) == []


def test_text_that_was_cut_off_is_there_for_a_new_message_and_gone_when_the_run_goes_on() -> None:
    history: list[ModelMessage] = [asks("tell"), says("Once upon", cut_off=True)]
    assert texts(continuable(history).messages, TextPart) == ["Once upon"]
    assert continuable(history).messages[-1].state == "interrupted"
    assert continuable(history, resuming=True).messages == history[:1]
    # It was said anew: who comes later is not shown it twice.
    anew = [*history, says("Once upon a time"), asks("more")]
    assert texts(continuable(anew).messages, TextPart) == ["Once upon a time"]


def test_a_call_that_was_cut_off_was_never_made_whatever_its_id_was_used_for_before() -> None:
    cut_off = says("I add", call("a"), cut_off=True)
    history: list[ModelMessage] = [asks("go"), says(call("a")), returns(result("a")), cut_off]
    assert open_calls(history) == []
    messages = continuable(history, Ledger({"a": (Finished("ok", "old"),)})).messages
    assert texts(messages, ToolReturnPart) == ["result of a", NOT_EXECUTED]


def test_a_result_belongs_to_the_newest_call_with_its_id() -> None:
    history: list[ModelMessage] = [
        asks("go"),
        says(call("a")),
        asks("again"),
        says(call("a")),
        returns(result("a")),
        asks("so?"),
    ]
    messages = continuable(history, Ledger({"a": (Finished("ok", "lost"), Unknown())})).messages
    assert texts(messages, ToolReturnPart) == ["lost", "result of a"]
    calls = [c.tool_call_id for m in messages if isinstance(m, ModelResponse) for c in m.tool_calls]
    assert calls == ["a_1", "a"]


def test_calls_of_one_response_with_one_id_get_their_results_in_order() -> None:
    history: list[ModelMessage] = [
        asks("go"),
        says(call("a"), call("a")),
        returns(result("a", 1), result("a", 2)),
    ]
    messages = continuable([*history, returns(result("a", 3)), asks("more")]).messages
    assert texts(messages, ToolReturnPart) == [1, 2]


def test_a_call_that_was_cut_off_before_it_had_a_name_is_left_out() -> None:
    history: list[ModelMessage] = [asks("go"), says("I", call("a", tool=""), cut_off=True)]
    assert texts(continuable(history).messages, ToolReturnPart) == []


def test_a_call_of_a_special_kind_is_closed_as_one() -> None:
    special = replace(call("a"), tool_kind="mine")
    *_, closing = continuable([asks("go"), says(special)]).messages
    assert [part.tool_kind for part in closing.parts if isinstance(part, ToolReturnPart)] == ["mine"]


def test_an_id_that_is_changed_is_not_one_that_occurs() -> None:
    history: list[ModelMessage] = [asks("go")]
    for id in ("a", "a_1", "a"):
        history += [says(call(id)), returns(result(id))]
    messages = continuable(history).messages
    calls = [c.tool_call_id for m in messages if isinstance(m, ModelResponse) for c in m.tool_calls]
    assert calls == ["a_1_", "a_1", "a"]


def test_a_result_without_a_call_is_left_out() -> None:
    history: list[ModelMessage] = [
        asks("go"),
        returns(result("x")),
        says("Gone."),
        returns(result("y")),
        asks("more"),
    ]
    assert texts(continuable(history).messages, ToolReturnPart) == []
    assert len(continuable(history).messages) == 3


def test_only_calls_without_a_result_are_looked_up() -> None:
    history: list[ModelMessage] = [
        asks("go"),
        says(call("b"), call("a")),
        returns(result("b")),
        says(call("c"), cut_off=True),
    ]
    assert open_calls(history) == ["a"]
    assert open_calls(continuable(history, EMPTY).messages) == []


def test_a_thread_without_a_history_begins_with_nothing() -> None:
    assert continuable([]).messages == []
    assert continuable([], resuming=True).messages == []
