"""The journal: each thing once, in order, through outages and cancellations, and never without the claim."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

from threadhold.fanout.memory import MemoryLive
from threadhold.fanout.outbox import Outbox
from threadhold.runner import journal as module
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.journal import HistoryRewritten, Journal
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Ended, InboxMessage, NewFact, Nudge, Recorded, Start

START = Start(
    workspace="home",
    thread="t",
    run="r",
    agent="a",
    principal="me",
    roles=frozenset(),
    attempt=1,
    claim_id="c",
    fence=7,
    history_head=0,
    seq=3,
    fresh=True,
    inbox=(),
)
FACT = NewFact(kind="tool_called", data={})


@dataclass
class FakeWork:
    """A store that fails as often as the test says and keeps what it was given."""

    failures: int = 0
    gate: asyncio.Event | None = None
    stop: bool = False
    records: list[tuple[int, list[str], list[int], list[Any]]] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")

    async def record(
        self,
        start: Start,
        *,
        rec_no: int,
        facts: Sequence[NewFact],
        history: Sequence[Any] = (),
        delivered: Sequence[int] = (),
        shown: Sequence[Any] = (),
        spend: Mapping[str, Any] | None = None,
    ) -> Recorded:
        if self.gate is not None:
            await self.gate.wait()
        self._fail()
        self.records.append((rec_no, [fact.kind for fact in facts], list(delivered), [*history, *shown]))
        return Recorded(seq=10 + rec_no, waiting=1, stop_requested=self.stop)

    async def inbox(self, start: Start) -> list[InboxMessage]:
        self._fail()
        return []

    async def end(self, start: Start, **fields: Any) -> tuple[Ended, Nudge]:
        self._fail()
        self.ends.append(fields)
        return Ended(outcome="ended", status=fields["status"], seq=20, next_run=None), Nudge(
            thread="t", seq=20
        )


class FakeWires:
    """Notes what was rung."""

    def __init__(self) -> None:
        self.rung: list[int] = []

    def announce(self, nudge: Nudge) -> None:
        self.rung.append(nudge.seq)

    def ring(self, thread: str, seq: int) -> None:
        self.rung.append(seq)


@dataclass
class Rig:
    """A journal on fakes."""

    work: FakeWork
    wires: FakeWires
    outbox: Outbox
    trusted: bool = True
    stops: int = 0
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(
            self.work,  # type: ignore[arg-type]
            self.wires,
            start=START,
            outbox=self.outbox,
            trusted=lambda: self.trusted,
            on_stop=self._stop,
        )

    def _stop(self) -> None:
        self.stops += 1


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A journal whose retries come at once."""
    monkeypatch.setattr(module, "RETRY_S", 0)
    outbox = Outbox(MemoryLive(), thread="t", run="r", fence=7)
    outbox.start(attempt=1, seq=3)
    yield Rig(FakeWork(), FakeWires(), outbox)
    await outbox.aclose()


def said(text: str) -> list[ModelMessage]:
    """Return a short history."""
    return [ModelRequest(parts=[UserPromptPart("hi")]), ModelResponse(parts=[TextPart(text)])]


async def test_records_are_numbered_and_ring(rig: Rig) -> None:
    assert rig.journal.seq == 3
    await rig.journal.note(FACT)
    await rig.journal.note(FACT, FACT)
    assert [record[:2] for record in rig.work.records] == [(1, ["tool_called"]), (2, ["tool_called"] * 2)]
    assert (rig.journal.seq, rig.wires.rung, rig.journal.waiting) == (12, [11, 12], True)


async def test_nothing_new_is_no_record(rig: Rig) -> None:
    history = said("x")
    rig.journal.begin_segment(history)
    await rig.journal.note(messages=history)
    await rig.journal.note()
    assert rig.work.records == []


async def test_each_message_is_kept_once(rig: Rig) -> None:
    rig.journal.begin_segment([])
    history = said("one")
    await rig.journal.note(messages=history[:1])
    await rig.journal.note(messages=history)
    await rig.journal.end(RunStatus.COMPLETED, messages=[*history, *said("two")])
    assert [len(record[3]) for record in rig.work.records] == [1, 1]
    assert len(rig.work.ends[0]["history"]) == 2
    assert rig.work.ends[0]["data"]["live"] == {"fence": 7, "n": 1}


