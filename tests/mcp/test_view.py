"""What a tool tells of a thread, from its frames alone."""

from typing import Any

from threadhold.adapters.mcp.view import EVENTS_MAX, TEXT_CHARS_MAX, View
from threadhold.fanout.frame import Frame, Kind

RUN, OTHER = "run-1", "run-2"


def frame(kind: Kind, seq: int, data: dict[str, Any], *, run: str | None = RUN, n: int = 0) -> Frame:
    """Return a frame."""
    return Frame(thread="t", run=run, fence=1, n=n, seq=seq, kind=kind, at="now", data=data)


def fact(seq: int, kind: str, *, run: str | None = RUN, **data: Any) -> Frame:
    """Return a fact."""
    return frame("fact", seq, {"fact": kind, **data}, run=run)


def begun(text: str, *, seq: int = 1, run: str = RUN) -> Frame:
    """Return the beginning of a response."""
    data = {"event_kind": "part_start", "index": 0, "part": {"part_kind": "text", "content": text}}
    return frame("event", seq, data, run=run, n=1)


def more(text: str, *, seq: int = 1, run: str = RUN) -> Frame:
    """Return more of a response."""
    delta = {"part_delta_kind": "text", "content_delta": text}
    return frame("event", seq, {"event_kind": "part_delta", "index": 0, "delta": delta}, run=run, n=2)


def seen(*frames: Frame, **options: Any) -> View:
    """Return a view that has taken in frames."""
    view = View("t", **{"cursor": None, **options})
    for each in frames:
        view.feed(each, f"c{each.seq}")
    return view


def test_text_grows_and_is_replaced_by_the_whole_of_it() -> None:
    assert seen(begun("a"), more("b")).text == "ab"
    assert seen(begun("a"), fact(2, "model_called", text="abc")).text == "abc"
    assert seen(fact(2, "model_called", text="abc"), begun("d", seq=2)).text == "abc\n\nd"


def test_a_view_that_begins_in_the_middle_tells_the_rest_only() -> None:
    assert seen(more("c"), fact(2, "model_called", text="abc")).text == "c"
    assert seen(more("x"), fact(2, "model_called", text="abc")).text == "abc"
    assert seen(begun("c"), fact(2, "model_called", text="abc")).text == "abc"


def test_a_hole_leaves_no_text_that_reads_as_if_it_were_whole() -> None:
    gap = frame("gap", 1, {"reason": "lost"})
    assert seen(begun("a"), gap, more("c")).text == "a"
    assert seen(begun("a"), gap, more("c"), fact(2, "model_called", text="abc")).text == "abc"


def test_what_was_said_before_the_cursor_is_old_news() -> None:
    assert seen(begun("old", seq=3), more("new", seq=4), cursor="4-0-0").text == "new"


def test_text_that_comes_after_its_own_fact_is_old_news() -> None:
    late = [begun("Hel"), fact(3, "model_called", text="Hello"), more("lo", seq=2)]
    assert seen(*late).text == "Hello"
    assert seen(*late, begun("Next", seq=3)).text == "Hello\n\nNext"
    assert seen(begun("a"), fact(2, "attempt_closed", text="withdrawn"), more("b", seq=1)).text == ""


def test_an_attempt_that_is_taken_back_takes_its_text_along() -> None:
    assert seen(begun("a"), fact(2, "attempt_closed", text="withdrawn")).text == ""
    assert seen(begun("a"), frame("attempt", 1, {})).text == ""


def test_only_the_end_of_its_own_run_settles_it() -> None:
    ended = fact(5, "run_ended", status="completed", output="x")
    assert seen(ended, run=RUN).settled
    assert (seen(ended).settled, seen(ended).status) == (False, "running")
    assert not seen(fact(5, "run_ended", run=OTHER, status="failed"), run=RUN).settled
    view = seen(ended, frame("end", 5, {"state": "idle"}, run=None))
    assert (view.settled, view.status, view.output) == (True, "completed", "x")


def test_what_an_earlier_run_left_is_not_the_next_ones() -> None:
    frames = [fact(5, "run_ended", status="failed", error={}), fact(6, "run_started", run=OTHER)]
    view = seen(*frames, fact(7, "run_ended", run=OTHER, status="stopped", reason="person"))
    view.feed(frame("end", 7, {"state": "idle"}, run=None), "c7")
    assert (view.run, view.status, view.reason, view.error) == (OTHER, "stopped", "person", None)
    lost = seen(*frames, frame("end", 7, {"state": "idle"}, run=None))
    assert (lost.run, lost.status) == (OTHER, "idle")


def test_a_pause_in_the_past_does_not_settle_it() -> None:
    assert not seen(fact(3, "paused", requests=1)).settled
    view = seen(fact(3, "paused", requests=1), frame("end", 3, {"state": "paused"}, run=None))
    assert (view.settled, view.status) == (True, "paused")


def test_a_thread_that_rests_without_a_run_is_idle() -> None:
    assert seen(frame("end", 0, {"state": "idle"}, run=None)).status == "idle"


def test_a_waiting_message_makes_the_run_that_takes_it_its_own() -> None:
    first = [begun("not mine"), fact(3, "run_ended", status="completed", output="not mine")]
    view = seen(*first, message="m")
    assert (view.run, view.text, view.output, view.is_waiting, view.cursor) == (None, "", None, True, "c3")
    taken = [fact(4, "message_delivered", run=OTHER, message="m"), begun("mine", seq=4, run=OTHER)]
    ended = fact(5, "run_ended", run=OTHER, status="completed", output="mine")
    view = seen(*first, *taken, ended, message="m")
    assert (view.run, view.text, view.output, view.settled) == (OTHER, "mine", "mine", True)


def test_a_message_that_was_given_back_is_told() -> None:
    view = seen(fact(3, "message_returned", message="m", reason="stopped"), message="m")
    assert (view.settled, view.note) == (True, "the message was not read (stopped)")
    view = seen(fact(3, "message_returned", message="m"), run=RUN, message="m")
    assert (view.settled, view.note) == (False, "the message was not read (its run was stopped)")


def test_text_and_events_are_bounded() -> None:
    long = "x" * (TEXT_CHARS_MAX - 1)
    view = seen(begun(long), more("yz"), fact(2, "model_called", text=long + "yz"), begun("!", seq=2))
    assert len(view.text) == TEXT_CHARS_MAX
    assert view.text.startswith("…")
    assert view.text.endswith("yz\n\n!")
    many = [fact(seq, "tool_called") for seq in range(EVENTS_MAX)]
    assert seen(*many, with_events=True).settled
    assert not seen(*many[1:], with_events=True).settled
    assert seen(*many).events == []
    assert seen(fact(1, "tool_returned", result="x" * 70_000), with_events=True).settled
