"""Outlines and histories, as text."""

from datetime import timedelta
from typing import Any

import pytest

from tests.http.records import NOW, attempt_of, run_of, why_of
from threadhold.adapters.cli.outline import run_lines, thread_lines
from threadhold.adapters.cli.tables import member_row, state_of
from threadhold.adapters.cli.trace import fact_line
from threadhold.adapters.cli.transcript import transcript
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Fact, Member, Thread
from threadhold.runner.steps import Call, Step

LATER = NOW + timedelta(hours=2)


def step_of(seq: int, **changes: Any) -> Step:
    """Return an answer of the first attempt."""
    given: dict[str, Any] = {
        "seq": seq, "fence": 1, "model": "m", "state": "complete", "text": "", "calls": (), "input_tokens": 50,
        "output_tokens": 8, "latency_ms": None, "cost": None, "cost_total": None, "at": NOW,
    }  # fmt: skip
    return Step(**(given | changes))


def call_of(id: str, seq: int, **changes: Any) -> Call:
    """Return a call that has returned."""
    given: dict[str, Any] = {
        "id": id, "tool": "pay", "args": {"euros": 5}, "seq": seq, "state": "finished", "outcome": "ok",
        "result": None, "error": None, "request": None, "ms": None, "asked_at": NOW, "started_at": NOW,
        "ended_at": NOW,
    }  # fmt: skip
    return Call(**(given | changes))


def thread_of(**changes: Any) -> Thread:
    """Return an idle thread."""
    given: dict[str, Any] = {
        "id": "t", "workspace": "w", "owner": "ada", "agent": "support", "title": None, "metadata": {},
        "state": "idle", "status": "active", "current_run": None, "seq": 0, "created_at": NOW, "updated_at": NOW,
    }  # fmt: skip
    return Thread(**(given | changes))


def test_a_run_is_a_tree_of_attempts_answers_and_calls() -> None:
    steps = [
        step_of(4, text="Let me\nsee.", latency_ms=820.4, cost="0.01", calls=("c1", "c2")),
        step_of(9, fence=2, model=None, state="interrupted"),
    ]
    calls = [
        call_of("c1", 4, result={"paid": 5}, ms=12.2),
        call_of("c2", 4, outcome="retry", error="too much"),
        call_of("c3", 9, state="unknown", outcome=None),
    ]
    run = run_of("r", status=RunStatus.FAILED, reason="abandoned", ended_at=NOW)
    first = attempt_of(1)
    second = attempt_of(2, outcome=None, cause=None, closed_at=None)
    lines = [text for text, _ in run_lines(why_of(run, attempts=(first, second)), steps, calls, LATER)]
    assert lines == [
        "run r",
        "  thread    t",
        "  agent     support",
        "  principal local",
        "  status    failed: abandoned",
        "  made      2026-03-01 12:00:00 UTC, 2 h ago",
        "  started   2026-03-01 12:00:00 UTC, 2 h ago",
        "  ended     2026-03-01 12:00:00 UTC, 2 h ago",
        "attempt 1  12:00:00 to 12:00:00  w1-0123456789ab  handed over to another worker (drain)",
        "  #4  12:00:00  m: 50 tokens in, 8 out, 820 ms, 0.01 dollars",
        "    Let me see.",
        "    -> pay(euros=5): done, 12 ms",
        '       <- {"paid": 5}',
        "    -> pay(euros=5): refused",
        "       <- too much",
        "attempt 2  12:00:00 to now       w1-0123456789ab  in progress",
        "  #9  12:00:00  model: 50 tokens in, 8 out, interrupted",
        "    -> pay(euros=5): with an unknown outcome",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": "waiting", "request": "q1"}, "waits for request q1"),
        ({"state": "never_started", "outcome": None}, "never started"),
        ({"state": "still_running", "outcome": None}, "not finished"),
        ({"outcome": "denied"}, "denied"),
        ({"outcome": "failed", "ms": 3.0}, "failed, 3 ms"),
    ],
)
def test_a_call_says_what_became_of_it(changes: dict[str, Any], said: str) -> None:
    why = why_of(run_of(), attempts=(attempt_of(1),))
    lines = [text for text, _ in run_lines(why, [step_of(4)], [call_of("c", 4, **changes)], LATER)]
    assert lines[-1] == f"    -> pay(euros=5): {said}"


def test_a_thread_says_only_what_it_has() -> None:
    bare = [text for text, _ in thread_lines(thread_of(), LATER)]
    assert [line.split()[0] for line in bare] == [
        "thread",
        "agent",
        "owner",
        "state",
        "facts",
        "made",
        "changed",
    ]
    full = thread_of(title="Lamps", metadata={"order": "ü"}, status="archived", current_run="r")
    told = [text for text, _ in thread_lines(full, LATER)]
    assert "  title     Lamps" in told
    assert '  metadata  {"order": "ü"}' in told
    assert "  run       r" in told
    assert state_of(full) == "idle, archived"


def test_a_member_says_what_it_may() -> None:
    member = Member(principal="bob", access="write", added_by="ada", added_at=NOW)
    assert member_row(member, LATER) == ("bob", "read and write", "ada", "2 h ago")


def test_a_fact_looks_as_it_does_to_a_watcher() -> None:
    data = {"request": "q", "tool": "pay", "kind": "approval"}
    fact = Fact(seq=7, run="r", fence=1, kind="request_opened", data=data, at=NOW)
    assert (
        fact_line(fact) == '12:00:00.000       #7 request_opened     kind="approval" tool="pay" request="q"'
    )


def test_a_history_is_told_part_by_part() -> None:
    asked = {
        "kind": "request",
        "parts": [
            {"part_kind": "system-prompt", "content": "Be kind."},
            {"part_kind": "user-prompt", "content": "two\nlines"},
            {"part_kind": "user-prompt", "content": ["see", {"url": "x"}]},
            {"part_kind": "tool-return", "tool_name": "pay", "content": {"paid": 5}},
            {"part_kind": "retry-prompt", "tool_name": "pay", "content": "too much"},
            {"part_kind": "retry-prompt", "tool_name": None, "content": "no text"},
        ],
    }
    said = {
        "kind": "response",
        "parts": [
            {"part_kind": "thinking", "content": "so\nso"},
            {"part_kind": "text", "content": "Done."},
            {"part_kind": "tool-call", "tool_name": "pay", "args": '{"euros": 5}'},
            {"part_kind": "file", "content": {}},
            7,
        ],
    }
    told = [piece for message in (asked, said) for piece in transcript(message)]
    assert "".join(piece.text for piece in told).splitlines() == [
        "system: Be kind.",
        "user: two",
        "lines",
        'user: ["see", {"url": "x"}]',
        '<- {"paid": 5}',
        "<- pay refused: too much",
        "<- the answer refused: no text",
        "(thinks: so so)",
        "Done.",
        "-> pay(euros=5)",
        "(file)",
        "(something else)",
    ]
    assert [list(transcript(odd)) for odd in (None, {"parts": 7}, {})] == [[], [], []]
