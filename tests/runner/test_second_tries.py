"""What becomes of a run that fails or is rejected, where its agent says something about that."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelAPIError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.runner.conftest import ME, Bench, of_kind
from tests.support.agents import agent, identity
from tests.support.scripted import opened, scripted_model
from tests.support.servers import Stack
from threadhold import Decision, Hosted, RetryErrors, Terms, Threadhold, open_runner
from threadhold.runner.machine import RunStatus
from threadhold.storage.pool import Database
from threadhold.storage.work import PostgresWork

AT_ONCE = timedelta(0)


@asynccontextmanager
async def bench_of(stack: Stack, database: Database, hosted: Hosted) -> AsyncIterator[Bench]:
    """Open a Runner; every invariant must hold in the end."""
    app = Threadhold(agents={"scripted": hosted})
    async with open_runner(app, stack.settings(), capacity=4) as runner:
        yield Bench(runner, database)
    assert await PostgresWork(database, worker="-", ttl=None).audit() == []  # type: ignore[arg-type]


def failing(outcomes: Sequence[Exception | str]) -> tuple[Agent[None, str], list[int]]:
    """Return an agent whose model comes out as told, one after the other, and how many messages it was asked over."""
    asked: list[int] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        asked.append(len(messages))
        outcome = outcomes[len(asked) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        yield outcome

    return Agent(FunctionModel(stream_function=stream)), asked


DOWN = ModelAPIError("m", "the provider is down")


async def test_an_error_of_the_provider_is_tried_again_as_a_new_attempt(
    stack: Stack, database: Database
) -> None:
    agent, asked = failing([DOWN, DOWN, "well"])
    hosted = Hosted(agent, after_error=RetryErrors(times=2, delay=AT_ONCE))
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send("hello")
        run, facts = await bench.run(receipt), await bench.idle(receipt.thread)
    assert (run.status, run.output, run.attempt) == (RunStatus.COMPLETED, "well", 3)
    closed = of_kind(facts, "attempt_closed")
    assert [(each["outcome"], each.get("cause")) for each in closed] == [
        ("failed", "error"),
        ("failed", "error"),
        ("completed", None),
    ]
    assert closed[0]["error"] == {"type": "ModelAPIError", "message": str(DOWN)}
    # Each attempt asks over the same: nothing of a failed one is shown to the model, and no message twice.
    assert asked == [1, 1, 1]


async def test_tries_are_used_up(stack: Stack, database: Database) -> None:
    agent, asked = failing([DOWN, DOWN])
    async with bench_of(
        stack, database, Hosted(agent, after_error=RetryErrors(times=1, delay=AT_ONCE))
    ) as bench:
        run = await bench.run(await bench.send("hello"))
    assert (run.status, run.reason, run.attempt, len(asked)) == (RunStatus.FAILED, "error", 2, 2)


async def test_other_errors_are_not_tried_again(stack: Stack, database: Database) -> None:
    agent, asked = failing([ValueError("a bug")])
    async with bench_of(stack, database, Hosted(agent, after_error=RetryErrors(times=3))) as bench:
        run = await bench.run(await bench.send("hello"))
    assert (run.status, run.attempt, len(asked)) == (RunStatus.FAILED, 1, 1)


async def test_a_run_that_waits_to_be_tried_again_can_be_stopped(stack: Stack, database: Database) -> None:
    agent, asked = failing([DOWN])
    hosted = Hosted(agent, after_error=RetryErrors(times=1, delay=timedelta(hours=1)))
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send("hello")
        closed = await bench.fact(receipt.thread, "attempt_closed")
        assert closed["again_in_s"] == 3600
        assert (await bench.runner.run(receipt.run or "", by=ME)).status is RunStatus.PENDING
        stopped = await bench.runner.stop(run=receipt.run, by=ME)
        assert (stopped.settled, stopped.status, len(asked)) == (True, RunStatus.STOPPED, 1)


async def test_a_message_does_not_bring_the_next_try_forward(stack: Stack, database: Database) -> None:
    agent, asked = failing([DOWN, "well"])
    hosted = Hosted(agent, after_error=RetryErrors(times=1, delay=timedelta(hours=1)))
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send("hello")
        await bench.fact(receipt.thread, "attempt_closed")
        assert (await bench.send("are you there?", receipt.thread)).disposition == "steered"
        # A worker who had been told of the message would have taken that run before this one.
        assert (await bench.run(await bench.send("hello"))).output == "well"
        waiting = await bench.runner.run(receipt.run or "", by=ME)
        assert (waiting.status, waiting.attempt, len(asked)) == (RunStatus.PENDING, 1, 2)
        await bench.runner.stop(run=receipt.run, by=ME)


async def test_a_tool_that_ran_beside_one_that_failed_does_not_run_again(
    stack: Stack, database: Database, tmp_path: Path
) -> None:
    ran: list[str] = []
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    async def good() -> str:
        """Do it."""
        ran.append("good")
        return "well"

    @agent.tool_plain
    async def bad(gate: str) -> str:
        """Fail once a file is there."""
        ran.append("bad")
        await opened(gate)
        raise TimeoutError("down")

    retry = RetryErrors(times=2, delay=AT_ONCE, errors=(TimeoutError,))
    async with bench_of(stack, database, Hosted(agent, after_error=retry)) as bench:
        gate = tmp_path / "gate"
        receipt = await bench.send(f'call good {{}} | call bad {{"gate": "{gate}"}} ;; say done')
        await bench.fact(receipt.thread, "tool_returned", tool="good")
        gate.touch()
        run = await bench.run(receipt)
    assert (run.status, run.attempt, sorted(ran)) == (RunStatus.COMPLETED, 2, ["bad", "good"])


async def test_what_was_approved_and_ran_is_not_repeated(stack: Stack, database: Database) -> None:
    ran: list[int] = []
    asked: list[list[list[str]]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        asked.append([[part.part_kind for part in message.parts] for message in messages])
        match len(asked):
            case 1:
                yield {n: DeltaToolCall(name="pay", json_args="{}", tool_call_id=f"c{n}") for n in range(2)}
            case 2 | 3:
                yield "half an ans"
                yield {1: DeltaToolCall(name="pay", json_args="{", tool_call_id=f"x{len(asked)}")}
                raise DOWN
            case _:
                yield "well"

    agent: Agent[None, str] = Agent(FunctionModel(stream_function=stream))

    @agent.tool_plain(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        ran.append(len(asked))
        return "paid"

    hosted = Hosted(agent, after_error=RetryErrors(times=3, delay=AT_ONCE))
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send("hello")
        await bench.fact(receipt.thread, "paused")
        one, two = await bench.runner.requests(by=ME)
        await bench.runner.answer(one.id, Decision.approve(), by=ME)
        await bench.runner.answer(two.id, Decision.reject("no"), by=ME)
        run = await bench.run(receipt)
    assert (run.status, run.output, ran) == (RunStatus.COMPLETED, "well", [1])
    # What a try has left of an answer is shown to none of the later ones.
    assert asked[1] == asked[2] == asked[3]


async def test_an_error_between_approved_calls_repeats_none_of_them(stack: Stack, database: Database) -> None:
    ran: list[int] = []
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain(requires_approval=True, sequential=True)
    async def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        if n == 1:
            raise TimeoutError("down")
        return "paid"

    retry = RetryErrors(times=1, delay=AT_ONCE, errors=(TimeoutError,))
    async with bench_of(stack, database, Hosted(agent, after_error=retry)) as bench:
        receipt = await bench.send('call pay {"n": 1} | call pay {"n": 2} ;; say done')
        await bench.fact(receipt.thread, "paused")
        for request in await bench.runner.requests(by=ME):
            await bench.runner.answer(request.id, Decision.approve(), by=ME)
        run = await bench.run(receipt)
    assert (run.status, run.attempt) == (RunStatus.COMPLETED, 3)
    assert ran.count(1) == 1
    assert ran.count(2) <= 1


@pytest.mark.parametrize(("tried", "after"), [(0, 2), (1, 4), (5, 64), (19, 3600), (99, 3600), (100, None)])
def test_each_try_waits_twice_as_long(tried: int, after: int | None) -> None:
    found = RetryErrors(times=100, delay=timedelta(seconds=2)).after(DOWN, tried=tried)
    assert found == (None if after is None else timedelta(seconds=after))


@pytest.mark.parametrize("changes", [{"times": 0}, {"times": 101}, {"times": 1, "delay": timedelta(hours=2)}])
def test_a_policy_of_retries_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"times|delay"):
        RetryErrors(**changes)


async def test_a_rejection_fails_the_run_where_the_agent_says_so(stack: Stack, database: Database) -> None:
    hosted = Hosted(agent, deps=identity, on_reject="fail")
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send('call pay {"amount": 5} | call pay {"amount": 6} ;; say never')
        await bench.fact(receipt.thread, "paused")
        first, second = await bench.runner.requests(by=ME)
        await bench.runner.answer(first.id, Decision.approve(), by=ME)
        await bench.runner.answer(second.id, Decision.reject("too much"), by=ME)
        run, facts = await bench.run(receipt), await bench.idle(receipt.thread)
        assert (run.status, run.reason) == (RunStatus.FAILED, "rejected")
        assert (run.error or {})["type"] == "rejected"
        # What was approved beside it does not run either.
        assert of_kind(facts, "tool_called") == []
        # The conversation goes on, and the model learns that nothing has happened.
        later = await bench.ask("say next", receipt.thread)
        assert of_kind(later, "run_ended")[-1]["status"] == "completed"


async def test_after_an_approval_such_an_agent_goes_on_as_any_other(stack: Stack, database: Database) -> None:
    async with bench_of(stack, database, Hosted(agent, deps=identity, on_reject="fail")) as bench:
        receipt = await bench.send('call pay {"amount": 5} ;; say done')
        await bench.fact(receipt.thread, "paused")
        [request] = await bench.runner.requests(by=ME)
        await bench.runner.answer(request.id, Decision.approve(), by=ME)
        assert (await bench.run(receipt)).status is RunStatus.COMPLETED


async def test_an_approval_that_nobody_gives_in_time_fails_such_a_run(
    stack: Stack, database: Database
) -> None:
    hosted = Hosted(agent, deps=identity, on_reject="fail", terms=Terms(expires_in=timedelta(hours=1)))
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.send('call pay {"amount": 5} | call pay {"amount": 6} ;; say never')
        await bench.fact(receipt.thread, "paused")
        first, _ = await bench.runner.requests(by=ME)
        await bench.runner.answer(first.id, Decision.approve(), by=ME)
        await database._pool.execute("UPDATE threadhold.requests SET expires_at = clock_timestamp()")
        await bench.fact(receipt.thread, "run_ended")
        run, facts = await bench.run(receipt), await bench.idle(receipt.thread)
    assert (run.status, run.reason) == (RunStatus.FAILED, "rejected")
    assert of_kind(facts, "tool_called") == []


async def test_a_text_that_comes_instead_of_an_approval_fails_such_a_run(
    stack: Stack, database: Database
) -> None:
    async with bench_of(stack, database, Hosted(agent, deps=identity, on_reject="fail")) as bench:
        receipt = await bench.send('call pay {"amount": 5} | call ask {"question": "?"} ;; say never')
        await bench.fact(receipt.thread, "paused")
        assert (await bench.send("rather not", receipt.thread)).disposition == "replied"
        run = await bench.run(receipt)
    assert (run.status, run.reason) == (RunStatus.FAILED, "rejected")
