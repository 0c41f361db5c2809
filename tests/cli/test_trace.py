"""The lines of `tail`."""

from typing import Any

import pytest

from tests.cli.frames import delta, fact, frame, start
from threadhold.adapters.cli.trace import WIDTH_MAX, trace_line


def test_a_fact_shows_its_seq_its_kind_and_what_it_says() -> None:
    line = trace_line(fact(12, "run_ended", status="failed", reason="error", error=None))
    assert line == ('12:00:00.000      #12 run_ended          status="failed" reason="error"', "bold")


def test_a_live_frame_shows_its_number() -> None:
    line = trace_line(delta(3, "Hi\n"))
    assert line is not None
    assert line[0].split(maxsplit=2)[1:] == ["~3", 'part_delta         "Hi\\n"']
    begun = trace_line(start(2, "Hi"))
    assert begun is not None
    assert begun[0].endswith('text content="Hi"')


def test_heartbeats_are_left_out_and_long_lines_cut() -> None:
    assert trace_line(frame("head", {"state": "idle"}, seq=3)) is None
    line = trace_line(fact(1, "message_accepted", content="x" * 5000))
    assert line is not None
    assert len(line[0]) == WIDTH_MAX


def test_a_draft_says_its_name_first() -> None:
    told = {"done": 1, "total": 2, "event_kind": "custom", "name": "progress", "tool_name": "work"}
    line = trace_line(frame("draft", told, seq=3, n=4))
    assert line == (
        '12:00:00.000       ~4 draft              name="progress" done=1 total=2 tool_name="work"',
        "cyan",
    )


def test_a_gap_stands_out() -> None:
    assert trace_line(frame("gap", {"reason": "lost"}, seq=3)) == (
        '12:00:00.000       #3 gap                reason="lost"',
        "yellow",
    )


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (
            "request_opened",
            {"args_hash": "ff", "request": "q", "args": {"a": 1}, "tool": "pay", "kind": "approval"},
            'kind="approval" tool="pay" args={"a": 1} request="q" args_hash="ff"',
        ),
        (
            "request_answered",
            {"call_id": "c", "tool": "pay", "reason": "no", "decision": "reject", "by": "ada"},
            'by="ada" decision="reject" tool="pay" reason="no" call_id="c"',
        ),
        (
            "attempt_closed",
            {"worker": "w", "text": "withdrawn", "cause": "drain", "outcome": "handed_over", "attempt": 1},
            'attempt=1 outcome="handed_over" cause="drain" text="withdrawn" worker="w"',
        ),
        ("paused", {"requests": 2}, "requests=2"),
        (
            "run_replayed",
            {"checkpoint": "r.2", "origin": "r", "by": "ada"},
            'by="ada" origin="r" checkpoint="r.2"',
        ),
        (
            "member_changed",
            {"by": "ada", "access": "read", "before": None, "member": "bob"},
            'by="ada" member="bob" access="read"',
        ),
        # It says something that there is none any more.
        (
            "member_changed",
            {"by": "ada", "access": None, "before": "write", "member": "bob"},
            'by="ada" member="bob" access=null before="write"',
        ),
    ],
)
def test_the_most_telling_comes_first(kind: str, data: dict[str, Any], said: str) -> None:
    line = trace_line(fact(4, kind, **data))
    assert line is not None
    assert line[0].split(maxsplit=3)[2:] == [kind, said]
