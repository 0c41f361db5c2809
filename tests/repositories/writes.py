"""Checks of what is written: new records, steps of their status, and who wins of those who write at once."""

import asyncio
from uuid import uuid4

import pytest

from tests.repositories.house import ASK, House, S, brought, check, new, revised_to, stored
from threadhold.runner.errors import DecideFirst, InvalidInput, ThreadBusy
from threadhold.runner.machine import RUN_TRANSITIONS, InvalidTransition
from threadhold.runner.repositories import (
    Run,
    RunChanged,
    RunExists,
    RunHistoryEntry,
    UnknownRun,
)
from threadhold.runner.repositories.models import body_of


@check
async def a_record_is_made_and_read(house: House) -> None:
    given = new(channels={"x": [1, 2.5, None]}, metadata={"é": "\n"}, current_step="begin")
    made = await house.store.create(given)
    assert (made.run_id, made.thread_id, made.agent) == (given.run_id, given.run_id, "a")
    assert (made.status, made.attempt, made.claim_id) == (S.PENDING, 0, None)
    assert body_of(made) == body_of(given)
    assert made.created_at is not None
    assert await house.store.get(made.run_id) == made
    assert await house.other.get(made.run_id) == made
    assert await house.store.get(str(uuid4())) is None
    assert await house.store.get("no id") is None


@check
async def a_record_is_the_same_json_as_it_was(house: House) -> None:
    value = {
        "one": 1,
        "float": 1.0,
        "big": 10**30,
        "tiny": 1e-300,
        "huge": 1e22,
        "no": None,
        "z": [{}, [], ""],
    }
    entry = RunHistoryEntry(node_id="n", status="failed", input_snapshot=value, cost="0.10")  # type: ignore[arg-type]
    made = await house.store.create(new(artifacts=value, final_output=value, history=[entry]))
    assert Run.model_validate_json(made.model_dump_json()) == made
    assert str(made.history[0].cost) == "0.10"
    # 1 and 1.0 are told apart as well, and the order of the keys is kept.
    assert str(made.artifacts) == str(value)
    assert str(made.final_output) == str(value)


@check
async def an_id_is_taken_once(house: House) -> None:
    made = await house.store.create(new(channels={"mine": True}))
    before = await stored(house, made)
    for store in (house.store, house.other, house.foreign):
        with pytest.raises(RunExists):
            await store.create(new(run_id=made.run_id))
        with pytest.raises(RunExists):
            await store.create(new(run_id=made.run_id, thread_id=str(uuid4())))
    with pytest.raises(RunExists):
        await house.foreign.put(made.model_copy(update={"workspace": None}))
    assert await stored(house, made) == before


@check
async def of_those_who_create_at_once_one_does(house: House) -> None:
    run = new()
    made = await asyncio.gather(*(house.store.create(run) for _ in range(6)), return_exceptions=True)
    assert sum(isinstance(each, Run) for each in made) == 1
    assert sum(isinstance(each, RunExists) for each in made) == 5


@check
async def a_run_is_of_its_thread(house: House) -> None:
    first = await house.store.create(new())
    thread = await house.store.resolve(first.thread_id, agent="a", run_id=first.run_id)
    assert (thread.run_ids, thread.active_run_id, thread.last_run_id) == ([first.run_id], *[first.run_id] * 2)
    assert thread.checkpoint_refs == [first.checkpoint_id]
    assert first.parent_checkpoint_id is None
    with pytest.raises(ThreadBusy):
        await house.store.create(new(thread_id=first.thread_id))
    await house.store.put(first)
    await house.store.transition(first.run_id, S.STOPPED)
    second = await house.store.create(new(thread_id=first.thread_id))
    thread = await house.store.resolve(first.thread_id, agent="a")
    assert thread.run_ids == [first.run_id, second.run_id]
    assert (thread.active_run_id, thread.last_run_id) == (second.run_id, second.run_id)


