"""What a person reads of a thread: every word once, whatever was lost on the way."""

import pytest

from tests.cli.frames import delta, fact, frame, start
from threadhold.adapters.cli.view import ChatView
from threadhold.fanout.frame import Frame


def shown(*frames: Frame, view: ChatView | None = None) -> str:
    """Return the text of frames, plain."""
    reader = view or ChatView()
    return "".join(piece.text for each in frames for piece in reader.feed(each))


def answered(seq: int, text: str) -> Frame:
    return fact(seq, "model_called", text=text)


def test_tokens_are_shown_as_they_come_and_the_fact_adds_only_the_line_end() -> None:
    view = ChatView()
    assert shown(start(1, "Pa"), delta(2, "ris"), view=view) == "Paris"
    assert shown(answered(3, "Paris"), view=view) == "\n"
    assert shown(fact(4, "run_ended", status="completed"), view=view) == ""


def test_an_answer_that_ends_its_line_gets_no_second_one() -> None:
    assert shown(start(1, "a\n"), answered(3, "a\n"), fact(4, "run_ended", status="completed")) == "a\n"


def test_after_a_gap_the_fact_brings_what_is_missing() -> None:
    lost = frame("gap", {"reason": "lost"}, seq=2)
    assert shown(start(1, "one "), lost, delta(5, "five "), answered(3, "one two three five ")) == (
        "one two three five \n"
    )


def test_without_any_live_frame_the_fact_brings_the_whole_answer() -> None:
    assert shown(frame("gap", {"reason": "lost"}, seq=2), answered(3, "all of it")) == "all of it\n"
    assert shown(answered(3, "all of it")) == "all of it\n"


def test_a_gap_before_a_new_response_does_not_keep_it_from_streaming() -> None:
    view = ChatView()
    shown(start(1, "a"), answered(3, "a"), frame("gap", {"reason": "lost"}, seq=3), view=view)
    assert shown(start(5, "b", seq=3), view=view) == "b"


def test_deltas_that_come_after_their_fact_are_not_shown_again() -> None:
    view = ChatView()
    assert shown(start(1, "one "), answered(3, "one two"), view=view) == "one two\n"
    assert shown(delta(2, "two"), view=view) == ""
    assert shown(start(3, "next", seq=3), view=view) == "next"


def test_a_watch_that_began_in_the_middle_is_not_told_the_end_twice() -> None:
    assert shown(delta(7, "the end"), answered(3, "from the start to the end")) == "the end\n"


def test_what_does_not_fit_the_fact_is_followed_by_what_was_really_said() -> None:
    assert shown(delta(7, "xyz"), answered(3, "abc")) == "xyz\nabc\n"


def test_a_model_that_is_asked_again_begins_a_new_line() -> None:
    assert shown(start(1, "half"), start(2, "whole"), answered(3, "whole")) == "half\nwhole\n"


def test_thinking_is_not_shown() -> None:
    assert shown(start(1, "hm", kind="thinking"), start(2, "yes", index=1), answered(3, "yes")) == "yes\n"


def test_tool_calls_are_lines_of_their_own() -> None:
    text = shown(
        start(1, "Let me look."),
        answered(3, "Let me look."),
        fact(4, "tool_called", call_id="c", tool="lookup", args='{"order": "A-1", "deep": true}'),
        fact(5, "tool_returned", call_id="c", tool="lookup", outcome="ok", result={"item": "lamp"}),
    )
    assert text == 'Let me look.\n-> lookup(order="A-1", deep=true)\n<- {"item": "lamp"}\n'


@pytest.mark.parametrize(
    ("outcome", "said"), [("retry", "refused"), ("failed", "failed"), ("denied", "was denied")]
)
def test_a_tool_that_did_not_do_it_says_so(outcome: str, said: str) -> None:
    returned = fact(5, "tool_returned", call_id="c", tool="refund", outcome=outcome, error="too\nmuch")
    assert shown(returned) == f"<- refund {said}: too much\n"


def test_long_arguments_and_results_are_cut() -> None:
    assert len(shown(fact(4, "tool_called", tool="t", args={"x": "y" * 9999}))) < 200
    assert len(shown(fact(5, "tool_returned", tool="t", outcome="ok", result="y" * 9999))) < 300
    assert shown(fact(4, "tool_called", tool="t", args="not json")) == "-> t(not json)\n"


def test_a_failed_run_says_why_in_red() -> None:
    view = ChatView()
    shown(start(1, "I was abo"), view=view)
    pieces = view.feed(
        fact(4, "run_ended", status="failed", reason="error", error={"type": "ValueError", "message": "boom"})
    )
    assert [piece.text for piece in pieces] == ["\n", "the run failed (error): boom\n"]
    assert pieces[-1].style == "error"
    assert view.failed
    assert not view.busy


