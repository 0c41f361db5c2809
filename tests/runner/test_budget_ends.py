"""What calls of models count as once they have ended, however they do: what was billed, and nothing that was not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.runner.conftest import ME, House
from tests.runner.priced import GPT
from tests.support import scripted
from tests.support.waiting import until
from threadhold import Budget, Limits, Price, delegate
from threadhold.runner import journal
from threadhold.runner.errors import Unavailable
from threadhold.runner.machine import RunStatus
from threadhold.storage.work import PostgresWork

BUDGET = Budget("b", output_tokens=1000)
ASKS = "call ask {} ;; say done"


def asking(expert: Model) -> Agent[None, str]:
    """Return an agent whose tool asks a model through another agent, and takes a refusal."""
    agent: Agent[None, str] = Agent(scripted.scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask somebody who knows."""
        try:
            return (await delegate(Agent(expert, name="expert"), "well?")).output
        except ModelHTTPError as error:
            return f"no: {error}"

    return agent


def failing(error: Exception) -> FunctionModel:
    """Return a model of which nothing comes but an error."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if messages:
            raise error
        yield ""

    return FunctionModel(answer, stream_function=stream, model_name="m")


def saying(text: str, name: str, *tokens: int) -> FunctionModel:
    """Return a model that says one thing, which takes so many tokens of input and output."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        given, said = tokens
        return ModelResponse(
            parts=[TextPart(text)], usage=RequestUsage(input_tokens=given, output_tokens=said)
        )

    return FunctionModel(answer, model_name=name)


class Changed(WrapperModel):
    """A model whose responses come otherwise than it made them."""

    def __init__(self, wrapped: Model, **changes: Any) -> None:
        super().__init__(wrapped)
        self.changes = changes

    async def request(self, *args: Any, **options: Any) -> ModelResponse:
        """Ask it."""
        return replace(await super().request(*args, **options), **self.changes)


async def by_expert(house: House) -> list[dict[str, Any]]:
    """Return the calls of the agent that was asked by the other one."""
    return [call for call in await house.calls() if call["agent"] == "expert"]


