"""Answers that race: with each other, with a message, and with the pause that they answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.races.play import Ending, Play
from tests.races.stage import BOSS, ME, Stage, kind, staged
from tests.support.servers import Stack
from threadhold import Decision, Runner
from threadhold.runner.errors import AlreadyAnswered, RunnerError
from threadhold.runner.records import Outcome, Receipt

# Many times, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)
TIMES = 20


@pytest.fixture
async def stage(stack: Stack) -> AsyncIterator[Stage]:
    """Two replicas that both execute."""
    async with staged(stack, seed=1) as made:
        yield made


async def paused(stage: Stage, ending: Ending = "approval") -> tuple[Receipt, str]:
    """Start a thread whose agent pauses; return its one request as soon as a watcher is told of it."""
    first = await stage.begin(Play(ending=ending))
    async for delivery in stage.replicas[0].watch(first.thread, by=ME, after="start"):
        if delivery.frame.data.get("fact") == "request_opened":
            return first, str(delivery.frame.data["request"])
    raise AssertionError("a watch without `until` never ends")


async def answered(stage: Stage, first: Receipt) -> list[str]:
    """Finish the thread; return who answered, as its log says."""
    await stage.finish(first.thread)
    return [
        str(fact.data["by"]) for fact in await stage.facts(first.thread) if kind(fact) == "request_answered"
    ]


async def test_of_two_people_who_answer_at_once_on_two_replicas_one_counts_and_the_other_learns_of_it(
    stage: Stage,
) -> None:
    for number in range(TIMES):
        first, request = await paused(stage)
        both = [(stage.replicas[number % 2], ME), (stage.replicas[1 - number % 2], BOSS)]
        outcomes = await asyncio.gather(
            *(replica.answer(request, Decision.approve(), by=who) for replica, who in both),
            return_exceptions=True,
        )
        [won] = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
        [late] = [outcome for outcome in outcomes if isinstance(outcome, AlreadyAnswered)]
        assert late.data["by"] == won.by
        assert await answered(stage, first) == [won.by]


async def test_the_same_answer_on_two_replicas_at_once_is_applied_once(stage: Stage) -> None:
    for _ in range(TIMES):
        first, request = await paused(stage)
        one, two = await asyncio.gather(
            *(replica.answer(request, Decision.approve(), by=ME) for replica in stage.replicas)
        )
        assert sorted([one.duplicate, two.duplicate]) == [False, True]
        assert one.decision == two.decision
        assert await answered(stage, first) == ["me"]
        called = [fact for fact in await stage.facts(first.thread) if kind(fact) == "tool_called"]
        assert len(called) == 1


async def test_an_answer_and_a_message_at_once_leave_one_answer_and_lose_nothing(stage: Stage) -> None:
    for _ in range(TIMES):
        first, request = await paused(stage, "question")
        one, other = stage.replicas
        receipt, outcome = await asyncio.gather(
            one.send(first.thread, "by message", by=ME), _answer(other, request), return_exceptions=False
        )
        assert (receipt.disposition == "replied") == isinstance(outcome, AlreadyAnswered)
        assert await answered(stage, first) == ["me"]
        message = await one.message(receipt.message, by=ME)
        assert message.state == "delivered"
        assert str(await stage.history(first.thread)).count("by message") == 1


async def _answer(replica: Runner, request: str) -> Outcome | RunnerError:
    try:
        return await replica.answer(request, Decision.reply("by answer"), by=ME)
    except RunnerError as error:
        return error


async def test_an_answer_is_taken_from_the_moment_of_the_pause_on(stage: Stage) -> None:
    for _ in range(TIMES):
        first = await stage.begin(Play(ending="approval"))
        # Not by a watch: the very first look that sees the request, on the replica that did not pause.
        while not (requests := await stage.replicas[1].requests(by=ME, thread=first.thread)):
            await asyncio.sleep(0)
        outcome = await stage.replicas[1].answer(requests[0].id, Decision.approve(), by=ME)
        assert (outcome.open, outcome.duplicate) == (0, False)
        assert await answered(stage, first) == ["me"]
        assert (await stage.replicas[0].run(str(first.run), by=ME)).status == "completed"
