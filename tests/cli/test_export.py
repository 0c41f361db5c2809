"""export: whole lines on stdout, or a file that is there only once it is complete."""

import json
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome, RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.test_commands import objects
from tests.cli.test_tries import NOBODY, done, said
from tests.http.test_export_streams import fact_of
from tests.support.servers import TestServers
from threadhold.adapters.client import Client, ClientError
from threadhold.runner.exports import ExportedFact


@pytest.fixture(scope="module")
def desk(servers: TestServers) -> Iterator[Desk]:
    """Open one desk for all tests of this file."""
    with open_desk(servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> None:
    """Lead the commands there."""
    monkeypatch.setenv("THREADHOLD_URL", desk.url)


def test_a_thread_a_run_and_everything(run_cli: RunCli, tmp_path: Path) -> None:
    receipts = [done(run_cli("send", "hello", "--json"))[0]["receipt"] for _ in range(2)]
    thread, run = receipts[0]["thread"], receipts[0]["run"]
    *facts, end = done(run_cli("export", "--thread", thread))
    assert end == {"end": True, "facts": len(facts)}
    assert [fact["seq"] for fact in facts] == list(range(1, len(facts) + 1))
    assert {fact["thread"] for fact in facts} == {thread}
    *of_run, _ = done(run_cli("export", "--run", run))
    assert of_run == [fact for fact in facts if fact["run"] == run]

    everything = run_cli("export")
    assert {fact.get("thread") for fact in done(everything)} == {each["thread"] for each in receipts} | {None}
    # In a pipe nobody is told how far it has come.
    assert said(everything) == ""
    file = tmp_path / "record.jsonl"
    file.write_text("old")
    written = run_cli("export", "--output", str(file))
    assert (written.code, written.out, file.read_text()) == (0, "", everything.out)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_person_sees_how_far_it_has_come(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, 3)
    monkeypatch.setattr("threadhold.adapters.cli.export_command.PROGRESS_S", 0.0)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: stream is sys.stderr)
    told = run_cli("export")
    assert said(told) == "\r1 facts\r2 facts\r3 facts\r3 facts\n"
    assert objects(told.out)[-1] == {"end": True, "facts": 3}


def test_what_is_cut_off_leaves_no_file_and_no_end(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, 3, error=ClientError("unreachable", "away"))
    file = tmp_path / "record.jsonl"
    assert run_cli("export", "--output", str(file)).code == 3
    assert list(tmp_path.iterdir()) == []
    file.write_text("old")
    assert run_cli("export", "--output", str(file)).code == 3
    assert (file.read_text(), len(list(tmp_path.iterdir()))) == ("old", 1)
    told = run_cli("export")
    assert (told.code, [json.loads(line)["seq"] for line in told.out.splitlines()]) == (3, [1, 2, 3])


def test_what_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    told = run_cli("export", "--thread", NOBODY)
    assert (told.code, told.out) == (1, "")
    assert f"there is no thread {NOBODY!r}" in said(told)
    assert run_cli("export", "--thread", NOBODY, "--run", NOBODY).code == 2
    nowhere: list[Outcome] = [
        run_cli("export", "--output", str(path)) for path in (tmp_path / "no" / "file", tmp_path)
    ]
    for each in nowhere:
        assert (each.code, said(each).startswith("threadhold: cannot write ")) == (1, True), each
    assert [path.name for path in tmp_path.parent.iterdir() if path.name.endswith(".part")] == []


def serve(monkeypatch: pytest.MonkeyPatch, facts: int, *, error: Exception | None = None) -> None:
    """Let the client bring so many facts, and then end or fail."""

    async def export(self: Client, **given: Any) -> AsyncGenerator[ExportedFact, None]:
        for seq in range(1, facts + 1):
            yield fact_of(seq)
        if error is not None:
            raise error

    monkeypatch.setattr(Client, "export", export)
