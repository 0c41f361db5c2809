"""The page on the command line is true: its commands run in order, and its tables are those of the code."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from typer.main import get_command

import threadhold.adapters
from tests.cli.conftest import Outcome, RunCli
from tests.cli.desk import WORKER, Desk, open_desk
from tests.cli.test_commands import FakeProcesses, objects
from tests.cli.test_completion import environment
from tests.cli.test_watching import interrupted_after
from tests.project.sources import ROOT
from tests.support.servers import TestServers
from tests.support.spent import put_spent
from threadhold.adapters.cli import entry, failure, ps_command
from threadhold.adapters.cli.looking import EVERY_S, watch
from threadhold.adapters.settings import Settings

PAGE: Final = (ROOT / "docs" / "cli.md").read_text()
BLOCKS: Final = dict(re.findall(r"<!-- run: (\w+) -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS: Final = get_command(entry.app).commands  # type: ignore[attr-defined]
ID: Final = r"[0-9a-f]{8}-[0-9a-f-]{27}"


@pytest.fixture
def desk(servers: TestServers, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> Iterator[Desk]:
    """Open a desk where the examples lead to."""
    with open_desk(servers) as opened:
        assert opened.stack is not None
        for name, value in opened.stack.environment(THREADHOLD_URL=opened.url).items():
            monkeypatch.setenv(name, value)
        yield opened


def lines(block: str, **ids: str) -> list[list[str]]:
    """Return the commands of a block as words, without the program's name; words in capitals are replaced."""
    found = [shlex.split(line, comments=True) for line in BLOCKS[block].splitlines() if "|" not in line]
    assert all(words[0] == "threadhold" for words in found)
    return [[ids.get(word, word) for word in words[1:]] for words in found]


def done(run_cli: RunCli, block: str, **ids: str) -> list[Outcome]:
    """Run a block, each command to its success."""
    outcomes = [run_cli(*words) for words in lines(block, **ids)]
    assert [outcome.code for outcome in outcomes] == [0] * len(outcomes), outcomes
    return outcomes


