"""Threads held by code of one's own: the same exclusion, stops and records, without an agent."""

import asyncio

import pytest

from tests.runner.conftest import ME, Bench, kinds, of_kind
from threadhold import Principal
from threadhold.runner.errors import Forbidden, NotFound, ThreadBusy
from threadhold.runner.machine import RunStatus

FRIEND = Principal(id="friend", workspace="home")


async def made(bench: Bench) -> str:
    """Return a fresh thread."""
    return (await bench.runner.create_thread(agent="scripted", by=ME)).id


async def test_a_held_thread_runs_nothing_else_and_messages_wait_for_the_run_after(bench: Bench) -> None:
    thread = await made(bench)
    async with bench.runner.claim(thread, by=ME) as claim:
        with pytest.raises(ThreadBusy):
            async with bench.runner.claim(thread, by=ME):
                pass
        with pytest.raises(ThreadBusy):
            await bench.send("say hi", thread, on_busy="reject")
        receipt = await bench.send("say hi", thread)
        assert (receipt.disposition, receipt.run) == ("queued", None)
        assert not claim.lost.is_set()
    facts = await bench.idle(thread)
    assert kinds(facts)[:4] == ["run_started", "message_accepted", "attempt_closed", "run_ended"]
    assert [fact["status"] for fact in of_kind(facts, "run_ended")] == ["completed", "completed"]
    assert (await bench.runner.run(claim.run, by=ME)).status == RunStatus.COMPLETED


async def test_a_stop_reaches_the_code_that_holds_the_thread(bench: Bench) -> None:
    thread = await made(bench)
    async with bench.runner.claim(thread, by=ME) as claim:
        await bench.runner.stop(thread=thread, by=ME, key="k", wait=0)
        await asyncio.wait_for(claim.lost.wait(), 20)
    assert claim.why == "stop"
    assert (await bench.runner.run(claim.run, by=ME)).status == RunStatus.STOPPED


async def test_code_that_raises_fails_its_run(bench: Bench) -> None:
    thread = await made(bench)
    with pytest.raises(LookupError):
        async with bench.runner.claim(thread, by=ME) as claim:
            raise LookupError("no such row")
    run = await bench.runner.run(claim.run, by=ME)
    assert (run.status, run.reason) == (RunStatus.FAILED, "error")
    assert run.error == {"type": "LookupError", "message": "no such row"}


async def test_only_who_may_write_holds_a_thread(bench: Bench) -> None:
    thread = await made(bench)
    with pytest.raises(NotFound):
        async with bench.runner.claim(thread, by=FRIEND):
            pass
    await bench.database._pool.execute(
        "INSERT INTO threadhold.members (thread_id, principal, access) VALUES ($1, 'friend', 'read')", thread
    )
    with pytest.raises(Forbidden):
        async with bench.runner.claim(thread, by=FRIEND):
            pass