def test_the_next_run_is_not_failed_any_more() -> None:
    view = ChatView()
    shown(fact(4, "run_ended", status="failed", reason="abandoned"), fact(5, "run_started"), view=view)
    assert not view.failed
    assert view.busy


@pytest.mark.parametrize(
    ("reason", "said"),
    [("person", "(stopped)"), ("interrupted_by_message", "(stopped: interrupted_by_message)")],
)
def test_a_stopped_run_keeps_its_partial_answer(reason: str, said: str) -> None:
    assert shown(start(1, "part"), fact(4, "run_ended", status="stopped", reason=reason)) == f"part\n{said}\n"


def test_ones_own_message_is_not_repeated_but_another_persons_is_shown() -> None:
    view = ChatView()
    view.expect("hi")
    assert view.busy
    assert shown(fact(1, "message_accepted", message="m1", by="me", content="hi"), view=view) == ""
    assert (
        shown(fact(2, "message_accepted", message="m2", by="alice", content="hi"), view=view) == "alice: hi\n"
    )


def test_a_refused_message_is_not_waited_for() -> None:
    view = ChatView()
    view.expect("hi")
    view.forget("hi")
    assert not view.busy
    assert shown(fact(1, "message_accepted", by="alice", content="hi"), view=view) == "alice: hi\n"


def test_a_message_that_is_refused_while_a_run_is_on_leaves_it_on() -> None:
    view = ChatView()
    shown(fact(1, "run_started"), view=view)
    view.expect("hi")
    view.forget("hi")
    assert view.busy


@pytest.mark.parametrize(("heard", "busy"), [("run_started", True), ("run_ended", False)])
def test_what_was_heard_while_a_message_was_refused_counts(heard: str, busy: bool) -> None:
    view = ChatView()
    view.busy = not busy
    view.expect("hi")
    shown(fact(1, heard, status="completed"), view=view)
    assert view.busy is busy
    view.forget("hi")
    assert view.busy is busy


def test_a_returned_message_is_told() -> None:
    assert "was not read (stopped)" in shown(fact(5, "message_returned", message="m", reason="stopped"))


def test_another_worker_that_carries_on_begins_a_new_line() -> None:
    again = frame("attempt", {"attempt": 2}, seq=4, n=1, fence=2)
    text = shown(start(1, "first half"), again, fact(5, "attempt_started", attempt=2), start(2, "x", seq=5))
    assert text == "first half\n(another worker carries on)\nx"


def test_heads_tell_whether_the_thread_is_busy() -> None:
    view = ChatView()
    assert shown(frame("head", {"state": "busy"}, seq=1), view=view) == ""
    assert view.busy
    assert shown(frame("end", {"state": "idle"}, seq=1), view=view) == ""
    assert not view.busy


def test_a_pause_is_told() -> None:
    assert "waits for an answer" in shown(fact(4, "paused"))


def opened(seq: int, id: str, kind: str = "approval") -> Frame:
    return fact(
        seq, "request_opened", request=id, kind=kind, tool="refund", args={"euros": 5}, args_hash="ff"
    )


def settled(seq: int, id: str, decision: str, **said: object) -> Frame:
    return fact(seq, "request_answered", request=id, tool="refund", by="ada", decision=decision, **said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("approval", "asks to allow: refund(euros=5)\n"),
        ("question", "asks: refund(euros=5)\n"),
        ("external", "waits for: refund(euros=5)\n"),
    ],
)
def test_what_a_run_waits_for_is_shown_and_kept(kind: str, said: str) -> None:
    view = ChatView()
    deferred = fact(3, "tool_returned", call_id="c", tool="refund", outcome="deferred")
    assert shown(deferred, opened(4, "q", kind), fact(5, "paused", requests=1), view=view) == (
        f"{said}(paused: the run waits for an answer)\n"
    )
    assert [(each.id, each.args, each.args_hash) for each in view.open.values()] == [
        ("q", {"euros": 5}, "ff")
    ]
    assert not view.busy


@pytest.mark.parametrize(
    ("decision", "told", "said"),
    [
        ("approve", {}, "(ada allowed refund)\n"),
        ("edit", {"args": {"euros": 4}}, '(ada allowed, with changes, refund: {"euros": 4})\n'),
        ("reject", {}, "(ada rejected refund)\n"),
        ("reject", {"reason": "too much"}, "(ada rejected refund: too much)\n"),
        ("reply", {"value": {"size": "XL"}}, '(ada answered refund: {"size": "XL"})\n'),
        ("cancelled", {}, "(refund is not asked for any more)\n"),
    ],
)
def test_who_decided_what_is_shown(decision: str, told: dict[str, object], said: str) -> None:
    view = ChatView()
    shown(opened(4, "q"), fact(5, "paused", requests=1), view=view)
    assert shown(settled(6, "q", decision, **told), view=view) == said
    assert view.open == {}
    assert view.busy


