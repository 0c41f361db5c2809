"""What is committed is told once, by the process that committed it."""

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from tests.storage.conftest import ME, OPERATOR, W1, Desk
from threadhold.runner.decisions import Decision, NewRequest
from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import NewFact, Start
from threadhold.storage.messages import PostgresMessages
from threadhold.storage.pool import Database
from threadhold.storage.requests import PostgresRequests
from threadhold.storage.runs import PostgresRuns
from threadhold.storage.work import PostgresWork

TTL = timedelta(seconds=15)
ASKED = NewRequest(kind="approval", call_id="c1", tool="pay", args={})


@dataclass
class Told:
    """A tally that remembers; seconds are checked, and left out."""

    heard: list[tuple[object, ...]] = field(default_factory=list)

    def run_started(self, agent: str, *, waited_s: float) -> None:
        assert 0 <= waited_s < 60
        self.heard.append(("started", agent))

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        assert lasted_s is None or 0 <= lasted_s < 60
        self.heard.append(("ended", agent, status, reason))

    def attempt_abandoned(self, cause: str) -> None:
        self.heard.append(("abandoned", cause))

    def swept(self, *, lapsed: int) -> None:
        self.heard.append(("swept", lapsed))

    def message_accepted(self, disposition: str) -> None:
        self.heard.append(("accepted", disposition))

    def stop_asked(self, outcome: str) -> None:
        self.heard.append(("stop", outcome))

    def request_answered(self, decision: str) -> None:
        self.heard.append(("answered", decision))

    def model_called(
        self, agent: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None
    ) -> None:
        self.heard.append(("called", agent, input_tokens, output_tokens, cost))

    def take(self) -> list[tuple[object, ...]]:
        """Return what was heard since the last time."""
        heard, self.heard = self.heard, []
        return heard


@pytest.fixture
def told() -> Told:
    """What was told."""
    return Told()


@pytest.fixture(autouse=True)
def _however_slow_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadhold.storage.work.TELL_S", 60)


@pytest.fixture
def desk(desk: Desk, database: Database, told: Told) -> Desk:
    """The stores, which tell."""
    desk.messages = PostgresMessages(database, tally=told)
    desk.runs = PostgresRuns(database, tally=told)
    desk.work = PostgresWork(database, worker=W1, ttl=TTL, tally=told)
    desk.other = PostgresWork(database, worker="w2-000000000002", ttl=TTL, tally=told)
    return desk


async def test_a_run_from_its_message_to_its_end(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread, key="k")
    await desk.send(thread, key="k")
    start = await desk.claim(thread, key=(key := str(uuid4())))
    assert start is not None
    await desk.send(thread, "more")
    assert told.take() == [("accepted", "started"), ("started", "a"), ("accepted", "steered")]
    # The same claim again, as after a lost answer: whoever got the first one has counted it.
    assert (await desk.claim(thread, key=key)) is not None
    told.take()
    fact = NewFact(kind="run_started", data={})
    await desk.work.record(start, rec_no=1, facts=[fact], delivered=[1])
    going_on, _ = await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert (going_on.outcome, told.take()) == ("continue", [])
    await desk.work.record(start, rec_no=2, facts=[], delivered=[2])
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert told.take() == [("ended", "a", "completed", None)]


