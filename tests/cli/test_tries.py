"""execute, executions, checkpoints, replay, and what `show` and `history` say of these, of runs that really ran."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.cli.conftest import Api, Outcome, RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.frames import fact
from tests.cli.test_commands import objects
from tests.support.servers import TestServers
from threadhold.adapters.cli import tries_commands
from threadhold.adapters.cli.view import ChatView
from threadhold.adapters.client import Client
from threadhold.runner.executions import ExecutionTree

PAY: Final = "Pay 120 euros for invoice 17, cost centre 4."
NOBODY: Final = "0195f1f0-0000-7000-8000-000000000001"


@pytest.fixture(scope="module")
def desk(servers: TestServers) -> Iterator[Desk]:
    """Open one desk for all tests of this file."""
    with open_desk(servers) as opened:
        yield opened


@pytest.fixture
def at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> None:
    """Lead the commands there."""
    monkeypatch.setenv("THREADHOLD_URL", desk.url)


def done(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the records of a command that has succeeded."""
    assert outcome.code == 0, outcome.err
    return objects(outcome.out)


def said(outcome: Outcome) -> str:
    """Return what a command wrote on stderr, without the log of the worker that shares it here."""
    return "".join(line for line in outcome.err.splitlines(keepends=True) if '"event"' not in line)


def refusal(outcome: Outcome) -> str:
    """Return the code of a command that was refused."""
    assert (outcome.code, outcome.out) == (1, "")
    (told,) = objects(said(outcome))
    return str(told["code"])


def names(records: list[dict[str, Any]]) -> list[str]:
    """Return what each record is."""
    return [next(iter(record)) for record in records]


@pytest.fixture
def paid(at_the_desk: None, run_cli: RunCli) -> dict[str, Any]:
    """Return the receipt of an execution that has paused, was allowed to go on, and is completed."""
    receipt: dict[str, Any] = done(run_cli("execute", "approvals", PAY, "--json"))[0]["receipt"]
    (asked,) = done(run_cli("requests", "--thread", receipt["thread"], "--json"))
    assert run_cli("answer", asked["request"]["id"], "--approve").code == 0
    assert run_cli("tail", receipt["thread"], "--until-idle").code == 0
    return receipt


def test_an_execution_prints_its_answer_and_says_what_it_is(at_the_desk: None, run_cli: RunCli) -> None:
    started = run_cli("execute", "approvals", "What can you do?", "--key", "k1")
    assert (started.code, started.out) == (0, "I pay invoices.\n")
    ids = re.fullmatch(r"started: execution (\S+), thread (\S+), run (\S+)\n", said(started))
    assert ids is not None
    again = run_cli("execute", "approvals", "What can you do?", "--key", "k1")
    assert (again.out, said(again)) == (started.out, said(started).replace("\n", " (started before)\n"))
    quick = run_cli("execute", "approvals", "What can you do?", "--key", "k1", "--no-wait")
    assert (quick.out, said(quick)) == (said(again), "")
    other = run_cli("execute", "approvals", "Something else.", "--key", "k1", "--json")
    assert refusal(other) == "key_conflict"
    records = done(run_cli("execute", "approvals", "What can you do?", "--key", "k1", "--json"))
    assert (records[0]["receipt"]["execution"], records[0]["receipt"]["duplicate"]) == (ids[1], True)
    assert [each["seq"] for each in records[1:] if each["kind"] == "fact"] == list(range(1, 7))
    assert records[-1]["kind"] == "end"


def test_an_execution_that_pauses_says_how_to_answer(at_the_desk: None, run_cli: RunCli) -> None:
    asked = run_cli("execute", "approvals", PAY)
    assert asked.code == 0
    assert asked.out.endswith("(paused: the run waits for an answer)\n")
    execution, request = (
        re.findall(f"{word} ([0-9a-f-]+)", asked.err)[0] for word in ("execution", "answer")
    )
    shown = run_cli("show", execution)
    assert shown.code == 0
    lines = shown.out.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines[1:6])
    assert (lines[0], fields["status"], fields["mission"]) == (f"execution {execution}", "paused", PAY)
    tree = [line for line in lines if line.startswith(("thread ", "  run ", "    "))]
    assert [line.split()[0] for line in tree] == ["thread", "run", "attempt", "approval"]
    assert (tree[0].endswith("  paused"), tree[1].endswith("  paused: waits for 1 approval")) == (True, True)
    assert tree[2].endswith("paused")
    assert tree[3].startswith(f"    approval {request}  pay(")
    records = done(run_cli("show", execution, "--json"))
    assert names(records) == ["execution", "thread", "run", "attempt", "request"]
    assert (records[0]["cut_short"], records[-1]["request"]["id"]) == (False, request)


