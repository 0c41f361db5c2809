"""Executions and second tries with real agents: what ended is run again from where it stood, and never edited."""

from pathlib import Path

import pytest
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.support.waiting import until
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import (
    InvalidInput,
    KeyConflict,
    NotFound,
    NotReplayable,
    ThreadExists,
    UnknownAgent,
)
from threadhold.runner.history import loaded
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Principal, Run

FRIEND = Principal(id="friend", workspace="home")


async def stopped_behind_a_tool(bench: Bench, gate: Path) -> Run:
    """Return a run that called a tool and was stopped while the model, asked again, said nothing."""
    script = f'call add {{"a": 2, "b": 3}} ;; hold {gate} | say done ;; say more'

    async def twice() -> bool:
        return len(bench.seen) == 2

    receipt = await bench.send(script)
    await until(twice)
    await bench.runner.stop(run=receipt.run, by=ME)
    return await bench.run(receipt)


async def test_a_replay_from_a_checkpoint_repeats_no_tool(bench: Bench, tmp_path: Path) -> None:
    origin = await stopped_behind_a_tool(bench, tmp_path / "gate")
    page = await bench.runner.checkpoints(origin.id, by=ME)
    assert [each.ends_in for each in page.items][:1] == ["request"]
    answered = [each for each in page.items if each.ends_in == "request"][-1]
    (tmp_path / "gate").touch()
    replay = await bench.runner.replay(origin.id, by=ME, checkpoint=answered.id)
    facts = await bench.idle(origin.thread)
    made = await bench.runner.run(replay.run, by=ME)
    assert (made.status, made.output, made.replay_of) == (RunStatus.COMPLETED, "done", origin.id)
    assert len(of_kind(facts, "tool_called")) == 1
    last = bench.seen[-1][-1]
    assert isinstance(last, ModelRequest)
    assert [part.content for part in last.parts if isinstance(part, ToolReturnPart)] == [5]
    # The thread goes on from the second try.
    facts = await bench.ask("and now?", origin.thread)
    assert of_kind(facts, "run_ended")[-1]["output"] == "more"
    assert origin == await bench.runner.run(origin.id, by=ME)


async def test_a_replay_from_the_beginning_does_all_of_it_again(bench: Bench, tmp_path: Path) -> None:
    origin = await stopped_behind_a_tool(bench, tmp_path / "gate")
    (tmp_path / "gate").touch()
    replay = await bench.runner.replay(origin.id, by=ME)
    facts = await bench.idle(origin.thread)
    assert (await bench.runner.run(replay.run, by=ME)).output == "done"
    assert len(of_kind(facts, "tool_called")) == 2
    # One message, consumed once, by the first of both.
    assert kinds(facts).count("message_accepted") == kinds(facts).count("message_delivered") == 1
    assert [type(message) for message in bench.seen[2]] == [ModelRequest]
    # What the model was shown then can still be read.
    old = (await bench.runner.checkpoints(origin.id, by=ME)).items[-1]
    then = loaded(list((await bench.runner.history_at(old.id, by=ME)).items))
    now = await bench.runner.history(origin.thread, by=ME)
    assert [messages[-1].state for messages in (then, loaded(now.items))] == ["interrupted", "complete"]


async def test_a_position_where_nothing_can_be_asked_is_refused(bench: Bench, tmp_path: Path) -> None:
    receipt = await bench.send('call pay {"amount": 3} ;; say paid')
    request = await bench.fact(receipt.thread, "request_opened")
    assert receipt.run is not None
    paused = (await bench.runner.checkpoints(receipt.run, by=ME)).items[-1]
    assert paused.requests == (request["request"],)
    with pytest.raises(NotReplayable, match="not ended"):
        await bench.runner.replay(receipt.run, by=ME)
    await bench.runner.answer(request["request"], Decision.approve(), by=ME)
    run = await bench.run(receipt)
    ended = (await bench.runner.checkpoints(run.id, by=ME)).items[-1]
    for position in (paused, ended):
        with pytest.raises(NotReplayable, match="nothing to ask"):
            await bench.runner.replay(run.id, by=ME, checkpoint=position.id)
    other = await bench.run(await bench.send("say hi"))
    for wrong in (f"{other.id}.1", f"{run.id}.{2**62}", f"{run.id}.99999", "nonsense"):
        with pytest.raises(NotFound):
            await bench.runner.replay(run.id, by=ME, checkpoint=wrong)
    with pytest.raises(InvalidInput):
        await bench.runner.replay(run.id, by=ME, key="")
    replay = await bench.runner.replay(run.id, by=ME, key="once")
    await bench.idle(run.thread)
    again = await bench.runner.replay(run.id, by=ME, key="once")
    assert (again.run, again.duplicate, again.seq) == (replay.run, True, replay.seq)


async def test_a_run_that_was_never_begun_has_nothing_to_replay(bench: Bench) -> None:
    async with bench.runner.claim(
        (await bench.runner.create_thread(agent="scripted", by=ME)).id, by=ME
    ) as claim:
        thread = claim.thread
    [direct] = await bench.runner.runs(by=ME, thread=thread)
    with pytest.raises(NotReplayable, match="written nothing"):
        await bench.runner.replay(direct.id, by=ME)


