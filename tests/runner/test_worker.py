"""The worker around the attempts: drains, losses of claims, and what outlives what."""

import asyncio

import pytest
from pydantic_ai.messages import ModelResponse, UserPromptPart

from tests.runner.conftest import ME, Bench
from tests.runner.test_execution import parts
from tests.support.agents import app
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold import Principal, open_runner
from threadhold.runner.errors import NotFound
from threadhold.runner.machine import RunStatus
from threadhold.runner.worker import Worker

SHORT = {"claim_ttl": 3, "renew_every": 0.5, "trust_margin": 0.5, "sweep_every": 0.2}


async def test_cancelled_drain_leaves_no_worker_behind(stack: Stack) -> None:
    entered = asyncio.Event()

    async def embed() -> None:
        async with open_runner(app, stack.settings(grace=60, **SHORT), capacity=4) as runner:
            receipt = await runner.send(None, "words 10000 0.02", by=ME, agent="scripted")
            async for delivery in runner.watch(receipt.thread, by=ME, after="start"):
                if delivery.frame.data.get("event_kind") == "part_delta":
                    break
            entered.set()

    task = asyncio.create_task(embed())
    await entered.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    async def alone() -> bool:
        return asyncio.all_tasks() == {asyncio.current_task()}

    await until(alone, what=lambda: f"these go on: {asyncio.all_tasks()}")


async def test_run_whose_claim_is_lost_stops_and_writes_nothing_more(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[Worker] = []
    start = Worker.start

    async def noted(self: Worker) -> None:
        workers.append(self)
        await start(self)

    monkeypatch.setattr(Worker, "start", noted)
    async with open_runner(app, stack.settings(), capacity=4) as runner:
        receipt = await runner.send(None, "words 10000 0.01", by=ME, agent="scripted")
        async for delivery in runner.watch(receipt.thread, by=ME, after="start"):
            if delivery.frame.data.get("event_kind") == "part_delta":
                break
        keeper = workers[0]._keeper
        (held,) = keeper._held.values()
        keeper._lose(held, "the test says so")
        running = workers[0]._running.values()
        await asyncio.wait([one.task for one in running if one.task is not None])
        assert receipt.run is not None
        assert (await runner.run(receipt.run, by=ME)).status == RunStatus.RUNNING


async def test_message_that_arrives_as_the_run_ends_is_answered_whatever_the_moment(bench: Bench) -> None:
    for n in range(25):
        receipt = await bench.send(f"say {n} | words 1 {0.001 * (n % 5)}")
        late = await bench.send(f"late {n}", receipt.thread)
        await bench.idle(receipt.thread)
        history = await bench.history(receipt.thread)
        assert [part.content for part in parts(history, UserPromptPart)].count(f"late {n}") == 1
        assert isinstance(history[-1], ModelResponse)
        assert (await bench.runner.message(late.message, by=ME)).state == "delivered"


async def test_strangers_watch_nothing(bench: Bench) -> None:
    receipt = await bench.send("say secret")
    await bench.idle(receipt.thread)
    stranger = Principal(id="stranger", workspace="home")
    watching = bench.runner.watch(receipt.thread, by=stranger, after="start")
    with pytest.raises(NotFound):
        await anext(aiter(watching))
