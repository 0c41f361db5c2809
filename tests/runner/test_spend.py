"""Whose spending the Runner tells of, to whom, and in which order."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from tests.runner.conftest import ME, Bench, of_kind
from tests.support import scripted
from tests.support.agents import app
from tests.support.servers import Stack
from tests.support.spent import put_spent
from tests.support.waiting import until
from threadhold import Budget, Hosted, Limits, Principal, Runner, Threadhold, open_runner
from threadhold.runner.errors import Closed, InvalidInput, OperatorsOnly
from threadhold.runner.spend import Spend
from threadhold.storage.pool import Database

OPS = Principal(id="ops", workspace="home", roles=frozenset({"operator"}))
JUDGE = Principal(id="judge", workspace="home", roles=frozenset({"user", "approver"}))
ELSEWHERE = Principal(id="me", workspace="elsewhere", roles=frozenset({"operator"}))
MONTH, DAY = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 2, tzinfo=UTC)
ROWS = [
    ("principal", "me", DAY),
    ("workspace", "home", MONTH),
    ("principal", "cy", MONTH),
    ("principal", "bob", MONTH),
    ("principal", "ada", MONTH),
    ("workspace", "home", None),
    ("principal", "ada", None),
    ("principal", "me", None),
]
"""What an operator is told of, in its order."""


@pytest.fixture
async def runner(stack: Stack) -> AsyncIterator[Runner]:
    """A Runner in whose workspace much was spent, and in another one as well."""
    for principal, since, spent in (
        ("ada", None, {"money": Decimal(100), "tokens": 7}),
        ("me", None, {"money": Decimal(99), "tokens": 8}),
        (None, None, {"money": Decimal(3)}),
        ("ada", MONTH, {"money": Decimal("9.5"), "tokens": 1}),
        ("bob", MONTH, {"money": Decimal("9.50"), "tokens": 2}),
        ("cy", MONTH, {"money": Decimal(10)}),
        (None, MONTH, {"money": Decimal(2)}),
        ("me", DAY, {"money": Decimal("0.1")}),
    ):
        await put_spent(stack.database_url, "home", principal, since=since, **spent)
    for principal, scope in ((None, None), ("me", None), ("ada", None), ("r", "run"), ("t", "thread")):
        await put_spent(stack.database_url, "elsewhere", principal, scope=scope, money=Decimal(10**6))
    for scope in ("run", "thread"):
        await put_spent(stack.database_url, "home", "me", scope=scope, money=Decimal(10**6))
    async with open_runner(app, stack.settings()) as opened:
        yield opened


def places(found: list[Spend]) -> list[tuple[str, str, datetime | None]]:
    """Return what each item is about."""
    return [(each.scope, each.id, each.since) for each in found]


async def test_operators_see_their_workspace_and_its_principals_the_newest_and_largest_first(
    runner: Runner,
) -> None:
    assert places(await runner.spend(by=OPS)) == ROWS
    assert places(await runner.spend(by=OPS, limit=3)) == ROWS[:3]
    assert places(await runner.spend(by=OPS, limit=0)) == ROWS[:1]
    assert places(await runner.spend(by=OPS, principal="ada")) == [ROWS[4], ROWS[6]]
    # A principal may be called like a workspace.
    assert await runner.spend(by=OPS, principal="home") == []
    assert [each.money for each in await runner.spend(by=ELSEWHERE, limit=100)] == ["1000000"] * 3
    assert places(await runner.spend(by=ELSEWHERE, principal="bob")) == []


@pytest.mark.parametrize("by", [ME, JUDGE])
async def test_others_see_what_they_have_spent_themselves(runner: Runner, by: Principal) -> None:
    own = [row for row in ROWS if row[:2] == ("principal", by.id)]
    assert places(await runner.spend(by=by)) == own
    assert places(await runner.spend(by=by, principal=by.id)) == own
    for other in ("ada", "home", "nobody"):
        with pytest.raises(OperatorsOnly):
            await runner.spend(by=by, principal=other)
    with pytest.raises(InvalidInput):
        await runner.spend(by=by, principal="")


async def test_at_most_a_hundred_are_told_of(stack: Stack, runner: Runner) -> None:
    for number in range(95):
        await put_spent(stack.database_url, "home", f"p{number}")
    assert len(await runner.spend(by=OPS, limit=1000)) == 100


async def test_a_closed_runner_tells_nothing(runner: Runner) -> None:
    await runner.aclose()
    with pytest.raises(Closed):
        await runner.spend(by=OPS)


async def test_what_a_run_has_spent_is_told_by_the_periods_of_its_budget(
    stack: Stack, database: Database
) -> None:
    agent: Agent[None, str] = Agent(FunctionModel(stream_function=scripted.stream, model_name="gpt-5"))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    budget = Budget("b", principal=Limits(every="day"), workspace=Limits(every="month"))
    hosted = Threadhold(agents={"scripted": Hosted(agent, budget=budget)})
    async with open_runner(hosted, stack.settings(), capacity=1) as runner:
        facts = await Bench(runner, database).ask('call add {"a": 1, "b": 2} ;; say done')

        async def look() -> list[Spend]:
            found = await runner.spend(by=OPS)
            return [] if any(each.held_tokens for each in found) else found

        found = {each.scope: each for each in await until(look)}
    called = of_kind(facts, "model_called")
    assert len(called) == 2
    for spend in found.values():
        assert (spend.model_calls, spend.tool_calls) == (2, 1)
        assert spend.tokens == sum(call["input_tokens"] + call["output_tokens"] for call in called) > 0
        assert Decimal(spend.money) == sum(Decimal(call["cost"]) for call in called) > 0
        assert 0 < spend.seconds < 60
        assert Decimal(spend.held_money) == 0
    assert {scope: spend.id for scope, spend in found.items()} == {"workspace": "home", "principal": "me"}
    day, month = found["principal"].since, found["workspace"].since
    assert day is not None
    assert (day, month) == (
        day.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC),
        day.replace(day=1),
    )
