"""Why a run stands where it stands, as somebody on call reads it."""

from datetime import timedelta
from typing import Any

import pytest

from tests.http.records import NOW, attempt_of, request_of, run_of, why_of
from threadhold.adapters.cli.durations import brief
from threadhold.adapters.cli.reasons import CAUSES, sentences
from threadhold.runner.machine import AttemptOutcome, RunStatus
from threadhold.runner.records import Run, Why

LATER = NOW + timedelta(minutes=5)
LOST: dict[str, Any] = {
    "cause": "killed", "worker": "w0-aa", "attempt": 1, "retried": 0, "last_seq": 17, "lease_age_s": 61.5,
    "silent_s": 3.2, "unknown_calls": [{"call_id": "call-1", "tool": "pay"}], "at": "2026-03-01T12:00:30+00:00",
    "spend": {"model_calls": 3, "input_tokens": 1200, "output_tokens": 80, "cost": "0.0125"},
}  # fmt: skip


def text(run: Run, **changes: Any) -> str:
    return told(why_of(run, **changes))


def told(why: Why) -> str:
    return "\n".join(sentences(why, LATER))


def test_a_running_run_says_who_holds_it_and_for_how_long() -> None:
    said = text(run_of())
    assert "Run run-1 of agent support, for local, on thread t." in said
    assert "running on worker w1-0123456789ab, which holds it since 12:00:00" in said
    assert "good for 12 s more" in said
    assert "  1  12:00:00 to now       w1-0123456789ab  in progress" in said


def test_a_claim_that_has_run_out_says_that_its_worker_seems_gone() -> None:
    claim = {"worker": "w1", "acquired_at": str(NOW), "expires_in_s": -2.5}
    gone = "Its claim ran out 2.5 s ago: the worker seems to be gone."
    assert f"{gone} Others take over soon." in text(run_of(), claim=claim)
    assert f"{gone} No other one has the agent: start one." in text(run_of(), claim=claim, has_worker=False)
    assert "nobody holds it any more" in text(run_of(), claim=None)


def test_a_pending_run_says_whether_anybody_could_take_it() -> None:
    pending = run_of(status=RunStatus.PENDING, attempt=0)
    assert "no worker that is up has the agent 'support'" in text(pending, has_worker=False)
    busy = text(pending)
    assert "It waits to be started; asked for 5 min ago." in busy
    assert busy.endswith("No worker has taken it so far.")
    assert "started again (attempt 3)" in text(run_of(status=RunStatus.PENDING, attempt=2))


def test_a_paused_run_says_what_it_waits_for_and_how_to_answer() -> None:
    asked = request_of(other_only=True, approvers=("bob", "eve"), expires_at=LATER + timedelta(hours=2))
    answered = request_of("q2", tool="other", status="answered")
    said = text(run_of(status=RunStatus.PAUSED), requests=(asked, answered))
    assert (
        '  approval refund(order="A-1003", euros=240), asked 5 min ago; only by bob, eve; not by ada; '
        "denied by itself in 2 h\n"
    ) in said
    assert "answer request-1 --approve | --edit JSON | --reject [REASON]" in said
    assert "other(" not in said


def test_a_question_may_be_answered_by_whoever_caused_it_whatever_its_terms_say_of_others() -> None:
    asked = request_of(kind="question", other_only=True)
    said = text(run_of(status=RunStatus.PAUSED), requests=(asked,))
    assert "asked 5 min ago\n" in said
    assert "not by" not in said


def test_an_ended_run_says_how_and_why() -> None:
    failed = run_of(
        status=RunStatus.FAILED, reason="error", error={"type": "ValueError", "message": "boom"}, ended_at=NOW
    )
    assert "It failed (error) at 12:00:00, 5 min ago: boom." in text(failed)
    assert "It completed at 12:00:00" in text(run_of(status=RunStatus.COMPLETED, ended_at=NOW))


def test_a_stop_says_who_asked_for_it() -> None:
    stop = {"by": "ada", "scope": "run", "reason": "person", "at": "2026-03-01T12:04:00+00:00"}
    running = text(run_of(), stop=stop)
    assert "ada asked to stop it at 12:04:00; it has not ended yet." in running
    stopped = run_of(status=RunStatus.STOPPED, reason="person", ended_at=NOW)
    whole = text(stopped, stop=stop | {"scope": "thread"})
    assert "It was stopped (person) at 12:00:00" in whole
    assert "ada asked to stop everything on its thread at 12:04:00." in whole
    message = text(stopped, stop=stop | {"reason": "interrupted_by_message"})
    assert "ada asked to stop it by sending a message that interrupts at" in message


def test_a_loss_says_cause_worker_lease_unknown_calls_and_spend() -> None:
    said = text(run_of(attempt=2), lost=(LOST,))
    assert "Attempt 1 was lost at 12:00:30. Worker w0-aa: its process died." in said
    assert (
        "It had held the run for 1 min, silent for the last 3.2 s. The last thing recorded was #17." in said
    )
    assert (
        "Nobody knows whether these tool calls did their work; look at what they act on: pay (call-1)."
        in said
    )
    assert "Spent until then: 3 model calls, 1200 tokens in, 80 out, 0.0125 dollars." in said


def test_a_loss_without_a_call_in_progress_says_that_nothing_is_in_doubt() -> None:
    lost = LOST | {"unknown_calls": [], "lease_age_s": None, "silent_s": None, "spend": {"cost": "0"}}
    said = text(run_of(attempt=2), lost=(lost,))
    assert "No tool was running: nothing was done that is not on record." in said
    assert "dollars" not in said


@pytest.mark.parametrize("cause", ["killed", "lost claim", "storage", "loop blocked", "drain"])
def test_every_cause_is_said_in_words(cause: str) -> None:
    assert CAUSES[cause] in text(run_of(attempt=2), lost=(LOST | {"cause": cause},))


def test_attempts_and_tool_calls_are_listed() -> None:
    attempts = (
        attempt_of(1, outcome=AttemptOutcome.INTERRUPTED, cause=None),
        attempt_of(2),
        attempt_of(3, outcome=AttemptOutcome.COMPLETED, cause=None),
    )
    tools = {"a": "finished", "b": "finished", "c": "unknown", "d": "never_started"}
    said = text(run_of(attempt=3), attempts=attempts, tools=tools)
    assert "  1  12:00:00 to 12:00:00  w1-0123456789ab  paused\n" in said
    assert "  2  12:00:00 to 12:00:00  w1-0123456789ab  handed over to another worker (drain)\n" in said
    assert "  3  12:00:00 to 12:00:00  w1-0123456789ab  completed\n" in said
    assert said.endswith("Tool calls: 2 finished, 1 with an unknown outcome (c), 1 never started.")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"),
        (0.25, "0.2 s"),
        (12.4, "12 s"),
        (78, "1.3 min"),
        (1200, "20 min"),
        (7200, "2 h"),
        (1e6, "12 d"),
    ],
)
def test_durations_are_brief(seconds: float, said: str) -> None:
    assert brief(seconds) == said
