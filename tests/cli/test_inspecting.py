"""threads, show, facts, history, members: what is on record of runs that really ran."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cli.conftest import RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.test_commands import objects
from tests.support.servers import TestServers

PAY: Final = "Pay 120 euros for invoice 17, cost centre 4."
NOBODY: Final = "0195f1f0-0000-7000-8000-000000000001"


@pytest.fixture(scope="module")
def desk(servers: TestServers) -> Iterator[Desk]:
    """Open one desk for all tests of this file."""
    with open_desk(servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> None:
    monkeypatch.setenv("THREADHOLD_URL", desk.url)


def sent(run_cli: RunCli, *args: str) -> dict[str, Any]:
    """Send, wait for the end, and return the receipt."""
    done = run_cli("send", *args, "--json")
    assert done.code == 0, done.err
    receipt: dict[str, Any] = objects(done.out)[0]["receipt"]
    return receipt


@pytest.fixture
def asked(run_cli: RunCli) -> dict[str, Any]:
    """Return the receipt of a run that has answered once and now waits for an approval, on a thread with a member."""
    first = sent(run_cli, "What can you do for me?")
    again = sent(run_cli, first["thread"], PAY)
    assert run_cli("members", first["thread"], "--add", "bob=read").code == 0
    return again


def test_threads_come_in_pages_that_say_how_to_go_on(run_cli: RunCli) -> None:
    for _ in range(3):
        sent(run_cli, "hello")
    page = run_cli("threads", "--limit", "2")
    assert page.code == 0
    head, *rows = page.out.splitlines()
    assert head.split() == ["THREAD", "AGENT", "OWNER", "STATE", "CHANGED", "TITLE"]
    assert all(row.split()[1:4] == ["approvals", "local", "idle"] for row in rows)
    ids = [row.split()[0] for row in rows]
    assert page.err.endswith(f"threads --before {ids[-1]} --limit 2\n")
    all_ids, last = list(ids), ids[-1]
    while found := objects(run_cli("threads", "--before", last, "--limit", "2", "--json").out):
        all_ids += [line["thread"]["id"] for line in found]
        last = all_ids[-1]
    assert all_ids == sorted(set(all_ids), reverse=True)
    assert all_ids == [line["thread"]["id"] for line in objects(run_cli("threads", "--json").out)]
    end = run_cli("threads", "--before", last)
    assert (end.code, end.out, end.err) == (0, "no more threads\n", "")


def test_a_thread_is_shown_with_members_newest_run_and_last_facts(
    run_cli: RunCli, asked: dict[str, Any]
) -> None:
    told = run_cli("show", asked["thread"])
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0] == f"thread {asked['thread']}"
    fields = dict(line.split(maxsplit=1) for line in lines[1 : lines.index("members")])
    assert (fields["agent"], fields["owner"], fields["state"]) == ("approvals", "local", "paused")
    assert fields["run"] == asked["run"]
    assert lines[lines.index("members") + 2].split()[:3] == ["bob", "read", "local"]
    newest = lines[lines.index("newest run") + 2]
    assert (newest.split()[0], "waits for 1 approval" in newest) == (asked["run"], True)
    facts = lines[lines.index("last facts") + 1 :]
    assert [line.split()[1] for line in facts] == [f"#{int(fields['facts']) - 9 + n}" for n in range(10)]
    assert [line.split()[2] for line in facts[-2:]] == ["paused", "member_changed"]
    assert facts[-1].endswith('by="local" member="bob" access="read"')
    records = objects(run_cli("show", asked["thread"], "--json").out)
    assert [next(iter(record)) for record in records] == ["thread", "member", "run"] + ["fact"] * 10
    assert records[2]["requests"] == [
        line["request"]["id"]
        for line in objects(run_cli("requests", "--thread", asked["thread"], "--json").out)
    ]


def test_a_run_is_shown_with_attempts_steps_calls_and_open_requests(
    run_cli: RunCli, asked: dict[str, Any]
) -> None:
    waiting = run_cli("show", asked["run"])
    request = objects(run_cli("show", asked["run"], "--json").out)[-1]["request"]["id"]
    assert f'-> pay(invoice="17", euros=120, cost_centre="4"): waits for request {request}' in waiting.out
    assert waiting.out.splitlines()[-1].split()[:2] == [request, "approval"]
    assert run_cli("answer", request, "--approve").code == 0
    assert run_cli("tail", asked["thread"], "--until-idle").code == 0
    lines = run_cli("show", asked["run"]).out.splitlines()
    tree = [line for line in lines if line.startswith(("attempt", "  #", "    "))]
    assert [line.split()[0] for line in tree] == [
        "attempt",
        tree[1].split()[0],
        "->",
        "<-",
        "attempt",
        tree[5].split()[0],
        "I",
    ]
    assert tree[0].endswith("paused")
    assert "): done" in tree[2]
    assert tree[3] == "       <- paid 120.00 euros for 17 (4)"
    assert (tree[4].split()[1], tree[4].endswith("completed")) == ("2", True)
    assert tree[6] == "    I pay invoices."
    assert "open requests" not in lines
    records = objects(run_cli("show", asked["run"], "--json").out)
    names = [next(iter(record)) for record in records]
    assert names == ["run", "attempt", "attempt", "step", "step", "call"]
    assert (records[0]["run"]["status"], records[-1]["call"]["state"]) == ("completed", "finished")


def test_what_is_nothing_is_not_shown(run_cli: RunCli) -> None:
    for id in (NOBODY, f"{NOBODY}.1", "nonsense", "../../healthz"):
        refused = run_cli("show", id, "--json")
        assert (refused.code, refused.out) == (1, "")
        text = f"there is no execution, thread, run or checkpoint {id!r} that you may see"
        assert objects(refused.err)[0]["message"] == text


def test_facts_begin_and_end_where_one_says(run_cli: RunCli, asked: dict[str, Any]) -> None:
    everything = objects(run_cli("facts", asked["thread"], "--json").out)
    assert [line["fact"]["seq"] for line in everything] == list(range(1, len(everything) + 1))
    some = run_cli("facts", asked["thread"], "--after", "2", "--limit", "3").out.splitlines()
    assert [line.split()[1:3] for line in some] == [
        [f"#{n + 3}", everything[n + 2]["fact"]["kind"]] for n in range(3)
    ]
    assert run_cli("facts", asked["thread"], "--after", str(len(everything))).out == ""
    assert run_cli("facts", NOBODY).code == 1


def test_history_is_what_was_said_and_done(run_cli: RunCli, asked: dict[str, Any]) -> None:
    told = run_cli("history", asked["thread"])
    assert told.out.splitlines() == [
        "user: What can you do for me?",
        "I pay invoices.",
        f"user: {PAY}",
        '-> pay(invoice="17", euros=120, cost_centre="4")',
    ]
    kinds = [line["message"]["kind"] for line in objects(run_cli("history", asked["thread"], "--json").out)]
    assert kinds == ["request", "response"] * 2
    assert len(objects(run_cli("history", asked["thread"], "--limit", "1", "--json").out)) == 1


def test_members_are_let_in_and_out(run_cli: RunCli) -> None:
    thread = sent(run_cli, "hello")["thread"]
    assert run_cli("members", thread).out == "no members\n"
    let_in = objects(run_cli("members", thread, "--add", "a=b=write", "--json").out)
    assert [(line["member"]["principal"], line["member"]["access"]) for line in let_in] == [("a=b", "write")]
    assert run_cli("members", thread, "--add", "a=b=read").out.splitlines()[1].split()[:2] == ["a=b", "read"]
    assert objects(run_cli("members", thread, "--remove", "a=b", "--json").out) == [{"removed": "a=b"}]
    assert run_cli("members", thread).out == "no members\n"
    refused = run_cli("members", thread, "--add", "local=read")
    assert (refused.code, refused.out) == (1, "")


@pytest.mark.parametrize(
    "args",
    [
        ["members", "t", "--add", "bob"],
        ["members", "t", "--add", "=read"],
        ["members", "t", "--add", "bob=all"],
        ["members", "t", "--add", "a=read", "--remove", "a"],
        ["facts", "t", "--after", "-1"],
        ["facts", "t", "--limit", "0"],
        ["threads", "--limit", "0"],
        ["show"],
    ],
)
def test_wrong_usage_is_exit_code_2(run_cli: RunCli, args: list[str]) -> None:
    assert run_cli(*args).code == 2


def test_runs_of_a_principal_are_listed_and_stopped(run_cli: RunCli, asked: dict[str, Any]) -> None:
    listed = [line["run"]["id"] for line in objects(run_cli("ps", "--principal", "local", "--json").out)]
    assert asked["run"] in listed
    assert run_cli("ps", "--principal", "ada").out == "no such runs\n"
    assert run_cli("stop", "--principal", "ada").out == "nothing runs\n"
    stopped = run_cli("stop", "--principal", "local", "--agent", "approvals")
    assert stopped.code == 0
    ends = [line for line in stopped.out.splitlines() if line.startswith("run ")]
    assert sorted(ends) == sorted(f"run {id}: stopped" for id in listed)
    assert run_cli("ps").out == "nothing runs\n"