def test_the_commands_do_what_the_page_says(
    desk: Desk, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = run_cli(*lines("talk")[0])
    thread = re.findall(f"thread ({ID})", first.err)[0]
    assert first.out == "I pay invoices.\n"
    told = [run_cli(*words) for words in lines("talk", THREAD=thread)[1:]]
    assert [outcome.code for outcome in told] == [0] * 4
    assert told[0].out == "I pay invoices.\n"
    assert f"thread {thread}" in told[1].out
    assert "run_ended" in told[2].out
    assert "event" not in told[3].out

    (asked,) = done(run_cli, "pay")
    assert "(paused: the run waits for an answer)" in asked.out
    run, request = re.findall(f"run ({ID})", asked.err)[0], re.findall(f"answer ({ID})", asked.err)[0]
    paying = re.findall(f"thread ({ID})", asked.err)[0]
    monkeypatch.setattr(ps_command, "watch_runs", partial(watch, pause=interrupted_after(2, lambda: None)))
    watched = run_cli(*lines("watch")[0])
    assert (watched.code, watched.out.count(run)) == (130, 2)
    listed, paused, everything, why, requests, answered = done(run_cli, "look", RUN=run, REQUEST=request)
    assert [run in outcome.out for outcome in (listed, paused, everything)] == [True] * 3
    assert thread not in listed.out
    assert "It is paused and holds no worker" in why.out
    assert request in requests.out
    assert answered.out == f"approved; run {run} goes on\n"
    assert run_cli("tail", paying, "--until-idle").code == 0

    checkpoints = [line["checkpoint"] for line in objects(run_cli("checkpoints", run, "--json").out)]
    asked_at = next(each["id"] for each in checkpoints if each["requests"])
    threads, shown, run_shown, listed, at, facts, history, before, let_in, members, let_out = done(
        run_cli, "inspect", THREAD=paying, RUN=run, CHECKPOINT=asked_at
    )
    assert paying in threads.out
    assert shown.out.startswith(f"thread {paying}\n")
    assert "<- paid 120.00 euros for 17 (4)" in run_shown.out
    assert [line.split()[1] for line in facts.out.splitlines()] == ["#6", "#7", "#8"]
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == [each["id"] for each in checkpoints]
    assert at.out.startswith(f"checkpoint {asked_at}\n")
    assert "<- paid 120.00 euros for 17 (4)" in history.out
    assert before.out.endswith('-> pay(invoice="17", euros=120, cost_centre="4")\n')
    for told_members in (let_in, members):
        assert told_members.out.splitlines()[1].split()[:2] == ["bob", "read"]
    assert let_out.out == "bob is no member\n"

    monkeypatch.chdir(tmp_path)
    exported = done(run_cli, "export", THREAD=paying, RUN=run)[0].out
    complete = [exported, *(Path(name).read_text() for name in ("run.jsonl", "record.jsonl"))]
    assert ['{"end":true' in text.splitlines()[-1] for text in complete] == [True] * 3

    stops = done(run_cli, "stop", THREAD=paying, RUN=run)
    assert stops[0].out == f"nothing runs on thread {paying}\n"
    assert stops[1].out.startswith(f"run {run}: completed")
    assert [outcome.out for outcome in stops[2:]] == ["nothing runs\n"] * 3
    given, _, listed_grants, _ = done(
        run_cli, "grants", THREAD=paying, GRANT=re.findall(ID, run_cli("grant", "x", "--uses", "1").out)[0]
    )
    made = re.findall(f"granted: ({ID}), 10 of wire for night-job\n", given.out)
    assert [made[0] in listed_grants.out, "0/10" in listed_grants.out] == [True] * 2
    assert [outcome.out for outcome in done(run_cli, "spend")] == ["nothing was spent under a budget\n"] * 2
    workers, drained = done(run_cli, "workers", WORKER=WORKER)
    assert drained.out == f"asked to hand over and leave: {workers.out.splitlines()[1].split()[0]}\n"


def test_something_is_achieved_and_done_again(desk: Desk, run_cli: RunCli) -> None:
    first = run_cli(*lines("execute")[0])
    execution, run = re.findall(f"(?:execution|run) ({ID})", first.err)
    told = [run_cli(*words) for words in lines("execute", EXECUTION=execution)[1:]]
    assert [outcome.code for outcome in (first, *told)] == [0] * 4
    assert first.out == "I pay invoices.\n"
    assert told[0].out.startswith("started: execution ")
    assert execution in told[1].out
    assert told[2].out.startswith(f"execution {execution}\n")
    asked = objects(run_cli("checkpoints", run, "--json").out)[0]["checkpoint"]["id"]
    again = done(run_cli, "replay", RUN=run, CHECKPOINT=asked)
    assert [outcome.out for outcome in again] == ["I pay invoices.\n"] * 2
    assert [f"from {asked}" in outcome.err for outcome in again] == [True] * 2
    assert run_cli("show", execution).out.count(f"replay of {run}") == 2
    spoken = objects(run_cli("checkpoints", run, "--json").out)[-1]["checkpoint"]
    assert spoken["ends_in"] == "response"
    refused = run_cli("replay", run, "--from", spoken["id"])
    assert (refused.code, "there is nothing to ask the model" in refused.err) == (1, True)


def test_the_commands_of_pipes_run(desk: Desk, tmp_path: Path) -> None:
    (pipe,) = [line for line in BLOCKS["talk"].splitlines() if "|" in line]
    told = [shell(line, tmp_path) for line in (pipe, *BLOCKS["mcp"].splitlines())]
    assert told[0].splitlines()[:2] == ["> What can you do for me?", "I pay invoices."]
    assert told[1] == ""


def shell(line: str, folder: Path) -> str:
    """Run a line in a shell and return what it wrote on stdout."""
    program = f'threadhold() {{ {shlex.quote(sys.executable)} -m threadhold "$@"; }}\n'
    ran = subprocess.run(
        ["bash", "-euc", program + line], cwd=folder, capture_output=True, text=True, timeout=50,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_commands_about_the_database_run(desk: Desk, run_cli: RunCli) -> None:
    migrated, audited = done(run_cli, "database")
    assert migrated.out == "the database is up to date\n"
    assert audited.out == "no broken invariant\n"


def test_the_commands_that_are_processes_are_called_as_they_are_shown(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeProcesses()
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(threadhold.adapters, "processes", fake, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(ROOT)
    for words, expected in zip(
        lines("processes"), [("port", 8000), ("port", 8002), ("capacity", 50), ("queue", "lab")], strict=True
    ):
        monkeypatch.delitem(sys.modules, "approvals", raising=False)
        assert run_cli(*words).code == 0
        assert fake.called["app"].names == ("approvals",)
        assert fake.called[expected[0]] == expected[1]


def test_completion_is_shown() -> None:
    # A shell that is to do one thing only becomes that thing, and then nobody can tell which shell it was.
    line = f"{BLOCKS['completion']}true"
    ran = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "complete -o default -F _threadhold_completion threadhold" in ran.stdout


def test_every_command_has_an_example_that_is_run() -> None:
    named = {name for name in re.findall(r"threadhold ([a-z]+)", "\n".join(BLOCKS.values()))}
    assert named == set(COMMANDS)
    called = re.findall(
        r"(?:lines|done)\(\s*(?:run_cli, )?\"(\w+)\"|BLOCKS\[[\"'](\w+)", Path(__file__).read_text()
    )
    assert {one or other for one, other in called} == set(BLOCKS)
    assert len(BLOCKS) == PAGE.count("```sh\n")


def test_the_table_of_records_is_true(desk: Desk, run_cli: RunCli) -> None:
    table = PAGE.partition("<!-- table: records -->")[2].partition("\n\n")[0]
    promised = {
        command: re.findall(r"`(\w+)`", records)
        for command, records in re.findall(r"^\| `([\w -]+)` \| (.*) \|$", table, re.MULTILINE)
    }
    with_json = {
        name for name, command in COMMANDS.items() if any("--json" in each.opts for each in command.params)
    }
    assert with_json == {command.split()[0] for command in promised}
    asked = objects(run_cli("send", "Pay 120 euros.", "--json").out)
    receipt = asked[0]["receipt"]
    thread, run = receipt["thread"], receipt["run"]
    request = objects(run_cli("requests", "--json").out)[0]["request"]["id"]
    run_cli("members", thread, "--add", "bob=read")
    executed = objects(run_cli("execute", "approvals", "hello", "--json").out)
    execution, done_run = executed[0]["receipt"]["execution"], executed[0]["receipt"]["run"]
    replayed = objects(run_cli("replay", done_run, "--json").out)
    assert (next(iter(asked[0])), next(iter(executed[0])), next(iter(replayed[0]))) == (
        "receipt",
        "receipt",
        "replay",
    )
    grant = objects(run_cli("grant", "x", "--uses", "1", "--json").out)[0]["grant"]["id"]
    assert desk.stack is not None
    asyncio.run(put_spent(desk.stack.database_url, "default"))
    calls = {
        "grant": ["grant", "x", "--uses", "1"], "grants": ["grants"], "revoke": ["revoke", grant],
        "spend": ["spend"], "executions": ["executions"], "checkpoints": ["checkpoints", run],
        "ps": ["ps"], "why": ["why", run], "requests": ["requests"], "threads": ["threads"],
        "show": ["show", thread], "facts": ["facts", thread], "history": ["history", thread],
        "members": ["members", thread], "workers": ["workers"], "migrate": ["migrate"],
        "answer": ["answer", request, "--reject"], "stop": ["stop", thread], "drain": ["drain", WORKER],
    }  # fmt: skip
    run_shown = {next(iter(line)) for line in objects(run_cli("show", run, "--json").out)}
    for command, words in calls.items():
        found = {next(iter(line)) for line in objects(run_cli(*words, "--json").out)}
        assert found, command
        assert found | (run_shown if command == "show" else set()) <= set(promised[command]), command
    assert run_shown == {"run", "attempt", "step", "call", "request"}
    tree = {next(iter(line)) for line in objects(run_cli("show", execution, "--json").out)}
    assert tree == {"execution", "thread", "run", "attempt"}
    assert {*tree, "checkpoint", "cut_short"} <= set(promised["show"])
    assert {"kind", "cursor"} <= set(asked[1]) & set(
        objects(run_cli("tail", thread, "--until-idle", "--json").out)[0]
    )


def test_the_exit_codes_are_those_of_the_code() -> None:
    codes = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    constants = (failure.OK, failure.FAILED, failure.USAGE, failure.AWAY, failure.INTERRUPTED)
    assert [int(code) for code in codes] == list(constants)


def test_the_variables_and_numbers_are_those_of_the_code() -> None:
    named = set(re.findall(r"`THREADHOLD_(\w+)`", PAGE))
    assert {"URL", "TOKEN"} <= named
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    assert Settings.model_fields["url"].default in PAGE
    assert EVERY_S == 2
    assert "looks every two seconds" in PAGE


def test_the_links_lead_somewhere() -> None:
    for path in re.findall(r"\]\(([\w./]+)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
