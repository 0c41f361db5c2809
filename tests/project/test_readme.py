"""What the README shows is true: its code runs, its commands, options, make targets, settings and paths exist."""

import re

import pytest
from typer.main import get_command

from tests.project.sources import ROOT
from threadhold import Threadhold
from threadhold.adapters.cli import entry
from threadhold.adapters.http.app import ROUTERS
from threadhold.adapters.settings import Settings

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [body for language, body in BLOCKS if language == "python"]
LINES = [
    line.split("#")[0].strip() for language, body in BLOCKS if not language for line in body.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("threadhold ")]


@pytest.mark.parametrize("code", PYTHON)
def test_python_runs(code: str) -> None:
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    if "app =" in code:
        assert isinstance(scope["app"], Threadhold)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_options_exist(line: str) -> None:
    _, name, *words = line.split()
    command = get_command(entry.app).commands[name]  # type: ignore[attr-defined]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {word for word in words if word.startswith("--")} <= known


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for line in LINES if line.startswith("make ")}
    assert named == {"demo", "test"}
    assert named <= targets


def test_every_setting_is_listed_with_its_name() -> None:
    table = README.partition("## Settings")[2].partition("## ")[0]
    first_cells = re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(
        Settings.model_fields
    )


def test_paths_of_the_doors_exist() -> None:
    routes = {route.path for router in ROUTERS for route in router.routes}
    doors = README.partition("## The doors")[2].partition("\n\nA message")[0]
    named = {
        re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"(/(?:v1/[\w/{}]+|healthz|readyz))", doors)
    }
    assert named <= {re.sub(r"\{[\w:]+\}", "{}", path) for path in routes}


@pytest.mark.parametrize("path", re.findall(r"\]\(([\w./]+)\)", README))
def test_linked_files_exist(path: str) -> None:
    assert (ROOT / path).exists()


def load_example(path: str) -> object:
    """Run an example as `threadhold dev` does, and return its app."""
    scope: dict[str, object] = {"__name__": "example"}
    exec(compile((ROOT / path).read_text(), path, "exec"), scope)
    return scope["app"]


def test_examples_that_are_named_exist() -> None:
    assert set(re.findall(r"(examples/\w+\.py):app", README)) == {
        f"examples/{name}.py" for name in ("approvals", "demo", "support")
    }


@pytest.mark.parametrize("name", ["approvals", "support"])
def test_examples_need_no_key_to_be_imported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert isinstance(load_example(f"examples/{name}.py"), Threadhold)


@pytest.mark.model
def test_demo_example_offers_an_app() -> None:
    assert isinstance(load_example("examples/demo.py"), Threadhold)
