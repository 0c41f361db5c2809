"""The same message, or two messages, sent over two replicas at once to a thread that is idle or not there yet."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from pydantic_ai.messages import UserPromptPart

from tests.races.play import AGENT, PLAYS, Play
from tests.races.stage import ME, Stage, kind, staged
from tests.support.histories import texts
from tests.support.servers import Stack

# Many times, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)
TIMES = 20


@pytest.fixture
async def stage(stack: Stack) -> AsyncIterator[Stage]:
    """Two replicas that both execute."""
    async with staged(stack, seed=1) as made:
        yield made


async def said(stage: Stage, thread: str) -> Counter[str]:
    """Count what people said, as the thread's conversation has it."""
    return Counter(texts(await stage.history(thread), UserPromptPart))


async def runs_of(stage: Stage, thread: str) -> int:
    """Count the runs that a thread has had."""
    return len([fact for fact in await stage.facts(thread) if kind(fact) == "run_ended"])


async def test_a_message_sent_twice_at_once_with_one_key_is_one_message_of_one_run(stage: Stage) -> None:
    for number in range(TIMES):
        PLAYS[f"first {number}"] = play = Play()
        one, two = await asyncio.gather(
            *(
                replica.send(None, f"first {number}", by=ME, key=f"k{number}", agent=AGENT)
                for replica in stage.replicas
            )
        )
        assert (one.thread, one.message, one.run) == (two.thread, two.message, two.run)
        assert sorted([one.duplicate, two.duplicate]) == [False, True]
        await stage.finish(one.thread)
        assert await said(stage, one.thread) == Counter([f"first {number}"])
        assert await runs_of(stage, one.thread) == 1
        assert play.refused == []


async def test_two_messages_sent_at_once_to_an_idle_thread_start_one_run_and_steer_it(stage: Stage) -> None:
    for number in range(TIMES):
        thread = (await stage.replicas[0].create_thread(agent=AGENT, by=ME)).id
        texts = [f"one {number}", f"two {number}"]
        # The run goes on until both were accepted, however far apart that is.
        play = Play(stays=True)
        PLAYS.update(dict.fromkeys(texts, play))
        receipts = await asyncio.gather(
            *(
                replica.send(thread, text, by=ME, key=text)
                for replica, text in zip(stage.replicas, texts, strict=True)
            )
        )
        play.let_go.set()
        assert sorted(receipt.disposition for receipt in receipts) == ["started", "steered"]
        assert len({receipt.run for receipt in receipts}) == 1
        await stage.finish(thread)
        assert await said(stage, thread) == Counter(texts)
        assert await runs_of(stage, thread) == 1
        assert play.refused == []


async def test_many_messages_at_once_without_a_word_about_busy_threads_run_one_at_a_time(
    stage: Stage,
) -> None:
    thread = (await stage.replicas[0].create_thread(agent=AGENT, by=ME)).id
    texts = [f"message {number}" for number in range(TIMES)]
    play = Play()
    PLAYS.update(dict.fromkeys(texts, play))
    receipts = await asyncio.gather(*(stage.anybody.send(thread, text, by=ME) for text in texts))
    assert [receipt.disposition for receipt in receipts].count("started") >= 1
    await stage.finish(thread)
    assert await said(stage, thread) == Counter(texts)
    # Runs follow one another on the log: each ends before the next one begins.
    ends = [kind(fact) for fact in await stage.facts(thread) if kind(fact) in ("run_started", "run_ended")]
    assert ends == ["run_started", "run_ended"] * (len(ends) // 2)
    assert play.refused == []