def test_executions_come_in_pages_that_say_how_to_go_on(at_the_desk: None, run_cli: RunCli) -> None:
    for n in range(3):
        assert run_cli("execute", "approvals", f"Try {n},\n" + "and more " * 30).code == 0
    page = run_cli("executions", "--limit", "2")
    assert page.code == 0
    head, *rows = page.out.splitlines()
    assert head.split() == ["EXECUTION", "AGENT", "FOR", "STATUS", "AGE", "MISSION"]
    assert [row.split()[1:3] for row in rows] == [["approvals", "local"]] * 2
    ids = [row.split()[0] for row in rows]
    assert said(page).endswith(f"executions --before {ids[-1]} --limit 2\n")
    while found := done(run_cli("executions", "--before", ids[-1], "--limit", "2", "--json")):
        assert names(found) == ["execution"] * len(found)
        ids += [line["execution"]["id"] for line in found]
    assert ids == [line["execution"]["id"] for line in done(run_cli("executions", "--json"))]
    assert ids == sorted(set(ids), reverse=True)
    tries = [row for row in run_cli("executions").out.splitlines() if "Try" in row]
    assert [(row.split()[3], " Try " in row, row.endswith("…")) for row in tries] == [
        ("completed", True, True)
    ] * 3
    assert run_cli("executions", "--before", ids[-1]).out == "no more executions\n"


def test_checkpoints_of_a_run_are_listed_shown_and_read(run_cli: RunCli, paid: dict[str, Any]) -> None:
    listed = run_cli("checkpoints", paid["run"])
    assert listed.code == 0
    head, *rows = listed.out.splitlines()
    assert head.split() == ["CHECKPOINT", "ATTEMPT", "MESSAGES", "ENDS", "IN", "REQUESTS", "SEQ", "AGE"]
    records = [line["checkpoint"] for line in done(run_cli("checkpoints", paid["run"], "--json"))]
    assert [row.split()[:6] for row in rows] == [
        [each["id"], str(each["attempt"]), str(each["messages"]), each["ends_in"], str(len(each["requests"])),
         str(each["seq"])]
        for each in records
    ]  # fmt: skip
    assert [each["parent"] for each in records[1:]] == [each["id"] for each in records[:-1]]
    assert [sum(len(each["requests"]) for each in records), records[-1]["attempt"]] == [1, 2]
    assert len(done(run_cli("checkpoints", paid["run"], "--limit", "1", "--json"))) == 1

    paused = next(each for each in records if each["requests"])
    shown = run_cli("show", paused["id"])
    assert shown.out.splitlines()[0] == f"checkpoint {paused['id']}"
    fields = dict(re.findall(r"^  (\w+(?: in)?) +(.*)$", shown.out, re.MULTILINE))
    assert (fields["run"], fields["thread"], fields["attempt"]) == (paid["run"], paid["thread"], "1")
    assert (fields["requests"], fields["ends in"]) == (paused["requests"][0], "response")
    assert (fields["messages"], fields["seq"], fields["parent"]) == (
        str(paused["messages"]), str(paused["seq"]), paused["parent"]
    )  # fmt: skip
    assert done(run_cli("show", paused["id"], "--json")) == [{"checkpoint": paused}]

    assert run_cli("history", paused["id"]).out.splitlines() == [
        f"user: {PAY}",
        '-> pay(invoice="17", euros=120, cost_centre="4")',
    ]
    whole = done(run_cli("history", paid["thread"], "--json"))
    assert done(run_cli("history", records[-1]["id"], "--json")) == whole
    assert done(run_cli("history", paused["id"], "--json")) == whole[:2]
    assert done(run_cli("history", paused["id"], "--limit", "1", "--json")) == whole[:1]


def test_a_run_is_run_again_and_says_so(run_cli: RunCli, paid: dict[str, Any]) -> None:
    records = [line["checkpoint"] for line in done(run_cli("checkpoints", paid["run"], "--json"))]
    returned = [each for each in records if each["ends_in"] == "request"][-1]
    again = run_cli("replay", paid["run"], "--from", returned["id"], "--key", "k2")
    assert (again.code, again.out) == (0, "I pay invoices.\n")
    ids = re.fullmatch(r"started: run (\S+) on thread (\S+), from (\S+)\n", said(again))
    assert ids is not None
    assert (ids[2], ids[3]) == (paid["thread"], returned["id"])
    repeated = run_cli("replay", paid["run"], "--from", returned["id"], "--key", "k2")
    assert (repeated.code, repeated.out) == (0, again.out)
    assert said(repeated) == said(again).replace("\n", " (started before)\n")

    for command in (["ps", "--all"], ["show", paid["execution"]]):
        (line,) = [line for line in run_cli(*command).out.splitlines() if ids[1] in line]
        assert line.endswith(f"replay of {paid['run']}")
    assert f"  replay of {paid['run']}, from {returned['id']}\n" in run_cli("show", ids[1]).out
    assert f"\nIt is a replay of run {paid['run']}, from {returned['id']}.\n" in run_cli("why", ids[1]).out
    (told,) = [line for line in run_cli("facts", paid["thread"]).out.splitlines() if "run_replayed" in line]
    assert told.endswith(f'by="local" origin="{paid["run"]}" checkpoint="{returned["id"]}"')
    assert "replay" not in run_cli("show", paid["run"]).out
    (record,) = done(run_cli("show", ids[1], "--json"))[:1]
    assert (record["run"]["replay_of"], record["run"]["replay_from"]) == (paid["run"], returned["id"])