async def test_a_call_that_was_cut_off_was_billed_though_a_later_one_that_ends_the_run_is_refused(
    house: House,
) -> None:
    agent: Agent[None, str] = Agent(scripted.scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask somebody, and then somebody else, who is too busy."""
        with suppress(ConnectionError):
            await delegate(Agent(failing(ConnectionError("cut off")), name="expert"), "well?")
        return (await delegate(Agent(failing(ModelHTTPError(529, "m")), name="busy"), "well?")).output

    async with house.bench(BUDGET, agent=agent) as bench:
        run = await bench.run(await bench.send(ASKS))
    assert (run.status, run.reason) == (RunStatus.FAILED, "error")
    assert [(call["agent"], call["state"]) for call in await house.calls()] == [
        ("scripted", "settled"),
        ("expert", "lost"),
        ("busy", "settled"),
    ]
    [cut_off] = await by_expert(house)
    assert (await house.spent("run"))["tokens"] > cut_off["tokens"] > 1000


async def test_a_call_that_is_refused_within_a_delegate_costs_nothing(house: House) -> None:
    async with house.bench(BUDGET, agent=asking(failing(ModelHTTPError(429, "m")))) as bench:
        assert (await bench.run(await bench.send(ASKS))).status is RunStatus.COMPLETED
    [refused] = await by_expert(house)
    assert (refused["state"], refused["input_tokens"], refused["output_tokens"]) == ("settled", 0, 0)


async def test_a_fallback_whose_models_all_refuse_costs_nothing(house: House) -> None:
    refused = failing(ModelHTTPError(429, "m"))
    async with house.bench(BUDGET, agent=Agent(FallbackModel(refused, refused))) as bench:
        assert (await bench.run(await bench.send("hello"))).status is RunStatus.FAILED
    [call] = await house.calls()
    assert (call["state"], call["input_tokens"], call["output_tokens"]) == ("settled", 0, 0)


async def test_what_a_fallback_did_not_take_was_billed_as_well(house: House) -> None:
    def is_bad(response: ModelResponse) -> bool:
        return response.text == "bad"

    models = FallbackModel(saying("bad", "a", 1000, 900), saying("good", "b", 7, 3), fallback_on=is_bad)
    async with house.bench(BUDGET, agent=asking(models)) as bench:
        await bench.ask(ASKS)
    [call] = await by_expert(house)
    assert (call["state"], call["input_tokens"], call["output_tokens"]) == ("settled", 1007, 903)


async def test_a_model_that_calls_itself_something_else_has_the_price_of_the_name_it_is_asked_by(
    house: House,
) -> None:
    expert = Changed(saying("x", GPT, 10**6, 10**6), model_name="our-deployment-7")
    budget = replace(BUDGET, prices={"scripted": Price(input=Decimal(0), output=Decimal(0))})
    async with house.bench(budget, agent=asking(expert)) as bench:
        await bench.ask(ASKS)
    [call] = await by_expert(house)
    assert call["cost"] > 10
    assert (await house.spent("run"))["money"] == call["cost"]


async def test_a_call_whose_provider_does_not_count_came_to_what_was_set_aside(house: House) -> None:
    expert = Changed(saying("x", "mute", 1, 1), usage=RequestUsage())
    async with house.bench(BUDGET, agent=asking(expert)) as bench:
        await bench.ask(ASKS)
    [call] = await by_expert(house)
    # It holds up nobody until the attempt is over: it is settled as it ends.
    assert (call["state"], call["input_tokens"] + call["output_tokens"]) == ("settled", call["tokens"])
    assert call["tokens"] > 1000


async def test_the_output_that_a_models_own_settings_allow_is_what_is_set_aside(house: House) -> None:
    own = FunctionModel(stream_function=scripted.stream, model_name="m", settings=ModelSettings(max_tokens=9))
    async with house.bench(BUDGET, agent=Agent(own)) as bench:
        await bench.ask("say hello")
    [call] = await house.calls()
    assert call["tokens"] < 1000


async def test_more_is_set_aside_for_characters_that_take_more_tokens(house: House) -> None:
    async with house.bench(BUDGET) as bench:
        await bench.ask(f"say {'字' * 10_000}")
    [call] = await house.calls()
    assert call["tokens"] > 10_000


async def test_time_is_minded_though_the_answer_of_a_record_is_lost(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = PostgresWork.record
    lost: list[Any] = []

    async def losing(self: PostgresWork, *args: Any, **options: Any) -> Any:
        recorded = await record(self, *args, **options)
        if (options.get("spend") or {}).get("kind") == "model" and not lost:
            lost.append(recorded)
            raise Unavailable("the answer is lost")
        return recorded

    monkeypatch.setattr(PostgresWork, "record", losing)
    monkeypatch.setattr(journal, "RETRY_S", 0)
    async with house.bench(Budget("quick", run=Limits(seconds=0.5))) as bench:
        run = await bench.run(await bench.send(f"hold {tmp_path / 'never'}"))
    assert (run.status, run.reason) == (RunStatus.FAILED, "budget_exhausted")


async def test_delegates_that_are_stopped_while_they_are_asked_leave_a_sound_account(house: House) -> None:
    asked: list[int] = []
    never = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(asked))
        if len(asked) % 2:
            await never.wait()
        return ModelResponse(parts=[TextPart("x")], usage=RequestUsage(input_tokens=7, output_tokens=3))

    agent: Agent[None, str] = Agent(scripted.scripted_model())

    @agent.tool_plain
    async def ask() -> str:
        """Ask many at once."""
        expert = Agent(FunctionModel(answer, model_name="m"), name="expert")
        await asyncio.gather(*(delegate(expert, "well?") for _ in range(20)))
        return "done"

    async with house.bench(BUDGET, agent=agent) as bench:
        receipt = await bench.send(ASKS)

        async def half_settled() -> bool:
            return [call["state"] for call in await by_expert(house)].count("settled") == 10

        await until(half_settled)
        await bench.runner.stop(run=receipt.run, by=ME, wait=10)
        assert (await bench.run(receipt)).status is RunStatus.STOPPED
    calls = await by_expert(house)
    assert sorted(call["state"] for call in calls) == ["lost"] * 10 + ["settled"] * 10
    row = await house.spent("run")
    lost = sum(call["tokens"] for call in calls if call["state"] == "lost")
    [own] = [call for call in await house.calls() if call["agent"] == "scripted"]
    assert (row["held_tokens"], row["tokens"]) == (
        0,
        lost + 10 * 10 + own["input_tokens"] + own["output_tokens"],
    )
