"""spend: what it prints, of whom, and what it refuses."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest

from tests.cli.conftest import RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.test_tries import done, said
from tests.support.servers import TestServers
from tests.support.spent import put_spent
from threadhold.adapters.cli.tables import spend_row
from threadhold.runner.spend import Spend

MAY: Final = datetime(2026, 5, 1, tzinfo=UTC)
SPEND: Final = Spend(
    scope="principal", id="bob", every="month", since=MAY,
    model_calls=2, tool_calls=1, tokens=300, money="0.25", seconds=90.0,
    held_tokens=0, held_money="0",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(servers: TestServers) -> Iterator[Desk]:
    """Open one desk for all tests of this file."""
    with open_desk(servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> None:
    """Lead the commands there."""
    monkeypatch.setenv("THREADHOLD_URL", desk.url)


def test_what_was_spent_is_listed(desk: Desk, run_cli: RunCli) -> None:
    assert run_cli("spend").out == "nothing was spent under a budget\n"
    assert desk.stack is not None
    for principal, money in ((None, Decimal("1.5")), ("bob", Decimal("0.25")), ("ada", Decimal(1))):
        asyncio.run(put_spent(desk.stack.database_url, "default", principal, since=MAY, money=money))
    told = run_cli("spend")
    rows = [line.split() for line in told.out.splitlines()]
    assert " ".join(rows[0]) == "WHOSE SINCE MODEL CALLS TOOL CALLS TOKENS DOLLARS WORK SET ASIDE"
    assert [row[1] for row in rows[1:]] == ["default", "ada", "bob"]
    assert [row[0] for row in rows[1:]] == ["workspace", "principal", "principal"]
    assert (rows[3][2], rows[3][8], said(told)) == ("2026-05-01,", "0.25", "")
    records = done(run_cli("spend", "--json"))
    assert [record["spend"]["money"] for record in records] == ["1.5", "1", "0.25"]
    assert done(run_cli("spend", "--principal", "bob", "--json")) == [records[2]]

    cut = run_cli("spend", "--limit", "2")
    assert len(cut.out.splitlines()) == 3
    assert said(cut) == "these are the newest and largest 2; --principal or --limit show others\n"
    assert run_cli("spend", "--limit", "0").code == 2


def test_a_row_says_what_is_set_aside() -> None:
    assert spend_row(SPEND) == (
        "principal bob",
        "2026-05-01, by month",
        "2",
        "1",
        "300",
        "0.25",
        "1.5 min",
        "",
    )
    ever = replace(
        SPEND, scope="workspace", id="home", every="ever", since=None, held_tokens=7, held_money="0.10"
    )
    assert spend_row(ever)[:2] == ("workspace home", "the beginning")
    assert spend_row(ever)[-1] == "7 tokens, 0.10 dollars"
    assert spend_row(replace(ever, held_money="0.00"))[-1] == "7 tokens"
