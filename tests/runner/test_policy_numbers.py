"""Rules see numbers as the numbers that a tool is called with, whatever JSON can say of them."""

from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from pydantic_ai import Agent

from tests.runner.conftest import House, of_kind
from tests.support.scripted import scripted_model
from threadhold import Above, Below, Policy, Principal, Rule, ToolAsk
from threadhold.runner.policy import evaluate

ME = Principal(id="me", workspace="home")


def ask(value: Any) -> ToolAsk:
    return ToolAsk(agent="a", tool="pay", args={"n": value}, principal=ME, environment="development")


@pytest.mark.parametrize(
    ("bound", "value", "matches"),
    [
        (Above(1000), Decimal(2000), True),
        (Above(1000), Decimal("1000.01"), True),
        (Above(1000), Decimal(1000), False),
        (Below(1), Decimal("0.99"), True),
        (Above(1000), inf, True),
        (Below(0), -inf, True),
        (Below(1000), inf, False),
        (Above(1000), Decimal("Infinity"), True),
    ],
)
def test_decimals_and_infinities_are_compared(bound: Above | Below, value: Any, matches: bool) -> None:
    assert Rule("r", "deny", args={"n": bound}).matches(ask(value)) is matches


@pytest.mark.parametrize("value", [nan, Decimal("nan"), Decimal("snan")])
@pytest.mark.parametrize("bound", [Above(1000), Below(1000)])
def test_what_is_not_a_number_denies(bound: Above | Below, value: Any) -> None:
    found = evaluate(Policy([Rule("bounded", "allow", args={"n": bound})]), ask(value))
    assert (found.verdict, found.rule, found.reason) == ("deny", "bounded", "this rule could not be asked")


LARGE = ["2000", '"2000.50"', "2000.50", "1e400", '"Infinity"']


@pytest.mark.parametrize("tool", ["wire", "pour"])
async def test_a_rule_over_a_number_holds_however_a_model_writes_it(house: House, tool: str) -> None:
    ran: list[Any] = []
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool_plain
    def wire(amount: Decimal) -> str:
        """Send money."""
        ran.append(amount)
        return "sent"

    @agent.tool_plain
    def pour(amount: float) -> str:
        """Pour litres."""
        ran.append(amount)
        return "poured"

    policy = Policy([Rule("large", "deny", args={"amount": Above(1000)})])
    calls = " | ".join(f'call {tool} {{"amount": {amount}}}' for amount in [*LARGE, '"NaN"', "5"])
    async with house.bench(agent=agent, policy=policy) as bench:
        facts = await bench.ask(f"{calls} ;; say done")
    assert ran == [5]
    assert "5" in of_kind(facts, "tool_called")[0]["args"]