@check
async def of_those_who_begin_on_a_thread_at_once_one_does(house: House) -> None:
    thread = (await house.store.resolve(None, agent="a")).thread_id
    runs = [new(thread_id=thread) for _ in range(6)]
    made = await asyncio.gather(*(house.store.create(run) for run in runs), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["Run", *["ThreadBusy"] * 5]
    assert len((await house.store.resolve(thread, agent="a")).run_ids) == 1


@check
async def put_makes_and_replaces(house: House) -> None:
    given = new(channels={"n": 1})
    made = await house.store.put(given)
    made.channels["n"] = 2
    again = await house.store.put(made)
    assert (again.channels, again.created_at) == ({"n": 2}, made.created_at)
    assert again.updated_at > made.updated_at
    assert await house.store.get(given.run_id) == again
    assert [run.channels["n"] for run in await house.store.list(given.thread_id)] == [1, 2]


@check
async def what_is_returned_is_a_snapshot(house: House) -> None:
    given = new(channels={"n": [1]})
    made = await house.store.create(given)
    kept = made.model_copy(deep=True)
    for changed in (
        given,
        made,
        await house.store.get(given.run_id),
        await house.store.latest(given.thread_id),
    ):
        assert changed is not None
        changed.channels["n"].append(2)  # type: ignore[union-attr]
        changed.status = S.FAILED
    assert await house.store.get(given.run_id) == kept
    assert await house.store.latest(given.thread_id) == kept


@check
async def put_if_status_writes_only_then(house: House) -> None:
    made = await house.store.create(new())
    before = await stored(house, made)
    changed = made.model_copy(update={"channels": {"n": 1}, "status": S.RUNNING})
    for expected in set(S) - {S.PENDING}:
        with pytest.raises(RunChanged) as refused:
            await house.store.put_if_status(changed, expected)
        assert refused.value.status is S.PENDING
    assert await stored(house, made) == before
    saved = await house.store.put_if_status(changed, S.PENDING)
    assert (saved.status, saved.channels) == (S.RUNNING, {"n": 1})
    with pytest.raises(UnknownRun):
        await house.store.put_if_status(new(), S.PENDING)


@check
async def of_racers_one_wins(house: House) -> None:
    made = await house.store.create(new())

    async def race(n: int) -> Run:
        mine = made.model_copy(update={"channels": {"n": n}, "status": S.RUNNING})
        return await (house.store, house.other)[n % 2].put_if_status(mine, S.PENDING)

    told = await asyncio.gather(*map(race, range(8)), return_exceptions=True)
    (winner,) = [each for each in told if isinstance(each, Run)]
    assert sum(isinstance(each, RunChanged) for each in told) == 7
    assert await house.store.get(made.run_id) == winner
    assert len(await house.store.list(made.thread_id)) == 2


@check
async def the_table_is_kept(house: House) -> None:
    for before in S:
        for after in set(S) - {before}:
            run = await brought(house, before)
            stands = await stored(house, run)
            tried = revised_to(run, after)
            if after not in RUN_TRANSITIONS[before]:
                with pytest.raises(InvalidTransition, match=f"^invalid run transition: {before} -> {after}$"):
                    await house.store.put(tried)
                with pytest.raises(ValueError, match="invalid run transition"):
                    await house.store.transition(run.run_id, after)
                assert await stored(house, run) == stands
            elif (before, after) == (S.PAUSED, S.PENDING):
                # Nobody but those who are asked make a run go on that waits for them.
                with pytest.raises(DecideFirst):
                    await house.store.put(tried)
                assert await stored(house, run) == stands
            else:
                assert (await house.store.put(tried)).status is after


@check
async def a_record_may_begin_where_pending_leads(house: House) -> None:
    run = await house.store.create(new(status=S.RUNNING))
    assert (run.status, run.attempt) == (S.RUNNING, 1)
    for status in (S.COMPLETED, S.PAUSED):
        refused = new(status=status, pending_request=ASK)
        with pytest.raises(InvalidTransition):
            await house.store.create(refused)
        assert await house.store.get(refused.run_id) is None
        assert await house.store.latest(refused.thread_id) is None
        # There is no thread of that id: it may become another agent's.
        assert (await house.store.resolve(refused.thread_id, agent="b")).agent == "b"


@check
async def the_same_status_is_no_step(house: House) -> None:
    for status in S:
        run = await brought(house, status)
        stands = await stored(house, run)
        assert await house.store.transition(run.run_id, status) == run
        assert await stored(house, run) == stands


@check
async def a_transition_sets_fields(house: House) -> None:
    run = await house.store.create(new())
    run = await house.store.transition(run.run_id, S.RUNNING, current_step="a", channels={"n": 1})
    run = await house.store.transition(run.run_id, S.RUNNING, current_step="b")
    assert (run.current_step, run.channels, run.status) == ("b", {"n": 1}, S.RUNNING)
    stands = await stored(house, run)
    for wrong in ({"nothing": 1}, {"channels": 7}):
        with pytest.raises(InvalidInput):
            await house.store.transition(run.run_id, S.COMPLETED, **wrong)
    assert await stored(house, run) == stands


@check
async def an_unknown_run_is_a_key_error(house: House) -> None:
    for run_id in (str(uuid4()), "no id"):
        with pytest.raises(KeyError):
            await house.store.transition(run_id, S.RUNNING)
        with pytest.raises(UnknownRun):
            await house.store.record_history(run_id, RunHistoryEntry(node_id="n", status="running"))


@check
async def what_has_ended_stands(house: House) -> None:
    run = await brought(house, S.COMPLETED)
    stands = await stored(house, run)
    # Once more with the same, as after an answer that was lost.
    assert await house.store.put(run) == run
    with pytest.raises(RunChanged):
        await house.store.put(run.model_copy(update={"final_output": "another"}))
    with pytest.raises(RunChanged):
        await house.store.record_history(run.run_id, RunHistoryEntry(node_id="n", status="running"))
    assert await stored(house, run) == stands