async def test_outage_repeats_the_same_record(rig: Rig) -> None:
    rig.work.failures = 5
    await rig.journal.note(FACT)
    rig.work.failures = 3
    await rig.journal.end(RunStatus.COMPLETED)
    assert [record[0] for record in rig.work.records] == [1]
    assert len(rig.work.ends) == 1


async def test_outage_that_outlasts_the_claim_is_a_loss(rig: Rig) -> None:
    rig.work.failures = 100
    rig.trusted = False
    with pytest.raises(ClaimLost):
        await rig.journal.note(FACT)
    with pytest.raises(ClaimLost):
        await rig.journal.inbox()
    with pytest.raises(ClaimLost):
        await rig.journal.end(RunStatus.COMPLETED)


async def test_cancelled_record_still_counts_once(rig: Rig) -> None:
    rig.work.gate = asyncio.Event()
    rig.journal.begin_segment([])
    history = said("x")
    noting = asyncio.create_task(rig.journal.note(FACT, messages=history))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    noting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await noting
    rig.work.gate.set()
    await rig.journal.end(RunStatus.STOPPED, messages=history)
    assert [len(record[3]) for record in rig.work.records] == [2]
    assert rig.work.ends[0]["history"] == []


async def test_unstorable_history_is_refused_before_it_takes_a_number(rig: Rig) -> None:
    rig.journal.begin_segment([])
    broken = ModelResponse(parts=[TextPart(object())])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="serializ"):
        await rig.journal.note(FACT, messages=[broken])
    await rig.journal.note(FACT)
    assert [record[0] for record in rig.work.records] == [1]


def priced(text: str, cost: str) -> ModelResponse:
    """Return a response that cost something."""
    return ModelResponse(parts=[TextPart(text)], usage=RequestUsage(cost=Decimal(cost)))


async def test_each_response_is_described_once_with_the_cost_so_far(rig: Rig) -> None:
    rig.journal.begin_segment([])
    history: list[ModelMessage] = [priced("a", "0.25")]
    await rig.journal.note(FACT, messages=history)
    history.append(priced("b", "0.5"))
    await rig.journal.end(RunStatus.COMPLETED, messages=history)
    assert rig.work.records[0][1] == ["model_called", "tool_called"]
    (final,) = rig.work.ends[0]["facts"]
    assert (final.data["text"], final.data["cost_total"]) == ("b", "0.75")


async def test_end_that_goes_on_describes_the_response_again_with_what_comes_next(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def goes_on(start: Start, **fields: Any) -> tuple[Ended, Nudge]:
        return Ended(outcome="continue", status=None, seq=9, next_run=None), Nudge(thread="t", seq=9)

    monkeypatch.setattr(rig.work, "end", goes_on)
    rig.journal.begin_segment([])
    history: list[ModelMessage] = [priced("a", "0.25")]
    await rig.journal.end(RunStatus.COMPLETED, messages=history)
    await rig.journal.note(FACT, messages=history)
    assert rig.work.records[0][1] == ["model_called", "tool_called"]


async def test_history_that_loses_its_beginning_is_still_recorded(rig: Rig) -> None:
    history = [*said("one"), *said("two")]
    rig.journal.begin_segment(history)
    await rig.journal.note(messages=[*history[-1:], *said("three")])
    assert [len(record[3]) for record in rig.work.records] == [2]


async def test_history_whose_newest_message_is_gone_is_refused(rig: Rig) -> None:
    rig.journal.begin_segment(said("one"))
    with pytest.raises(HistoryRewritten):
        await rig.journal.note(messages=said("another"))
    assert rig.work.records == []


async def test_stop_is_told_and_what_was_not_shown_is_not_counted_as_shown(rig: Rig) -> None:
    rig.work.stop = True
    message = InboxMessage(id="m", seq=5, sender="me", content="late")
    rig.journal.begin_segment([])
    shown = said("late")[:1]
    await rig.journal.note(delivered=[message], shown=shown)
    assert (rig.stops, rig.journal.stopping) == (1, True)
    await rig.journal.end(RunStatus.STOPPED, messages=[])
    assert rig.work.ends[0]["history"] == []
