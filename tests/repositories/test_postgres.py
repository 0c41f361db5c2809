"""What a record has to do with the rest of the system: the log, claims, messages, stops and requests."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.storage.conftest import FRIEND, ME, Desk
from threadhold.claims import Claim
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import ClaimLost, DecideFirst, Forbidden, InvalidInput, ThreadBusy
from threadhold.runner.machine import InvalidTransition, RunStatus
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import REFS_MAX, Nudge, Principal
from threadhold.runner.repositories import (
    OtherProgram,
    PendingRequest,
    Run,
    RunExists,
    RunFailureState,
    RunHistoryEntry,
    UnknownRun,
)
from threadhold.storage.pool import Database
from threadhold.storage.repositories import RECORD_BYTES_MAX, PostgresRepository
from threadhold.storage.requests import PostgresRequests

S = RunStatus


@dataclass
class House:
    """A principal's store, and what it announced."""

    database: Database
    by: Principal = ME
    ttl: timedelta = timedelta(minutes=5)
    nudges: list[Nudge] = field(default_factory=list)

    @property
    def store(self) -> PostgresRepository:
        return PostgresRepository(
            self.database, by=self.by, holder="w1-000000000001", ttl=self.ttl, announce=self.nudges.append
        )


@pytest.fixture
def house(database: Database) -> House:
    return House(database)


def new(**fields: Any) -> Run:
    return Run(**{"run_id": str(uuid4()), "agent": "a", **fields})


async def test_what_it_does_is_on_the_log(desk: Desk, house: House) -> None:
    store = house.store
    run = await store.create(new())
    await store.transition(run.run_id, S.RUNNING)
    run = await store.transition(run.run_id, S.PAUSED, pending_request=PendingRequest(tool="pay"))
    await PostgresRequests(desk.database).answer(
        str(run.request_id), Decision.reject("no"), by=ME, args_hash=None
    )
    await store.transition(run.run_id, S.RUNNING)
    await store.transition(run.run_id, S.COMPLETED, final_output={"paid": False})
    assert await desk.kinds(run.thread_id) == [
        *("checkpoint_written", "checkpoint_written", "run_started"),
        *("checkpoint_written", "request_opened", "attempt_closed", "paused", "request_answered"),
        *("checkpoint_written", "attempt_started", "checkpoint_written", "attempt_closed", "run_ended"),
    ]
    shown = await desk.runs.get(run.run_id, by=ME)
    assert (shown.status, shown.output, shown.attempt) == (S.COMPLETED, {"paid": False}, 2)
    tries = [(each.outcome, each.worker) for each in await desk.runs.attempts(run.run_id)]
    assert tries == [("interrupted", "w1-000000000001"), ("completed", "w1-000000000001")]
    # Whoever watches is told of each commit.
    assert [nudge.seq for nudge in house.nudges] == [1, 3, 7, 10, 13]


async def test_no_worker_takes_it_and_messages_wait(desk: Desk, house: House) -> None:
    run = await house.store.create(new())
    assert await desk.claim(run.thread_id) is None
    assert await desk.work.pending(agents=["a"], limit=10) == []
    receipt = await desk.send(run.thread_id)
    assert (receipt.disposition, receipt.run) == ("queued", None)
    await house.store.transition(run.run_id, S.RUNNING)
    assert await desk.claim(run.thread_id) is None
    await house.store.transition(run.run_id, S.FAILED)
    start = await desk.claim(run.thread_id)
    assert start is not None
    assert [message.content for message in start.inbox] == ["hello"]
    # Who waits for work was told of it.
    assert (house.nudges[-1].run, house.nudges[-1].agent) == (start.run, "a")
    with pytest.raises(ThreadBusy) as refused:
        await house.store.create(new(thread_id=run.thread_id))
    assert refused.value.data["run"] == start.run


async def test_a_run_whose_program_is_silent_is_abandoned(desk: Desk, house: House) -> None:
    run = await house.store.create(new(status=S.RUNNING))
    await desk.lapse()
    lost = await house.store.get(run.run_id)
    assert lost is not None
    assert (lost.status, lost.reason) == (S.FAILED, "abandoned")
    assert lost.error == "the run was abandoned: its claim lapsed"
    assert lost.failure_state is not None
    assert lost.failure_state.details["worker"] == "w1-000000000001"
    with pytest.raises(InvalidTransition, match="failed -> running"):
        await house.store.put(run)


async def test_each_write_keeps_the_claim_for_the_stores_own_time(desk: Desk, house: House) -> None:
    run = await House(house.database, ttl=timedelta(seconds=1)).store.create(new(status=S.RUNNING))
    await house.store.put(run)
    explained = await desk.runs.explain(run.run_id)
    assert explained["claim"]["expires_in_s"] > 200
    assert explained["claim"]["fence"] == run.fence
    # Code that is silent for long gives the claim to a keeper.
    claim = Claim(thread=run.thread_id, claim_id=str(run.claim_id), fence=run.fence)
    assert claim.claim_id == await claim_of(desk, run.thread_id)


