"""Claims, records, ends, stops and lapses, as transactions on a real Postgres."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from tests.storage.conftest import ME, Desk
from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RUN_TRANSITIONS, RunStatus
from threadhold.runner.records import NewFact
from threadhold.storage.work import PostgresWork

DONE = RunStatus.COMPLETED


async def test_transition_tables_in_code_and_database_are_equal(desk: Desk) -> None:
    rows = await desk.database._pool.fetch("SELECT before, after FROM threadhold.run_transitions")
    ours = {(before.value, after.value) for before, afters in RUN_TRANSITIONS.items() for after in afters}
    assert {(row["before"], row["after"]) for row in rows} == ours


async def test_database_refuses_a_step_that_is_not_in_the_table(desk: Desk, thread: str) -> None:
    receipt = await desk.send(thread)
    with pytest.raises(asyncpg.RaiseError, match="invalid run transition: pending -> completed"):
        await desk.database._pool.execute(
            "UPDATE threadhold.runs SET status = 'completed' WHERE id = $1", receipt.run
        )


async def test_one_of_many_claims_wins(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    starts = await asyncio.gather(*(desk.claim(thread, work=work) for work in [desk.work, desk.other] * 4))
    assert len([start for start in starts if start]) == 1


async def test_repeated_claim_with_the_same_key_is_the_same_start(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    key = str(uuid4())
    first = await desk.claim(thread, key=key)
    assert first is not None
    assert await desk.claim(thread, key=key) == first
    assert await desk.claim(thread) is None


async def test_worker_takes_only_agents_it_has(desk: Desk, thread: str) -> None:
    await desk.send(thread, create_with="b")
    assert await desk.claim(thread) is None
    start, _ = await desk.work.claim(thread, agents={"a": 0, "b": 0}, start_key=str(uuid4()))
    assert start is not None
    assert start.agent == "b"


async def test_record_is_numbered_and_repeatable(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    fact = NewFact(kind="tool_called", data={"tool": "x", "odd": "\x00\ud800", "nan": float("nan")})
    first = await desk.work.record(start, rec_no=2, facts=[fact])
    assert await desk.work.record(start, rec_no=2, facts=[fact]) == first
    assert await desk.kinds(thread) == ["message_accepted", "run_started", "message_delivered", "tool_called"]


async def test_messages_are_consumed_once(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    with pytest.raises(asyncpg.RaiseError, match="were waiting"):
        await desk.work.record(start, rec_no=2, facts=[], delivered=[1])


async def test_end_goes_on_while_a_message_is_unseen(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    steer = await desk.send(thread, "one more thing")
    ended, _ = await desk.work.end(start, status=DONE, data={})
    assert ended.outcome == "continue"
    inbox = await desk.work.inbox(start)
    assert [message.id for message in inbox] == [steer.message]
    await desk.work.record(start, rec_no=2, facts=[], delivered=[message.seq for message in inbox])
    ended, _ = await desk.work.end(start, status=DONE, data={"live": {"n": 7}})
    assert (ended.outcome, ended.status, ended.next_run) == ("ended", DONE, None)
    assert await desk.state(thread) == "idle"
    assert (await desk.messages.get(steer.message, by=ME)).run == start.run


async def test_end_is_repeatable_and_others_are_fenced(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.end(start, status=DONE, data={})
    again, _ = await desk.work.end(start, status=DONE, data={})
    assert (again.outcome, again.status) == ("ended", DONE)
    with pytest.raises(ClaimLost):
        await desk.work.record(start, rec_no=2, facts=[])
    with pytest.raises(ClaimLost):
        await desk.work.inbox(start)


async def test_failed_run_leaves_unseen_messages_to_the_next(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    steer = await desk.send(thread, "unseen")
    error = {"type": "LookupError", "message": "no"}
    ended, nudge = await desk.work.end(start, status=RunStatus.FAILED, reason="error", error=error, data={})
    assert ended.next_run == nudge.run
    following = await desk.begin(thread)
    assert following.run == ended.next_run
    assert [message.id for message in following.inbox] == [steer.message]
    assert (await desk.runs.get(start.run, by=ME)).error == error


async def test_lapse_before_the_first_record_starts_the_run_again(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    first = await desk.claim(thread)
    assert first is not None
    await desk.lapse()
    second = await desk.claim(thread, work=desk.other)
    assert second is not None
    assert (second.run, second.attempt) == (first.run, 2)
    assert second.fence > first.fence
    assert second.inbox == first.inbox


async def test_five_starts_without_a_record_are_poison(desk: Desk, thread: str) -> None:
    sent = await desk.send(thread)
    for _ in range(5):
        assert await desk.claim(thread) is not None
        await desk.lapse()
    assert sent.run is not None
    run = await desk.runs.get(sent.run, by=ME)
    assert (run.status, run.reason) == (RunStatus.FAILED, "poison")
    assert (await desk.messages.get(sent.message, by=ME)).reason == "poison"
    assert await desk.state(thread) == "idle"


async def test_lapse_after_the_first_record_is_abandonment(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    unseen = await desk.send(thread, "unseen")
    await desk.lapse()
    run = await desk.runs.get(start.run, by=ME)
    assert (run.status, run.reason) == (RunStatus.FAILED, "abandoned")
    assert run.error is not None
    assert run.error["message"] == "the run was abandoned: its claim lapsed"
    for write in (
        desk.work.record(start, rec_no=2, facts=[]),
        desk.work.end(start, status=DONE, data={}),
    ):
        with pytest.raises(ClaimLost):
            await write
    following = await desk.begin(thread, work=desk.other)
    assert [message.id for message in following.inbox] == [unseen.message]


async def test_claim_takes_over_a_lapsed_thread_without_a_sweep(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.send(thread, "unseen")
    assert await desk.claim(thread, work=desk.other) is None
    await desk.work.disown("w1")
    following = await desk.claim(thread, work=desk.other)
    assert following is not None
    assert following.run != start.run
    assert (await desk.runs.get(start.run, by=ME)).reason == "abandoned"


async def test_release_gives_an_untouched_run_back(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.claim(thread)
    assert start is not None
    nudge = await desk.work.release(start, cause="drain")
    assert nudge is not None
    again = await desk.begin(thread, work=desk.other)
    assert again.run == start.run
    assert await desk.work.release(start, cause="drain") is None
    await desk.other.release(again, cause="drain")
    run = await desk.runs.get(start.run, by=ME)
    assert (run.status, run.reason, run.error and run.error["cause"]) == (
        RunStatus.FAILED,
        "abandoned",
        "drain",
    )


async def test_pending_runs_are_found_without_a_nudge_and_handed_out_once(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    assert await desk.work.pending(agents=["a"], limit=10) == []
    await desk.database._pool.execute("UPDATE threadhold.runs SET take_at = clock_timestamp()")
    assert await desk.work.pending(agents=["other"], limit=10) == []
    assert await desk.work.pending(agents=["a"], limit=10) == [thread]
    assert await desk.work.pending(agents=["a"], limit=10) == []


async def test_history_comes_back_as_it_was_written(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.record(
        start, rec_no=2, facts=[], history=[{"z": 1, "a": [1.0, "ä\U0001f600"]}, {"second": True}]
    )
    stored = await desk.work.history(thread, head=2)
    assert stored == [{"kind": "request"}, {"z": 1, "a": [1.0, "ä\U0001f600"]}, {"second": True}]
    assert list(stored[1]) == ["z", "a"]
    assert await desk.work.history(thread, head=1) == [{"kind": "request"}]


async def test_closed_attempts_never_change(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.end(start, status=DONE, data={})
    with pytest.raises(asyncpg.RaiseError, match="is closed"):
        await desk.database._pool.execute("UPDATE threadhold.attempts SET outcome = 'failed'")


async def test_tools_of_a_run_by_what_is_on_the_log(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    calls = [{"id": name, "tool": "t"} for name in ("done", "open", "idle")]
    facts = [
        NewFact(kind="model_called", data={"calls": calls}),
        NewFact(kind="tool_called", data={"call_id": "done"}),
        NewFact(kind="tool_returned", data={"call_id": "done"}),
        NewFact(kind="tool_called", data={"call_id": "open"}),
    ]
    await desk.work.record(start, rec_no=2, facts=facts)
    assert await desk.runs.tools(start.run) == {
        "done": "finished",
        "open": "still_running",
        "idle": "never_started",
    }
    await desk.work.end(start, status=DONE, data={})
    assert (await desk.runs.tools(start.run))["open"] == "unknown"


async def test_start_after_one_that_was_never_acknowledged_is_fresh(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    first = await desk.claim(thread)
    await desk.lapse()
    second = await desk.claim(thread)
    assert first is not None
    assert second is not None
    assert (first.fresh, second.fresh, second.attempt) == (True, True, 2)


async def test_messages_that_come_along_name_the_run_that_they_come_along_with(
    desk: Desk, thread: str
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    steers = [await desk.send(thread, f"unseen {n}") for n in range(2)]
    ended, _ = await desk.work.end(
        start, status=RunStatus.FAILED, reason="error", error={"type": "x"}, data={}
    )
    assert {(await desk.messages.get(steer.message, by=ME)).run for steer in steers} == {ended.next_run}


async def test_end_keeps_what_the_agent_returned_to_the_letter(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.end(start, status=DONE, data={"output": {"zip": None}})
    ended = (await desk.facts.facts(thread, after=0, limit=100))[-1]
    assert ended.data == {"fact": "run_ended", "status": "completed", "output": {"zip": None}}


async def test_only_workers_of_that_very_name_are_disowned(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    ttl = timedelta(seconds=15)
    work = PostgresWork(desk.database, worker="dev-laptop-0123456789ab", ttl=ttl)
    start = await desk.claim(thread, work=work)
    assert start is not None
    assert await desk.work.disown("dev") == 0
    assert await desk.work.disown("dev-laptop") == 1


async def test_thread_that_cannot_be_lapsed_does_not_keep_the_others(desk: Desk) -> None:
    threads = sorted(str(uuid4()) for _ in range(3))
    for thread in threads:
        await desk.send(thread)
        await desk.begin(thread)
    # Damaged by hand: its run is not running, so that lapsing it raises.
    await desk.database._pool.execute(
        "ALTER TABLE threadhold.runs DISABLE TRIGGER run_step;"
        f"UPDATE threadhold.runs SET status = 'pending' WHERE thread_id = '{threads[1]}'"
    )
    await desk.lapse()
    assert [await desk.state(thread) for thread in threads] == ["idle", "busy", "idle"]
    await desk.database._pool.execute(
        "UPDATE threadhold.runs SET status = 'running' WHERE status = 'pending';"
        "ALTER TABLE threadhold.runs ENABLE TRIGGER run_step"
    )
