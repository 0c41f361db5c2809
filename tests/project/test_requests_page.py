"""What the page on pauses and answers says is read off the code."""

import re

import pytest
from typer.main import get_command

from tests.project.sources import ROOT
from threadhold import Threadhold
from threadhold.adapters.cli import entry
from threadhold.adapters.http.app import ROUTERS
from threadhold.adapters.http.errors import WIRE

PAGE = (ROOT / "docs" / "requests.md").read_text()


def test_the_refusals_have_the_status_that_is_sent() -> None:
    table = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)
    sent = {(kind.code, str(row.status)) for kind, row in WIRE.items()}
    assert len(table) == 8
    assert set(table) <= sent


def test_the_paths_exist() -> None:
    routes = {re.sub(r"\{\w+\}", "{}", route.path) for router in ROUTERS for route in router.routes}
    named = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"(/v1/[\w/{}]+)", PAGE)}
    assert named
    assert named <= routes


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`threadhold (\w+)", PAGE))))
def test_the_commands_exist(command: str) -> None:
    assert command in get_command(entry.app).commands  # type: ignore[attr-defined]


def test_the_code_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(code, "requests.md", "exec"), scope)
    assert isinstance(scope["app"], Threadhold)