def test_a_run_goes_on_when_the_last_answer_is_given_and_that_is_no_other_worker_to_the_reader() -> None:
    view = ChatView()
    shown(opened(4, "a"), opened(5, "b"), fact(6, "paused", requests=2), view=view)
    one = (shown(settled(7, "a", "approve"), view=view), view.busy)
    both = (shown(settled(8, "b", "approve"), view=view), view.busy)
    assert one == ("(ada allowed refund) (1 more to answer)\n", False)
    assert both == ("(ada allowed refund)\n", True)
    assert shown(fact(9, "attempt_started", attempt=2), start(1, "so", seq=9), view=view) == "so"


def test_a_call_that_goes_on_when_it_is_allowed_is_shown_once() -> None:
    view = ChatView()
    called = {"call_id": "c", "tool": "refund", "args": {"euros": 5}}
    asked = shown(
        fact(2, "run_started"),
        fact(3, "tool_called", **called),
        fact(4, "tool_returned", call_id="c", tool="refund", outcome="deferred"),
        opened(5, "q"),
        fact(6, "paused", requests=1),
        view=view,
    )
    assert asked == (
        "-> refund(euros=5)\nasks to allow: refund(euros=5)\n(paused: the run waits for an answer)\n"
    )
    went_on = shown(
        settled(7, "q", "approve"),
        fact(8, "attempt_started", attempt=2),
        fact(9, "tool_called", **called),
        fact(10, "tool_returned", call_id="c", tool="refund", outcome="ok", result="done"),
        fact(11, "run_ended", status="completed"),
        view=view,
    )
    assert went_on == "(ada allowed refund)\n<- done\n"
    # Another run may use the same id for another call, as some models do.
    assert (
        shown(fact(12, "run_started"), fact(13, "tool_called", **called), view=view) == "-> refund(euros=5)\n"
    )


def test_what_was_typed_as_a_reply_is_not_shown_again() -> None:
    view = ChatView()
    shown(opened(4, "q", "question"), fact(5, "paused", requests=1), view=view)
    view.expect("XL")
    accepted = fact(6, "message_accepted", message="m", by="ada", content="XL")
    assert shown(accepted, settled(7, "q", "reply", value="XL"), view=view) == "(ada answered refund)\n"


def test_requests_of_a_run_that_has_ended_are_not_open() -> None:
    view = ChatView()
    shown(opened(4, "q"), fact(5, "paused", requests=1), fact(6, "run_ended", status="stopped"), view=view)
    assert view.open == {}
    assert not view.busy


def test_after_a_paused_run_has_ended_another_worker_that_carries_on_is_told_again() -> None:
    view = ChatView()
    shown(opened(4, "q"), fact(5, "paused", requests=1), settled(6, "q", "cancelled"), view=view)
    shown(fact(7, "run_ended", status="stopped"), fact(8, "run_started"), view=view)
    assert shown(fact(9, "attempt_started", attempt=2), view=view) == "(another worker carries on)\n"


def test_text_that_was_handed_over_half_said_is_taken_back_and_comes_anew() -> None:
    view = ChatView()
    closed = fact(4, "attempt_closed", attempt=1, outcome="handed_over", cause="drain", text="withdrawn")
    text = shown(start(1, "It is 5"), closed, delta(2, "0 eur", seq=2), view=view)
    assert text == "It is 5\n(its worker left; what it was saying comes anew)\n"
    again = (
        fact(5, "attempt_started", attempt=2),
        start(1, "It is 50 euros", seq=5),
        answered(6, "It is 50 euros"),
    )
    assert shown(*again, view=view) == "(another worker carries on)\nIt is 50 euros\n"


def test_a_hand_over_between_two_responses_takes_nothing_back() -> None:
    closed = fact(4, "attempt_closed", attempt=1, outcome="handed_over", cause="drain", text="withdrawn")
    assert shown(start(1, "Done."), answered(3, "Done."), closed) == "Done.\n"
    assert shown(start(1, "Half"), fact(4, "attempt_closed", attempt=1, outcome="interrupted")) == "Half"


def test_facts_and_events_of_a_later_version_are_passed_over() -> None:
    assert shown(fact(4, "something_new"), frame("event", {"event_kind": "new"}, seq=4, n=1)) == ""
    assert shown(frame("draft", {"x": 1}, seq=4, n=2)) == ""