def test_a_replay_begins_where_the_run_did(run_cli: RunCli, paid: dict[str, Any]) -> None:
    again = done(run_cli("replay", paid["run"], "--json"))
    first = done(run_cli("checkpoints", paid["run"], "--limit", "1", "--json"))[0]["checkpoint"]["id"]
    replay = again[0]["replay"]
    assert (replay["origin"], replay["checkpoint"], replay["duplicate"]) == (paid["run"], first, False)
    facts = [each["data"]["fact"] for each in again[1:] if each["kind"] == "fact"]
    assert (facts[0], facts[-1]) == ("run_started", "paused")
    refused = run_cli("replay", replay["run"], "--json")
    assert refusal(refused) == "not_replayable"
    assert refusal(run_cli("replay", paid["run"], "--json")) == "thread_busy"
    assert run_cli("stop", paid["thread"]).code == 0
    quick = run_cli("replay", paid["run"], "--no-wait")
    assert (quick.code, said(quick), quick.out.startswith("started: run ")) == (0, "", True)


@pytest.mark.parametrize(
    "args",
    [["checkpoints", NOBODY], ["replay", NOBODY], ["history", f"{NOBODY}.1"], ["execute", "nobody", "x"]],
)
def test_what_is_not_there_is_refused(at_the_desk: None, run_cli: RunCli, args: list[str]) -> None:
    assert refusal(run_cli(*args, "--json")) in {"not_found", "unknown_agent"}


def test_a_replay_of_elsewhere_is_refused(run_cli: RunCli, paid: dict[str, Any]) -> None:
    refused = run_cli("replay", paid["run"], "--from", f"{NOBODY}.1", "--json")
    assert refusal(refused) == "not_found"


@pytest.mark.parametrize(
    "args",
    [
        ["execute"],
        ["execute", "support"],
        ["execute", "support", "a", "b"],
        ["executions", "--limit", "0"],
        ["checkpoints"],
        ["checkpoints", "r", "--limit", "0"],
        ["replay"],
        ["replay", "r", "--from"],
    ],
)
def test_wrong_usage_is_exit_code_2(run_cli: RunCli, args: list[str]) -> None:
    assert run_cli(*args).code == 2


def test_a_mission_may_come_from_stdin(api: Api, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries_commands, "stdin_text", lambda: "two\nlines")
    started = run_cli("execute", "support", "-", "--url", api.url)
    assert (started.code, started.out) == (0, "echo: two\nlines\n")


def test_a_failed_execution_is_exit_code_1(api: Api, run_cli: RunCli) -> None:
    failed = run_cli("execute", "support", "fail", "--url", api.url)
    assert (failed.code, failed.out) == (1, "the run failed (error): no luck\n")
    empty = run_cli("execute", "support", "", "--json", "--url", api.url)
    assert refusal(empty) == "invalid_input"


def test_nothing_to_list_is_said(api: Api, run_cli: RunCli) -> None:
    api.runner.known_executions.clear()
    api.runner.known_checkpoints.clear()
    assert run_cli("executions", "--url", api.url).out == "no executions\n"
    assert run_cli("checkpoints", "run-1", "--url", api.url).out == "no checkpoints\n"


def test_a_replay_is_shown_behind_its_first_fact(api: Api, run_cli: RunCli) -> None:
    assert run_cli("execute", "support", "hello", "--url", api.url).out == "echo: hello\n"
    replayed = run_cli("replay", "run-1", "--url", api.url)
    assert (replayed.code, replayed.out) == (0, "echo: again\n")


def test_a_tree_that_is_cut_short_says_so(
    run_cli: RunCli, paid: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Client.execution

    async def cut(client: Client, execution: str) -> ExecutionTree:
        return replace(await tree(client, execution), cut_short=True)

    assert said(run_cli("show", paid["execution"])) == ""
    monkeypatch.setattr(Client, "execution", cut)
    assert (
        said(run_cli("show", paid["execution"]))
        == "there is more than this; `show` a thread or a run of it\n"
    )
    assert done(run_cli("show", paid["execution"], "--json"))[0]["cut_short"] is True


def test_who_watches_is_told_that_a_run_is_one_again() -> None:
    view = ChatView()
    begun = fact(7, "run_replayed", origin="r1", checkpoint="r1.2", by="ada")
    assert [piece.text for piece in view.feed(begun)] == ["(ada runs r1 again, from r1.2)\n"]
    assert view.busy