async def test_an_execution_is_tried_again_until_it_succeeds(bench: Bench) -> None:
    receipt = await bench.runner.execute("scripted", 'call crash {"why": "x"} ;; say saved', by=ME, key="k")
    await bench.idle(receipt.thread)
    failed = await bench.runner.execution(receipt.execution, by=ME)
    assert (failed.execution.status, failed.execution.reason) == (RunStatus.FAILED, "error")
    assert (failed.execution.result, failed.execution.principal) == (None, "me")
    [first] = failed.threads[0].runs
    assert (first.run.id, first.run.error is None) == (receipt.run, False)
    # A second try fails as the first one did: another row, the first as it was.
    await bench.runner.replay(receipt.run, by=ME)
    await bench.idle(receipt.thread)
    facts = await bench.ask("say saved", receipt.thread)
    done = await bench.runner.execution(receipt.execution, by=ME)
    assert (done.execution.status, done.execution.result) == (RunStatus.COMPLETED, "saved")
    assert done.execution.ended_at is not None
    [tree] = done.threads
    assert [each.run.status for each in tree.runs] == ["completed", "failed", "failed"]
    assert tree.runs[1].run.replay_of == receipt.run
    assert tree.runs[2] == first
    assert [attempt.outcome for attempt in tree.runs[2].attempts] == ["failed"]
    assert not done.cut_short
    assert kinds(facts).count("run_ended") == 3
    again = await bench.runner.execute("scripted", 'call crash {"why": "x"} ;; say saved', by=ME, key="k")
    assert (again.execution, again.run, again.duplicate) == (receipt.execution, receipt.run, True)
    with pytest.raises(KeyConflict):
        await bench.runner.execute("scripted", "say something else", by=ME, key="k")


async def test_an_execution_waits_for_people_and_has_threads_beside_its_first(bench: Bench) -> None:
    receipt = await bench.runner.execute("scripted", 'call pay {"amount": 3} ;; say paid', by=ME, key="k")
    request = await bench.fact(receipt.thread, "request_opened")
    paused = await bench.runner.execution(receipt.execution, by=ME)
    assert (paused.execution.status, paused.execution.ended_at) == (RunStatus.PAUSED, None)
    [asked] = paused.threads[0].runs[0].requests
    assert (asked.id, asked.status) == (request["request"], "open")
    beside = await bench.runner.create_thread(agent="scripted", by=ME, execution=receipt.execution)
    assert beside.execution == receipt.execution
    await bench.ask("say beside", beside.id)
    assert (await bench.runner.execution(receipt.execution, by=ME)).execution.status is RunStatus.PAUSED
    await bench.runner.answer(asked.id, Decision.approve(), by=ME)
    await bench.idle(receipt.thread)
    done = await bench.runner.execution(receipt.execution, by=ME)
    assert (done.execution.status, done.execution.result) == (RunStatus.COMPLETED, "paid")
    page = await bench.runner.threads_of(receipt.execution, by=ME, limit=1)
    rest = await bench.runner.threads_of(receipt.execution, by=ME, after=page[0].id)
    assert [thread.id for thread in (*page, *rest)] == [receipt.thread, beside.id]
    other = await bench.runner.execute("scripted", "say hi", by=ME)
    taken = bench.runner.create_thread(agent="scripted", by=ME, thread=beside.id, execution=other.execution)
    with pytest.raises(ThreadExists):
        await taken


async def test_executions_are_for_who_started_them_and_for_operators(bench: Bench) -> None:
    ops = Principal(id="ops", workspace="home", roles=frozenset({"operator"}))
    elsewhere = Principal(id="ops", workspace="elsewhere", roles=frozenset({"operator"}))
    mine = [await bench.runner.execute("scripted", f"say {n}", by=ME) for n in range(3)]
    theirs = await bench.runner.execute("scripted", "say 4", by=FRIEND)
    for receipt in (*mine, theirs):
        await bench.idle(receipt.thread) if receipt is not theirs else None
    listed = await bench.runner.executions(by=ME)
    assert [each.id for each in listed] == [receipt.execution for receipt in reversed(mine)]
    page = await bench.runner.executions(by=ME, limit=2)
    rest = await bench.runner.executions(by=ME, before=page[-1].id)
    assert [*page, *rest] == listed
    assert {each.id for each in await bench.runner.executions(by=ops)} >= {
        theirs.execution,
        mine[0].execution,
    }
    assert await bench.runner.executions(by=elsewhere) == []
    for foreign in (theirs.execution, "nonsense"):
        with pytest.raises(NotFound):
            await bench.runner.execution(foreign, by=ME)
        with pytest.raises(NotFound):
            await bench.runner.threads_of(foreign, by=ME)
        with pytest.raises(NotFound):
            await bench.runner.create_thread(agent="scripted", by=ME, execution=foreign)
    # A member of one of its threads sees the thread and not the execution.
    await bench.runner.set_member(mine[0].thread, "friend", "write", by=ME)
    assert (await bench.runner.thread(mine[0].thread, by=FRIEND)).execution == mine[0].execution
    with pytest.raises(NotFound):
        await bench.runner.execution(mine[0].execution, by=FRIEND)
    with pytest.raises(UnknownAgent):
        await bench.runner.execute("nobody", "say hi", by=ME)
    with pytest.raises(InvalidInput, match="empty"):
        await bench.runner.execute("scripted", " ", by=ME)
    with pytest.raises(InvalidInput, match="the mission has") as large:
        await bench.runner.execute("scripted", "x" * 70_000, by=ME)
    assert large.value.data["field"] == "mission"
