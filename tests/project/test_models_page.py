"""The page on models has each field of each model, names what exists, and its program runs."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import pytest
import typer.main

from tests.project.sources import ROOT
from tests.support.servers import Stack
from threadhold.adapters.cli.entry import app as commands
from threadhold.adapters.http.app import ROUTERS
from threadhold.adapters.settings import Settings
from threadhold.runner import machine, records
from threadhold.runner.checkpoints import Checkpoint
from threadhold.runner.errors import ClaimLost, DecideFirst, ThreadBusy
from threadhold.runner.executions import Execution
from threadhold.runner.machine import InvalidTransition, RunStatus
from threadhold.runner.repositories import OtherProgram, Run, RunChanged, RunExists, UnknownRun
from threadhold.runner.repositories.models import STORED
from threadhold.storage.repositories import PROGRAM_REASONS, RECORD_BYTES_MAX, PostgresRepository

PAGE: Final = (ROOT / "docs" / "models.md").read_text()
SECTIONS: Final = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
MODELS: Final[dict[str, type[Any]]] = {
    "Execution": Execution,
    "Thread": records.Thread,
    "Run": records.Run,
    "Attempt": records.AttemptRecord,
    "Checkpoint": Checkpoint,
    "Request": records.Request,
    "Message": records.Message,
    "Fact": records.Fact,
}
REFUSALS: Final = (
    *(UnknownRun, RunExists, RunChanged, OtherProgram),
    *(InvalidTransition, ClaimLost, ThreadBusy, DecideFirst),
)


def tables(section: str) -> list[tuple[str, list[str]]]:
    """Return the name of the model that each table of fields is of, and the fields in its first column."""
    found = re.findall(r"^\| field of `(\w+)` \|.*\n\|[-|]+\n((?:\|.*\n)+)", SECTIONS[section], re.MULTILINE)
    return [
        (model, [name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])])
        for model, rows in found
    ]


@pytest.mark.parametrize("section", MODELS)
def test_each_field_stands_there_once(section: str) -> None:
    ((model, named),) = tables(section)
    assert model == MODELS[section].__name__
    assert sorted(named) == sorted(field.name for field in fields(MODELS[section]))


def test_the_fields_of_a_record_are_those_of_the_store_and_those_of_its_program() -> None:
    (_, stored), (_, kept) = tables("Record")
    assert sorted(stored) == sorted(STORED)
    assert sorted(kept) == sorted(set(Run.model_fields) - STORED)


def test_all_sections_are_held() -> None:
    assert set(SECTIONS) == {*MODELS, "Record"}


def test_what_is_named_exists() -> None:
    sql = "\n".join(path.read_text() for path in (ROOT / "storage" / "migrations").glob("*.sql"))
    made = set(re.findall(r"^CREATE TABLE (\w+)", sql, re.MULTILINE))
    named = {name for line in re.findall(r"^- SQL: (.*)$", PAGE, re.MULTILINE) for name in _tables_in(line)}
    assert named <= made
    routes = {_plain(route.path) for router in ROUTERS for route in router.routes}
    paths = {_plain(path) for path in re.findall(r"`(?:GET|POST|PUT|PATCH) (/v1/[\w/{}]+)`", PAGE)}
    assert len(paths) > 15
    assert paths <= routes
    verbs = set(re.findall(r"`threadhold (\w+)`", PAGE))
    assert len(verbs) > 7
    assert verbs <= set(typer.main.get_command(commands).commands)  # type: ignore[attr-defined]
    assert all(hasattr(machine, name) for name in ("is_resumable", "is_replayable", "is_archivable"))
    methods = re.findall(
        r"`(\w+)`",
        "".join(re.findall(r"^- (?:Written by|Read with) (`create`.*|`get`.*)$", PAGE, re.MULTILINE)),
    )
    assert len(methods) > 10
    assert all(hasattr(PostgresRepository, name) for name in methods)


def _tables_in(line: str) -> list[str]:
    return [name for name in re.findall(r"`(\w+)`", line) if name not in ("kind", "direct")]


def _plain(path: str) -> str:
    return re.sub(r"\{[\w:]+\}", "{}", path)


def test_the_links_lead_somewhere() -> None:
    for path, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", PAGE):
        target = (ROOT / "docs" / path).read_text()
        heads = {head.lower().replace(" ", "-") for head in re.findall(r"^##+ (.*)$", target, re.MULTILINE)}
        assert not anchor or anchor in heads, (path, anchor)


def test_the_lists_are_those_of_the_code() -> None:
    record = SECTIONS["Record"].partition("| refusal |")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", record, re.MULTILINE)) == {kind.__name__ for kind in REFUSALS}
    assert RECORD_BYTES_MAX == 1024 * 1024
    assert "at most 1 MiB" in PAGE
    words = PAGE.partition("## Other words")[2]
    right = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| \w[^|]* \| (.*) \|$", words, re.MULTILINE))))
    known = {*RunStatus, *Run.model_fields, "approval"}
    assert right <= known
    (failure,) = re.findall(r"^\| `failure_state`, `error` \| (.*) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", failure)) == PROGRAM_REASONS


async def test_the_program_runs(stack: Stack) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "models.md", "exec"), scope)
    main: Callable[[Settings], Any] = scope["main"]
    run = await main(stack.settings())
    assert (run.status, run.final_output, run.completed_steps) == (RunStatus.COMPLETED, 2, ["one", "two"])