async def claim_of(desk: Desk, thread: str) -> str:
    row = await desk.database.row("get_thread", UUID(thread), ME.workspace, ME.id, [])
    return str(row["claim_id"])


async def test_after_a_stop_every_exit_is_a_stop(desk: Desk, house: House) -> None:
    for exit in (S.COMPLETED, S.FAILED, S.PAUSED, S.PENDING):
        run = await house.store.create(new(status=S.RUNNING))
        await desk.runs.stop(run=run.run_id, thread=None, by=ME, key=None)
        run = await house.store.put(run)
        assert (run.status, run.stop_requested) == (S.RUNNING, True)
        ended = await house.store.transition(run.run_id, exit, pending_request=PendingRequest(tool="pay"))
        assert (ended.status, ended.reason) == (S.STOPPED, "person")


async def test_a_pending_and_a_paused_run_can_be_stopped(desk: Desk, house: House) -> None:
    for status, ask in ((S.PENDING, None), (S.PAUSED, PendingRequest(kind="question", tool="ask"))):
        run = await house.store.create(new())
        if ask is not None:
            await house.store.transition(run.run_id, S.RUNNING)
            run = await house.store.transition(run.run_id, S.PAUSED, pending_request=ask)
        assert run.status is status
        assert (await house.store.transition(run.run_id, S.STOPPED)).status is S.STOPPED
    run = await house.store.create(new(status=S.RUNNING))
    mine = PendingRequest(tool="pay", other_only=True)
    await house.store.transition(run.run_id, S.PAUSED, pending_request=mine)
    with pytest.raises(DecideFirst):
        await house.store.transition(run.run_id, S.STOPPED)


async def test_what_a_pause_asks_is_a_request_like_any_other(desk: Desk, house: House) -> None:
    run = await house.store.create(new(status=S.RUNNING))
    for nonsense in (PendingRequest(tool="pay", approvers=[]), PendingRequest(tool="pay", expires_in_s=0)):
        with pytest.raises(InvalidInput):
            await house.store.transition(run.run_id, S.PAUSED, pending_request=nonsense)
    ask = PendingRequest(
        kind="question", tool="ask", args={"text": "?"}, call_id="c", approvers=["friend"], metadata={"n": 1}
    )
    run = await house.store.transition(run.run_id, S.PAUSED, pending_request=ask)
    requests = PostgresRequests(desk.database)
    asked = await requests.get(str(run.request_id), by=FRIEND)
    assert (asked.kind, asked.tool, asked.args, asked.call_id) == ("question", "ask", {"text": "?"}, "c")
    assert (asked.approvers, asked.metadata, asked.requested_by) == (("friend",), {"n": 1}, "me")
    # What is changed while it waits asks nothing more.
    await house.store.put(run.model_copy(update={"metadata": {"seen": True}}))
    assert len(await requests.list(by=ME, status=None, thread=run.thread_id, before=None, limit=9)) == 1
    # A message is the reply, as in any paused thread.
    await desk.threads.set_member(run.thread_id, "friend", "write", by=ME)
    assert (await desk.send(run.thread_id, "yes", by=FRIEND)).disposition == "replied"
    found = await house.store.get(run.run_id)
    assert found is not None
    assert found.status is S.PENDING
    assert (await requests.get(str(run.request_id), by=ME)).answer == {"kind": "reply", "value": "yes"}


async def test_only_reasons_of_a_program_are_taken_from_one(house: House) -> None:
    for said, kept in (("timeout", "timeout"), ("abandoned", "error"), ("declined", "error")):
        run = await house.store.create(new(status=S.RUNNING))
        failure = RunFailureState(reason=said, message="m", details={"type": 1})
        failed = await house.store.transition(run.run_id, S.FAILED, failure_state=failure)
        assert (failed.reason, failed.failure_state) == (kept, failure)


async def test_who_may_read_may_not_write(desk: Desk, house: House) -> None:
    run = await house.store.create(new(status=S.RUNNING))
    friend = House(house.database, by=FRIEND).store
    assert await friend.get(run.run_id) is None
    await desk.threads.set_member(run.thread_id, FRIEND.id, "read", by=ME)
    assert await friend.get(run.run_id) == run
    assert (await friend.resolve(run.thread_id, agent="a")).active_run_id == run.run_id
    with pytest.raises(Forbidden):
        await friend.put(run)
    with pytest.raises(Forbidden):
        await friend.resolve(run.thread_id, agent="a", state_snapshot_refs=["x"])
    await desk.threads.set_member(run.thread_id, FRIEND.id, "write", by=ME)
    assert (await friend.put(run)).principal == ME.id


async def test_runs_of_agents_have_no_record(desk: Desk, house: House, thread: str) -> None:
    receipt = await desk.send(thread)
    assert receipt.run is not None
    assert await house.store.get(receipt.run) is None
    with pytest.raises(RunExists):
        await house.store.put(new(run_id=receipt.run, thread_id=thread))
    start = await desk.begin(thread)
    await desk.work.end(start, status=S.COMPLETED, data={})
    # Its thread takes records too, of the same agent.
    with pytest.raises(OtherProgram):
        await house.store.create(new(thread_id=thread, agent="b"))
    run = await house.store.create(new(thread_id=thread))
    assert (await house.store.resolve(thread, agent="a")).run_ids == [receipt.run, run.run_id]


