"""Spans tell who did what to which run, and never what was said."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from tests.metrics.conftest import Process, release
from tests.support.waiting import until
from threadhold.runner import spans


class Seen(NonRecordingSpan):
    """A span that remembers."""

    def __init__(self, name: str, parent: str | None, number: int) -> None:
        super().__init__(SpanContext(1, number, is_remote=False, trace_flags=TraceFlags(1)))
        self.name = name
        self.parent = parent
        self.facts: dict[str, Any] = {}
        self.status: StatusCode | None = None

    def set_attribute(self, key: str, value: Any) -> None:
        self.facts[key] = value

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        assert isinstance(status, Status)
        assert status.description is description is None
        self.status = status.status_code


@dataclass
class Recorder:
    """A tracer that keeps all of its spans, as an SDK's would."""

    spans: list[Seen] = field(default_factory=list)

    @contextmanager
    def start_as_current_span(self, name: str, **options: bool) -> Iterator[Seen]:
        # What an exception says may hold anything.
        assert options == {"record_exception": False, "set_status_on_exception": False}
        parent = trace.get_current_span()
        made = Seen(name, parent.name if isinstance(parent, Seen) else None, len(self.spans) + 1)
        self.spans.append(made)
        with trace.use_span(made, record_exception=False, set_status_on_exception=False):
            yield made

    def named(self, *names: str) -> Sequence[Seen]:
        """Return the spans of these names."""
        return [span for span in self.spans if span.name.removeprefix("threadhold.") in names]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Whatever is traced."""
    made = Recorder()
    monkeypatch.setattr(spans, "tracer", made)
    return made


async def test_a_run_is_traced_from_its_message_to_its_end(
    process: Process, recorder: Recorder, gate: Path
) -> None:
    receipt = await process.send(f"hold {gate} | say secret")
    [sent] = recorder.named("send")
    assert sent.facts == {
        "threadhold.thread": receipt["thread"],
        "threadhold.message": receipt["message"],
        "threadhold.run": receipt["run"],
        "threadhold.disposition": "started",
        "threadhold.duplicate": False,
    }

    async def taken() -> bool:
        return bool(recorder.named("attempt"))

    await until(taken)
    [attempt] = recorder.named("attempt")
    assert "threadhold.outcome" not in attempt.facts
    release(gate)
    await process.rests(receipt["run"])
    await process.shows("runs_in_progress", 0)
    assert attempt.facts == {
        "threadhold.thread": receipt["thread"],
        "threadhold.run": receipt["run"],
        "threadhold.agent": "scripted",
        "threadhold.attempt": 1,
        "threadhold.principal": "local",
        "threadhold.interface": "rest",
        "threadhold.environment": "development",
        "threadhold.outcome": "completed",
    }
    granted = [span for span in recorder.named("claim") if span.facts["threadhold.granted"]]
    assert [span.facts["threadhold.run"] for span in granted] == [receipt["run"]]
    assert "secret" not in str([span.facts for span in recorder.spans])


async def test_pauses_answers_and_stops_are_traced(process: Process, recorder: Recorder) -> None:
    receipt = await process.send('call pay {"amount": 3}')
    await process.rests(receipt["run"])
    await process.shows("runs_in_progress", 0)
    assert recorder.named("attempt")[0].facts["threadhold.outcome"] == "paused"
    (request,) = (await process.client.get("/v1/requests")).json()["items"]
    await process.client.post(f"/v1/requests/{request['id']}/answer", json={"kind": "approve"})
    [answer] = recorder.named("answer")
    assert answer.facts["threadhold.request"] == request["id"]
    assert answer.facts["threadhold.decision"] == "approve"
    assert (answer.facts["threadhold.run"], answer.facts["threadhold.open"]) == (receipt["run"], 0)
    await process.rests(receipt["run"])
    await process.client.post(f"/v1/threads/{receipt['thread']}/stop")
    [stop] = recorder.named("stop")
    assert stop.facts == {"threadhold.thread": receipt["thread"], "threadhold.settled": True}


async def test_a_refusal_is_told_by_its_code_alone(process: Process, recorder: Recorder) -> None:
    await process.client.post(
        f"/v1/threads/{'0' * 8}-0000-7000-8000-{'0' * 12}/messages", json={"content": "x"}
    )
    [sent] = recorder.named("send")
    assert sent.status is StatusCode.ERROR
    assert sent.facts["error.type"] == "not_found"


def test_an_error_without_a_code_is_told_by_its_type(recorder: Recorder) -> None:
    with pytest.raises(LookupError), spans.span("claim", thread=None):
        raise LookupError("secret")
    assert recorder.spans[0].facts == {"error.type": "LookupError"}


def test_spans_of_what_the_agent_does_are_within_the_attempt(recorder: Recorder) -> None:
    with spans.span("attempt"), spans.span("inner"):
        pass
    assert [span.parent for span in recorder.spans] == [None, "threadhold.attempt"]
