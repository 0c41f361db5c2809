"""grant, grants, revoke: what they print, and what they refuse."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.cli.conftest import RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.test_tries import NOBODY, done, refusal, said
from tests.support.servers import TestServers
from threadhold.adapters.cli.durations import InvalidDuration, duration
from threadhold.adapters.cli.tables import grant_row
from threadhold.runner.grants import Grant

NOW: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
GRANT: Final = Grant(
    id="g", workspace="w", capability="wire", principal=None, thread=None, uses=10, used=3, status="usable",
    granted_by="ops", reason="", created_at=NOW - timedelta(minutes=5), expires_at=None, revoked_at=None,
    revoked_by=None,
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


def test_a_grant_is_made_listed_and_revoked(run_cli: RunCli) -> None:
    assert run_cli("grants").out == "no grants\n"
    words = ["grant", "wire", "--uses", "10", "--principal", "bob", "--expires-in", "1h", "--reason", "bills"]
    made = run_cli(*words, "--key", "k1")
    told = re.fullmatch(r"granted: (\S+), 10 of wire for bob\n", made.out)
    assert told is not None, made
    assert run_cli(*words, "--key", "k1").out == made.out
    (record,) = done(run_cli(*words, "--key", "k1", "--json"))
    assert (record["grant"]["id"], record["grant"]["reason"]) == (told[1], "bills")
    assert refusal(run_cli("grant", "wire", "--uses", "9", "--key", "k1", "--json")) == "key_conflict"

    head, row = run_cli("grants").out.splitlines()
    assert head.split() == ["GRANT", "CAPABILITY", "FOR", "USED", "STATUS", "AGE", "REASON"]
    assert row.split()[:5] == [told[1], "wire", "bob", "0/10", "usable"]
    assert row.split()[-1] == "bills"
    assert run_cli("revoke", told[1]).out == f"revoked: {told[1]}, used 0 of 10\n"
    (revoked,) = done(run_cli("revoke", told[1], "--json"))
    assert (revoked["grant"]["status"], revoked["grant"]["revoked_by"]) == ("revoked", "local")
    assert done(run_cli("grants", "--json")) == [revoked]

    newest = done(run_cli("grant", "wire", "--uses", "1", "--json"))[0]["grant"]["id"]
    page = run_cli("grants", "--limit", "1")
    assert newest in page.out
    assert said(page).endswith(f"grants --before {newest} --limit 1\n")
    assert told[1] in run_cli("grants", "--before", newest, "--limit", "1").out
    assert run_cli("grants", "--before", told[1]).out == "no more grants\n"


@pytest.mark.parametrize("args", [["revoke", NOBODY], ["grant", "x", "--uses", "1", "--thread", NOBODY]])
def test_what_is_not_there_is_refused(run_cli: RunCli, args: list[str]) -> None:
    assert refusal(run_cli(*args, "--json")) == "not_found"


@pytest.mark.parametrize(
    "args",
    [
        ["grant"],
        ["grant", "wire"],
        ["grant", "wire", "--uses", "0"],
        ["grant", "wire", "--uses", "1", "--expires-in", "soon"],
        ["grants", "--limit", "0"],
        ["revoke"],
    ],
)
def test_wrong_usage_is_exit_code_2(run_cli: RunCli, args: list[str]) -> None:
    assert run_cli(*args).code == 2


def test_a_row_says_what_is_left() -> None:
    soon, later = NOW + timedelta(seconds=90), "on thread t"
    rows = [
        grant_row(replace(GRANT, **changes), NOW)[2:6]
        for changes in (
            {},
            {"expires_at": soon, "principal": "bob", "thread": "t"},
            {"status": "used_up", "used": 10, "expires_at": soon},
            {"status": "revoked", "revoked_by": "ops"},
        )
    ]
    assert rows == [
        ("anybody", "3/10", "usable", "5 min"),
        (f"bob {later}", "3/10", "usable for 1.5 min", "5 min"),
        ("anybody", "10/10", "used up", "5 min"),
        ("anybody", "3/10", "revoked by ops", "5 min"),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), (" 1h ", 3600), ("7d", 604_800), ("5 min", 300)]
)
def test_times_as_they_are_typed(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "1.5h", "-1h", "1w", "9999999999s", "1h30m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidDuration):
        duration(text)
