"""Budgets with real agents: each limit ends a run at its own act, names itself, and counts what was really spent."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.runner.conftest import ME, Bench, House, of_kind
from tests.support import scripted
from tests.support.waiting import until
from threadhold import Budget, Decision, Limits, Price, Principal
from threadhold.runner.machine import RunStatus


async def exhausted(bench: Bench, script: str, thread: str | None = None) -> tuple[dict[str, Any], list[Any]]:
    """Return the error of a run that its budget has ended, and the facts of the thread."""
    receipt = await bench.send(script, thread)
    run, facts = await bench.run(receipt), await bench.idle(receipt.thread)
    assert (run.status, run.reason) == (RunStatus.FAILED, "budget_exhausted"), run
    assert run.error is not None
    told = of_kind(facts, "budget_exhausted")[-1]
    assert {name: told[name] for name in ("scope", "limit", "max", "spent")} == {
        name: run.error[name] for name in ("scope", "limit", "max", "spent")
    }
    return run.error, facts


LOOP = 'call add {"a": 1, "b": 2} ;; call add {"a": 3, "b": 4} ;; call add {"a": 5, "b": 6} ;; say done'


async def test_model_calls(house: House) -> None:
    async with house.bench(Budget("two", run=Limits(model_calls=2))) as bench:
        error, facts = await exhausted(bench, LOOP)
    assert (error["scope"], error["limit"], error["max"], error["spent"]) == ("run", "model_calls", 2, 2)
    assert error["message"] == "the run has used up its model_calls: 2 of 2"
    assert len(of_kind(facts, "model_called")) == 2
    assert len(of_kind(facts, "tool_called")) == 2
    assert len(await house.calls()) == 2


async def test_tool_calls(house: House) -> None:
    async with house.bench(Budget("one", run=Limits(tool_calls=1))) as bench:
        error, facts = await exhausted(
            bench, 'call add {"a": 1, "b": 2} | call add {"a": 3, "b": 4} ;; say x'
        )
    assert (error["limit"], error["spent"]) == ("tool_calls", 1)
    assert len(of_kind(facts, "tool_called")) == 1
    assert (await house.spent("run"))["tool_calls"] == 1


async def test_tokens(house: House) -> None:
    async with house.bench(Budget("few", run=Limits(tokens=60))) as bench:
        error, facts = await exhausted(bench, LOOP)
    called = of_kind(facts, "model_called")
    spent = sum(call["input_tokens"] + call["output_tokens"] for call in called)
    # The one call that went over is the last one; its tool does not run any more either.
    assert (error["limit"], error["spent"]) == ("tokens", spent)
    assert spent - called[-1]["input_tokens"] - called[-1]["output_tokens"] < 60 <= spent
    assert len(of_kind(facts, "tool_called")) == len(called) - 1


async def test_money(house: House) -> None:
    async with house.bench(Budget("poor", run=Limits(money=Decimal("0.00001")))) as bench:
        error, facts = await exhausted(bench, LOOP)
    [call] = of_kind(facts, "model_called")
    assert (error["limit"], Decimal(str(error["spent"]))) == ("money", Decimal(call["cost"]))
    assert Decimal(call["cost"]) > 0


async def test_time_ends_what_is_under_way(house: House, tmp_path: Path) -> None:
    async with house.bench(Budget("quick", run=Limits(seconds=0.2))) as bench:
        error, facts = await exhausted(bench, f'call wait {{"gate": "{tmp_path / "never"}"}} ;; say done')
        assert (error["limit"], error["max"]) == ("seconds", 0.2)
        assert of_kind(facts, "budget_exhausted")[-1]["call"] == "time"
        # The thread goes on as after any other failure.
        thread = (await bench.runner.threads(by=ME))[0].id
        after = await bench.send("say hello", thread)
        assert (await bench.run(after)).status is RunStatus.COMPLETED


async def test_time_counts_while_a_run_works_and_not_while_it_waits_for_people(house: House) -> None:
    async with house.bench(Budget("b", run=Limits(seconds=1000))) as bench:
        receipt = await bench.send('call pay {"amount": 5} ;; say done')
        await bench.idle(receipt.thread)
        [request] = await bench.runner.requests(by=ME)
        await bench.runner.answer(request.id, Decision.approve(), by=ME)
        assert (await bench.run(receipt)).status is RunStatus.COMPLETED
    attempts = await house.rows(
        "SELECT extract(epoch FROM closed_at - started_at)::float8 AS s FROM attempts"
    )
    assert len(attempts) == 2
    worked = sum(row["s"] for row in attempts)
    assert (await house.spent("run"))["seconds"] == pytest.approx(worked, abs=0.05)


async def test_the_depth_of_delegation(house: House) -> None:
    async with house.bench(Budget("flat", depth=2)) as bench:
        error, facts = await exhausted(bench, "call ask_deep {} ;; say done")
    assert (error["limit"], error["max"], error["spent"]) == ("depth", 2, 2)
    asked = [fact for fact in of_kind(facts, "delegated") if fact["did"] == "model_called"]
    assert [(fact["agent"], fact["depth"]) for fact in asked] == [("deeper", 1), ("deeper", 2)]


async def test_agents_that_are_delegated_to_count_in_the_run(house: House) -> None:
    async with house.bench(Budget("shared", run=Limits(model_calls=2))) as bench:
        error, facts = await exhausted(bench, "call ask_expert {} ;; say done")
        did = [(fact["did"], fact["within"]) for fact in of_kind(facts, "delegated")]
        outer = of_kind(facts, "tool_called")[0]["call_id"]
        assert did == [("model_called", outer), ("tool_called", outer), ("tool_returned", outer)]
    assert (error["limit"], error["spent"]) == ("model_calls", 2)
    assert [(call["agent"], call["depth"]) for call in await house.calls()] == [
        ("scripted", 0),
        ("expert", 1),
    ]
    async with house.bench(Budget("enough", run=Limits(tokens=100_000))) as bench:
        facts = await bench.ask("call ask_expert {} ;; say done")
        assert of_kind(facts, "run_ended")[-1]["status"] == "completed"
    assert (await house.spent("run"))["tool_calls"] == 2


@pytest.mark.parametrize("scope", ["thread", "principal", "workspace"])
async def test_limits_of_wider_places_hold_over_runs(house: House, scope: str) -> None:
    budget = replace(Budget("wide"), **{scope: Limits(model_calls=1)})  # type: ignore[arg-type]
    async with house.bench(budget) as bench:
        first = await bench.send("say hello")
        assert (await bench.run(first)).status is RunStatus.COMPLETED
        error, _ = await exhausted(bench, "say again", first.thread)
        assert (error["scope"], error["limit"]) == (scope, "model_calls")
        runner, other = bench.runner, Principal(id="other", workspace="home")
        elsewhere = await bench.run(await bench.send("say new thread"))
        assert elsewhere.status is (RunStatus.COMPLETED if scope == "thread" else RunStatus.FAILED)
        receipt = await runner.send(None, "say hi", by=other, agent="scripted")
        async for _ in runner.watch(receipt.thread, by=other, after="start", until="idle"):
            pass
        assert receipt.run is not None
        theirs = await runner.run(receipt.run, by=other)
        assert theirs.status is (RunStatus.FAILED if scope == "workspace" else RunStatus.COMPLETED)


async def test_limits_of_a_day_begin_anew_the_next_day(house: House) -> None:
    async with house.bench(Budget("daily", principal=Limits(model_calls=1, every="day"))) as bench:
        await bench.run(await bench.send("say one"))
        await exhausted(bench, "say two")
        await house.rows("UPDATE spend SET since = since - interval '1 day' WHERE scope = 'principal'")
        assert (await bench.run(await bench.send("say three"))).status is RunStatus.COMPLETED
        await exhausted(bench, "say four")


async def test_what_counts_by_the_day_counts_by_the_month_as_well_where_another_budget_does(
    house: House,
) -> None:
    daily = Budget("daily", roles=["operator"], principal=Limits(tokens=10**6, every="day"))
    monthly = Budget("monthly", principal=Limits(model_calls=2, every="month"))
    boss = Principal(id="me", workspace="home", roles=frozenset({"operator"}))
    async with house.bench(daily, monthly) as bench:
        for _ in range(2):
            receipt = await bench.runner.send(None, "say hello", by=boss, agent="scripted")
            async for _ in bench.runner.watch(receipt.thread, by=boss, after="start", until="idle"):
                pass
        error, _ = await exhausted(bench, "say more")
    assert error["message"] == "the principal has used up its model_calls of the month: 2 of 2"
    rows = await house.rows("SELECT every, model_calls FROM spend WHERE scope = 'principal' ORDER BY every")
    assert [(row["every"], row["model_calls"]) for row in rows] == [("day", 2), ("month", 2)]


async def test_the_first_budget_that_is_for_somebody_is_the_one_a_run_is_admitted_with(house: House) -> None:
    staff = Budget("staff", roles=["operator"])
    async with house.bench(staff, Budget("guest", run=Limits(model_calls=0))) as bench:
        error, _ = await exhausted(bench, "say hello")
        assert error["max"] == 0
        boss = Principal(id="boss", workspace="home", roles=frozenset({"operator"}))
        receipt = await bench.runner.send(None, "say hello", by=boss, agent="scripted")
        async for _ in bench.runner.watch(receipt.thread, by=boss, after="start", until="idle"):
            pass
        run = await bench.runner.run(receipt.run or "", by=boss)
        assert (run.status, run.budget) == (RunStatus.COMPLETED, "staff")


@pytest.mark.parametrize(("unknown", "known"), [("refuse", False), ("free", False), ("refuse", True)])
async def test_a_model_without_a_price(house: House, unknown: Any, known: bool) -> None:
    own = {"nobody-knows": Price(input=Decimal(1), output=Decimal(2))} if known else {}
    budget = Budget("b", run=Limits(money=Decimal(1)), unknown_price=unknown, prices=own)
    nameless = FunctionModel(stream_function=scripted.stream, model_name="nobody-knows")
    async with house.bench(budget, agent=Agent(nameless)) as bench:
        run = await bench.run(await bench.send("say hello"))
        if unknown == "refuse" and not known:
            assert (run.status, (run.error or {})["type"]) == (RunStatus.FAILED, "price_unknown")
            assert await house.calls() == []
            return
        assert run.status is RunStatus.COMPLETED
        [call] = await house.calls()
        price = Decimal(call["input_tokens"] + 2 * call["output_tokens"]) / 1_000_000
        assert call["cost"] == (price if known else None)
        assert (await house.spent("workspace"))["money"] == (price if known else 0)


async def test_a_response_that_was_cut_off_is_settled_as_well(house: House, tmp_path: Path) -> None:
    async with house.bench(Budget("b")) as bench:
        receipt = await bench.send(f"words 3 0 | hold {tmp_path / 'never'}")

        async def said() -> bool:
            frames = bench.runner.watch(receipt.thread, by=ME, after="start")
            async for delivery in frames:
                if "w3" in str(delivery.frame.data):
                    return True
            return False

        assert await until(said)
        await bench.runner.stop(run=receipt.run, by=ME, wait=10)

        async def settled() -> list[dict[str, Any]]:
            return [call for call in await house.calls() if call["state"] == "settled"]

        [call] = await until(settled)
        assert call["output_tokens"] == 3
        row = await house.spent("workspace")
        assert (row["tokens"], row["held_tokens"]) == (call["input_tokens"] + 3, 0)


async def test_a_call_that_its_provider_refuses_is_not_counted_and_one_that_is_lost_is(house: House) -> None:
    async def refused(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if len(await house.calls()) == 1:
            raise ModelHTTPError(529, "m")
        if len(await house.calls()) == 2:
            raise ConnectionError("cut off")
        yield "well"

    hosted = {"agent": Agent(FunctionModel(stream_function=refused, model_name="m"))}
    budget = Budget("b", run=Limits(tokens=10**6), output_tokens=1000)
    async with house.bench(budget, **hosted) as bench:
        for _ in range(2):
            assert (await bench.run(await bench.send("hello"))).status is RunStatus.FAILED
        assert (await bench.run(await bench.send("hello"))).status is RunStatus.COMPLETED
    calls = await house.calls()
    assert [call["state"] for call in calls] == ["settled", "lost", "settled"]
    assert (calls[0]["input_tokens"], calls[0]["output_tokens"]) == (0, 0)
    assert calls[1]["tokens"] > 1000
    assert (await house.spent("workspace"))["tokens"] == calls[1]["tokens"] + sum(
        calls[2][name] for name in ("input_tokens", "output_tokens")
    )
