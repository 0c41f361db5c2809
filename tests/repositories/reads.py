"""Checks of what is kept and read: checkpoints, histories, conditions, threads, lists, and by whom."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.repositories.house import ASK, MEMORY, House, S, brought, check, new, revised_to, stored
from threadhold.runner.errors import ClaimLost, InvalidInput, ThreadArchived, ThreadBusy
from threadhold.runner.repositories import (
    OtherProgram,
    Run,
    RunChanged,
    RunConditionResult,
    RunFailureState,
    RunHistoryEntry,
    RunNotes,
    RunWriter,
    UnknownRun,
    branches,
)


@check
async def checkpoints_are_in_order_and_stay(house: House) -> None:
    run = await house.store.create(new())
    ids = [run.checkpoint_id]
    for n in range(3):
        run.channels["n"] = n
        ids.append(await house.store.write_checkpoint(run))
    found = await house.store.list(run.thread_id)
    assert [each.checkpoint_id for each in found] == ids
    assert [each.parent_checkpoint_id for each in found] == [None, *ids[:-1]]
    assert await house.store.latest(run.thread_id) == found[-1] == await house.store.get(run.run_id)
    assert await house.store.list(run.thread_id, after=ids[1], limit=1) == [found[2]]
    await house.store.transition(run.run_id, S.STOPPED)
    assert [await house.store.get_checkpoint(str(id)) for id in ids] == found
    assert await house.store.get_checkpoint(str(uuid4())) is None
    assert await house.store.latest(str(uuid4())) is None
    with pytest.raises(RunChanged):
        await house.store.write_checkpoint(run)


@check
async def a_pause_waits_for_an_answer_and_goes_on_from_its_checkpoint(house: House) -> None:
    run = await brought(house, S.RUNNING, channels={"left": ["b", "c"]})
    with pytest.raises(InvalidInput):
        await house.store.transition(run.run_id, S.PAUSED)
    paused = await house.store.transition(run.run_id, S.PAUSED, pending_request=ASK)
    assert paused.request_id is not None
    assert (paused.pending_request, paused.claim_id) == (ASK, None)
    await house.answer(run.run_id)
    shown = await house.store.get_checkpoint(str(paused.checkpoint_id))
    assert shown is not None
    assert (shown.status, shown.channels) == (S.PAUSED, {"left": ["b", "c"]})
    again = await house.store.transition(run.run_id, S.RUNNING, channels=shown.channels, pending_request=None)
    assert (again.attempt, again.pending_request, again.request_id) == (2, None, paused.request_id)
    assert again.fence > run.fence


@check
async def a_holder_of_before_writes_nothing(house: House) -> None:
    stale = await brought(house, S.RUNNING)
    await house.store.transition(stale.run_id, S.PENDING)
    run = await house.store.transition(stale.run_id, S.RUNNING)
    assert run.fence > stale.fence
    stands = await stored(house, run)
    for late in (stale, revised_to(stale, S.COMPLETED), run.model_copy(update={"claim_id": None})):
        with pytest.raises(ClaimLost):
            await house.other.put(late)
        with pytest.raises(ClaimLost):
            await house.other.put_if_status(late, S.RUNNING)
    assert await stored(house, run) == stands


@check
async def what_is_added_at_once_is_all_there(house: House) -> None:
    run = await brought(house, S.RUNNING)

    async def add(n: int) -> None:
        store = (house.store, house.other)[n % 2]
        entry = RunHistoryEntry(node_id=f"n{n // 2}", status="completed", attempt=1 + n % 2)
        await store.record_history(run.run_id, entry)
        await store.record_conditions(
            run.run_id, [RunConditionResult(condition_id=str(n), matched=False, evaluated_at=run.updated_at)]
        )

    await asyncio.gather(*map(add, range(8)))
    found = await house.store.get(run.run_id)
    assert found is not None
    assert len(found.history) == len(found.condition_results) == 8
    assert found.node_visits == {f"n{n}": 2 for n in range(4)}
    assert sorted(found.completed_steps) == sorted(found.node_visits)
    assert len(await house.store.list(run.thread_id)) == 18


@check
async def branches_not_taken_are_stored(house: House) -> None:
    run = await brought(house, S.RUNNING)
    results = branches(
        "fork", ["left", "right"], taken="right", evaluated_at=run.updated_at, details={"x": 1}
    )
    await house.store.record_conditions(run.run_id, results)
    found = await house.store.get(run.run_id)
    assert found is not None
    assert [(each.selected_edge_id, each.matched) for each in found.condition_results] == [
        ("left", False),
        ("right", True),
    ]
    assert found.condition_results == results


@check
async def a_failure_says_why(house: House) -> None:
    run = await brought(house, S.RUNNING)
    failure = RunFailureState(reason="card_declined", message="the card was declined", details={"code": 5})
    failed = await house.store.transition(run.run_id, S.FAILED, failure_state=failure)
    assert (failed.failure_state, failed.error, failed.reason) == (failure, failure.message, "error")
    other = await brought(house, S.RUNNING)
    failed = await house.store.transition(other.run_id, S.FAILED, failure_state=RunFailureState(reason="x"))
    assert failed.error == "x"
    assert await house.store.get(other.run_id) == failed


@check
async def threads_are_found_made_and_merged(house: House) -> None:
    run_id, binding = str(uuid4()), MEMORY[0]
    made = await house.store.resolve(
        None, agent="a", run_id=run_id, participating_agent_refs=["a", "b", "a"], memory_bindings=[binding]
    )
    assert made.thread_id == run_id
    assert made.participating_agent_refs == ["a", "b"]
    merged = await house.store.resolve(
        run_id,
        agent="a",
        graph_version_ref="v1",
        participating_agent_refs=["c", "b"],
        state_snapshot_refs=["s"],
        checkpoint_refs=["elsewhere"],
        memory_bindings=[*MEMORY, binding],
    )
    assert merged.participating_agent_refs == ["a", "b", "c"]
    assert (merged.state_snapshot_refs, merged.checkpoint_refs) == (["s"], ["elsewhere"])
    assert (merged.memory_bindings, merged.graph_version_ref) == (list(MEMORY), "v1")
    assert (merged.created_at, merged.status) == (made.created_at, "active")
    fresh = await house.store.resolve(None, agent="a")
    assert fresh.thread_id not in (made.thread_id, "")
    await house.store.create(new(run_id=run_id))
    # What a thread is bound to carries across its runs.
    assert (await house.store.resolve(run_id, agent="a")).memory_bindings == list(MEMORY)


@check
async def threads_of_another_identity_are_not_merged(house: House) -> None:
    run = await house.store.create(new(graph_version_ref="v1", deployment_ref="d1"))
    stands = await stored(house, run)
    wrong: list[dict[str, Any]] = [
        {"agent": "b"},
        {"agent": "a", "graph_version_ref": "v2"},
        {"agent": "a", "deployment_ref": "d2"},
    ]
    for identity in wrong:
        with pytest.raises(OtherProgram, match="thread identity mismatch"):
            await house.store.resolve(run.thread_id, state_snapshot_refs=["x"], **identity)
        with pytest.raises(OtherProgram):
            await house.store.put(run.model_copy(update=identity))
    elsewhere = (await house.store.resolve(None, agent="a")).thread_id
    for thread in (str(uuid4()), elsewhere):
        with pytest.raises(OtherProgram):
            await house.store.resolve(thread, agent="a", run_id=run.run_id)
    with pytest.raises(OtherProgram):
        await house.store.put(run.model_copy(update={"thread_id": elsewhere}))
    with pytest.raises(OtherProgram):
        await house.foreign.resolve(run.thread_id, agent="a")
    with pytest.raises(OtherProgram):
        await house.foreign.resolve(run.thread_id, agent="a", state_snapshot_refs=["x"])
    assert await stored(house, run) == stands


@check
async def what_is_merged_at_once_is_all_there(house: House) -> None:
    thread = str(uuid4())
    stores = (house.store, house.other)
    await asyncio.gather(
        *(stores[n % 2].resolve(thread, agent="a", checkpoint_refs=["all", str(n)]) for n in range(8))
    )
    found = await house.store.resolve(thread, agent="a")
    assert sorted(found.checkpoint_refs) == [*map(str, range(8)), "all"]


@check
async def an_archived_thread_stays_readable(house: House) -> None:
    run = await brought(house, S.RUNNING)
    with pytest.raises(ThreadBusy):
        await house.store.resolve(run.thread_id, agent="a", status="completed", state_snapshot_refs=["x"])
    run = await house.store.transition(run.run_id, S.COMPLETED)
    await house.store.resolve(run.thread_id, agent="a", status="completed")
    thread = await house.store.resolve(run.thread_id, agent="a", status="archived")
    assert (thread.status, thread.state_snapshot_refs) == ("archived", [])
    assert await house.store.resolve(run.thread_id, agent="a") == thread
    assert await house.store.get(run.run_id) == run
    assert len(await house.store.list(run.thread_id)) == 3
    told = await asyncio.gather(
        house.store.create(new(thread_id=run.thread_id)),
        house.store.resolve(run.thread_id, agent="a", status="active"),
        house.store.resolve(run.thread_id, agent="a", state_snapshot_refs=["x"]),
        return_exceptions=True,
    )
    assert [type(each) for each in told] == [ThreadArchived] * 3


@check
async def workspaces_know_nothing_of_each_other(house: House) -> None:
    run = await brought(house, S.RUNNING)
    stands, foreign = await stored(house, run), house.foreign
    assert await foreign.get(run.run_id) is None
    assert await foreign.get_checkpoint(str(run.checkpoint_id)) is None
    assert await foreign.latest(run.thread_id) is None
    assert await foreign.list(run.thread_id) == await foreign.list_runs() == []
    assert await foreign.list_child_runs(run.run_id) == []
    assert await foreign.count_pending() == 0
    told = await asyncio.gather(
        foreign.put_if_status(run, S.RUNNING),
        foreign.transition(run.run_id, S.STOPPED),
        foreign.write_checkpoint(run),
        foreign.record_conditions(run.run_id, []),
        foreign.create(new(parent_run_id=run.run_id)),
        return_exceptions=True,
    )
    assert [type(each) for each in told] == [UnknownRun] * 5
    with pytest.raises(OtherProgram):
        await foreign.create(new(thread_id=run.thread_id))
    assert await stored(house, run) == stands


@check
async def records_are_listed(house: House) -> None:
    first = await house.store.create(new(deployment_ref="d1"))
    second = await brought(house, S.RUNNING, deployment_ref="d2", parent_run_id=first.run_id)
    third = await house.store.create(new(deployment_ref="d2", parent_run_id=first.run_id))
    assert await house.store.list_runs() == [third, second, first]
    assert await house.store.list_runs(limit=1, offset=1) == [second]
    assert await house.store.list_runs(deployment_ref="d2", status=S.PENDING) == [third]
    assert await house.store.list_child_runs(first.run_id) == [second, third]
    assert await house.store.count_pending() == 2
    assert await house.store.count_pending(deployment_ref="d2") == 1
    for wrong in ({"limit": 0}, {"limit": 1001}, {"offset": -1}):
        with pytest.raises(InvalidInput):
            await house.store.list_runs(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownRun):
        await house.store.create(new(parent_run_id=str(uuid4())))


async def walk(runs: RunWriter, notes: RunNotes, *nodes: str) -> Run:
    """Run a program of two lines: it needs two pieces of a store, and knows no store."""
    run = await runs.create(new())
    await runs.transition(run.run_id, S.RUNNING)
    for node in nodes:
        await notes.record_history(run.run_id, RunHistoryEntry(node_id=node, status="completed"))
    return await runs.transition(run.run_id, S.COMPLETED, final_output=nodes[-1])


@check
async def a_program_needs_the_pieces_only(house: House) -> None:
    ended = await walk(house.store, house.other, "a", "b", "a")
    assert (ended.completed_steps, ended.node_visits) == (["a", "b"], {"a": 2, "b": 1})
    assert (ended.final_output, ended.status) == ("a", S.COMPLETED)