@pytest.mark.parametrize(("by", "reason"), [(ME, "person"), (OPERATOR, "operator")])
async def test_a_stop_is_told_with_who_asked_for_it_where_it_takes_effect(
    desk: Desk, thread: str, told: Told, by: object, reason: str
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    told.take()
    await desk.runs.stop(run=None, thread=thread, by=by, key=None)  # type: ignore[arg-type]
    assert told.take() == [("stop", "requested")]
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert told.take() == [("ended", "a", "stopped", reason)]
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    await desk.runs.stop(run=None, thread=thread, by=ME, key=None)
    assert told.take() == [("stop", "ended"), ("stop", "idle")]


async def test_a_stop_of_a_run_that_nobody_has_is_its_end(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    await desk.runs.stop(run=None, thread=thread, by=OPERATOR, key=None)
    assert told.take()[1:] == [("stop", "stopped"), ("ended", "a", "stopped", "operator")]
    await desk.send(thread)
    await desk.send(thread, "instead", on_busy="interrupt")
    assert told.take()[1:] == [("accepted", "queued"), ("ended", "a", "stopped", "interrupted_by_message")]


async def test_a_message_that_interrupts_a_running_one_is_no_end_yet(
    desk: Desk, thread: str, told: Told
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    told.take()
    await desk.send(thread, "instead", on_busy="interrupt")
    assert told.take() == [("accepted", "queued")]
    await desk.work.hand_over(start)
    assert told.take() == [("ended", "a", "stopped", "interrupted_by_message")]


async def test_what_a_lapsed_claim_leaves_is_told_with_its_cause(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    await desk.begin(thread)
    told.take()
    await desk.lapse()
    assert told.take() == [("swept", 1), ("abandoned", "killed"), ("ended", "a", "failed", "abandoned")]
    await desk.other.sweep(limit=10)
    assert told.take() == [("swept", 0)]


async def test_a_run_that_goes_on_after_a_lapse_has_not_ended(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    assert await desk.claim(thread) is not None
    told.take()
    await desk.lapse()
    assert told.take() == [("swept", 1), ("abandoned", "killed")]
    # Its second attempt is no second start.
    assert await desk.claim(thread) is not None
    assert told.take() == []


async def test_whoever_claims_a_lapsed_thread_tells_what_was_left(
    desk: Desk, thread: str, told: Told
) -> None:
    await desk.send(thread)
    await desk.begin(thread)
    await desk.send(thread, "for later", on_busy="queue")
    told.take()
    await desk.work.disown("w1")
    assert await desk.claim(thread, work=desk.other) is not None
    # The run that waited was made by the very call that started it.
    assert told.take() == [("started", "a"), ("abandoned", "killed"), ("ended", "a", "failed", "abandoned")]


async def test_a_claim_that_is_given_up_is_told(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    told.take()
    await desk.work.release(start, cause="drain")
    await desk.work.release(start, cause="drain")
    assert told.take() == [("abandoned", "drain"), ("ended", "a", "failed", "abandoned")]


async def test_of_several_lost_attempts_the_newest_is_told(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    assert await desk.claim(thread) is not None
    await desk.lapse()
    start = await desk.begin(thread)
    told.take()
    await desk.work.release(start, cause="drain")
    assert told.take() == [("abandoned", "drain"), ("ended", "a", "failed", "abandoned")]


async def test_code_of_ones_own_is_a_run_too(desk: Desk, thread: str, told: Told) -> None:
    await desk.threads.create(thread, agent="a", title=None, metadata={}, by=ME)
    start, _ = await desk.work.hold(thread, by=ME, start_key=str(uuid4()))
    await desk.work.end(start, status=RunStatus.FAILED, reason="error", data={})
    assert told.take() == [("started", "a"), ("ended", "a", "failed", "error")]


async def paused(desk: Desk, thread: str, asked: NewRequest) -> Start:
    """Pause a run with one request."""
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.pause(start, requests=[asked], history=[{"kind": "response"}])
    return start


async def test_an_answer_is_told_once(desk: Desk, thread: str, told: Told) -> None:
    await paused(desk, thread, ASKED)
    answers = PostgresRequests(desk.database, tally=told)
    [request] = await answers.list(by=ME, status="open", thread=thread, before=None, limit=9)
    told.take()
    for _ in range(2):
        await answers.answer(request.id, Decision.approve(), by=ME, args_hash=None)
    assert told.take() == [("answered", "approve")]


async def test_how_many_wait_is_told_by_agent(desk: Desk, thread: str) -> None:
    assert await desk.runs.pending() == {}
    await desk.send(thread)
    await desk.send(str(uuid4()))
    await desk.send(str(uuid4()), create_with="b")
    assert await desk.runs.pending() == {"a": 2, "b": 1}
    await desk.begin(thread)
    assert await desk.runs.pending() == {"a": 1, "b": 1}


def called(tokens: int, cost: str | None = "0.5", *, by: str | None = None) -> NewFact:
    """Return a fact of an answer of a model, or of one that was given to an agent which was delegated to."""
    took = {"model": "m", "input_tokens": tokens, "output_tokens": 1, "cost": cost}
    if by is None:
        return NewFact(kind="model_called", data=took)
    return NewFact(kind="delegated", data={"did": "model_called", "agent": by, "depth": 1, **took})


async def test_what_a_model_took_is_told_where_it_is_recorded(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    told.take()
    other = NewFact(kind="delegated", data={"did": "tool_called", "agent": "b"})
    facts = [
        called(3),
        NewFact(kind="tool_called", data={}),
        other,
        called(4, None, by="b"),
        called(5, "[secret]"),
    ]
    await desk.work.record(start, rec_no=2, facts=facts)
    assert told.take() == [
        ("called", "a", 3, 1, Decimal("0.5")),
        ("called", "a", 4, 1, None),
        ("called", "a", 5, 1, None),
    ]
    # What is refused leaves nothing on record.
    spend = {"kind": "tool", "call_id": "c", "grant": "none", "limits": []}
    assert (await desk.work.record(start, rec_no=3, facts=[called(6)], spend=spend)).refused == "no_grant"
    await desk.send(thread, "more")
    await desk.work.end(start, status=RunStatus.COMPLETED, facts=[called(7)], data={})
    assert told.take() == [("accepted", "steered")]
    await desk.work.record(start, rec_no=3, facts=[], delivered=[2])
    await desk.work.end(start, status=RunStatus.COMPLETED, facts=[called(7)], data={})
    assert told.take()[0] == ("called", "a", 7, 1, Decimal("0.5"))


async def test_what_a_model_took_is_told_where_a_run_is_paused_and_handed_over(
    desk: Desk, thread: str, told: Told
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.runs.stop(run=start.run, thread=None, by=ME, key=None)
    told.take()
    assert await desk.work.pause(start, requests=[ASKED], facts=[called(1)]) is None
    assert told.take() == []
    await desk.work.hand_over(start, facts=[called(2)])
    assert told.take()[0] == ("called", "a", 2, 1, Decimal("0.5"))
    await desk.send(thread)
    start = await desk.begin(thread)
    told.take()
    await desk.work.hand_over(start, facts=[called(3)])
    start = await desk.begin(thread)
    await desk.work.pause(start, requests=[ASKED], facts=[called(4)])
    assert told.take() == [("called", "a", tokens, 1, Decimal("0.5")) for tokens in (3, 4)]


async def test_who_is_no_holder_any_more_tells_nothing(desk: Desk, thread: str, told: Told) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.lapse()
    told.take()
    with pytest.raises(ClaimLost):
        await desk.work.record(start, rec_no=2, facts=[called(1)])
    with pytest.raises(ClaimLost):
        await desk.work.end(start, status=RunStatus.COMPLETED, facts=[called(1)], data={})
    assert told.take() == []