async def test_what_is_added_to_a_thread_is_on_its_log(desk: Desk, house: House) -> None:
    thread = await house.store.resolve(None, agent="a")
    assert house.nudges == []
    for _ in range(2):
        await house.store.resolve(
            thread.thread_id, agent="a", participating_agent_refs=["b"], checkpoint_refs=["c"]
        )
    assert await desk.kinds(thread.thread_id) == ["thread_resolved"]
    assert {nudge.seq for nudge in house.nudges} == {1}
    for many in ("participating_agent_refs", "checkpoint_refs"):
        refs: Any = {many: [str(n) for n in range(REFS_MAX + 1)]}
        with pytest.raises(InvalidInput):
            await house.store.resolve(thread.thread_id, agent="a", **refs)
    shown = await desk.threads.get(thread.thread_id, by=ME)
    assert (shown.participants, shown.agent) == (("a", "b"), "a")


@pytest.mark.parametrize("word", ["x" * 201, "a\x00b", ""])
async def test_names_are_words(house: House, word: str) -> None:
    for name in ("agent", "graph_version_ref", "deployment_ref"):
        with pytest.raises(InvalidInput):
            await house.store.create(new(**{name: word}))
    for many in ("participating_agent_refs", "state_snapshot_refs", "checkpoint_refs"):
        refs: Any = {many: [word]}
        with pytest.raises(InvalidInput):
            await house.store.resolve(None, agent="a", **refs)
    with pytest.raises(InvalidInput):
        await house.store.resolve(None, agent="a", memory_bindings=[MemoryBinding("c", word, "s")])
    assert await house.store.list_runs() == []


async def test_of_checkpoints_the_newest_thousand_are_kept(house: House) -> None:
    run = await house.store.create(new())
    for round in range(11):
        refs = [f"{round}-{n}" for n in range(REFS_MAX)]
        await house.store.resolve(run.thread_id, agent="a", checkpoint_refs=refs)
    thread = await house.store.resolve(run.thread_id, agent="a")
    assert len(thread.checkpoint_refs) == 1000
    assert (thread.checkpoint_refs[-1], thread.checkpoint_refs[0]) == (run.checkpoint_id, "1-1")


async def test_a_parent_is_a_run_that_may_be_seen(desk: Desk, house: House) -> None:
    run = await house.store.create(new())
    friend = House(house.database, FRIEND).store
    with pytest.raises(UnknownRun):
        await friend.create(new(parent_run_id=run.run_id))
    await desk.threads.set_member(run.thread_id, FRIEND.id, "read", by=ME)
    child = await friend.create(new(parent_run_id=run.run_id))
    assert child.parent_run_id == run.run_id


async def test_a_new_record_takes_over_what_has_lapsed(desk: Desk, house: House) -> None:
    run = await house.store.create(new(status=S.RUNNING))
    await desk.work.disown("w1")
    second = await house.store.create(new(thread_id=run.thread_id, status=S.RUNNING))
    lost = await house.store.get(run.run_id)
    assert lost is not None
    assert (lost.reason, second.status) == ("abandoned", S.RUNNING)
    assert second.fence > run.fence
    with pytest.raises(ClaimLost):
        await house.store.put(second.model_copy(update={"claim_id": run.claim_id}))


async def test_one_id_on_two_threads_at_once_is_one_run(house: House) -> None:
    id = str(uuid4())
    runs = [new(run_id=id, thread_id=str(uuid4())) for _ in range(4)]
    told = await asyncio.gather(*(house.store.create(run) for run in runs), return_exceptions=True)
    assert sorted(type(each).__name__ for each in told) == ["Run", *["RunExists"] * 3]


async def test_what_is_too_large_or_no_json_is_refused(house: House) -> None:
    run = await house.store.create(new())
    for value in ("x" * RECORD_BYTES_MAX, float("nan"), object()):
        with pytest.raises(InvalidInput):
            await house.store.put(run.model_copy(update={"channels": {"v": value}}))
    assert await house.store.get(run.run_id) == run
    # What neither Postgres nor UTF-8 can hold is replaced, as everywhere.
    kept = await house.store.put(run.model_copy(update={"channels": {"v": "a\x00b"}}))
    assert kept.channels == {"v": "a\ufffdb"}


async def test_checkpoints_stand(house: House) -> None:
    run = await house.store.create(new())
    await house.store.record_history(run.run_id, RunHistoryEntry(node_id="n", status="completed"))
    connection = await asyncpg.connect(house.database.url)
    try:
        for change in (
            "UPDATE threadhold.record_checkpoints SET n = 9",
            "DELETE FROM threadhold.record_checkpoints",
        ):
            with pytest.raises(Exception, match="what is on record stands"):
                await connection.execute(change)
    finally:
        await connection.close()
