"""Finding the user's app, and errors that speak of their code."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from threadhold.adapters.cli.target import TargetError, load_app
from threadhold.runner.app import Threadhold

APP = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from threadhold.runner.app import Threadhold
import neighbour_of_app

app = Threadhold(agents={"echo": Agent(TestModel())})
other = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand in a folder with an app and a module that it imports; leave no trace in this Python."""
    place = tmp_path / "my apps"
    place.mkdir()
    (place / "support_app.py").write_text(APP)
    (place / "neighbour_of_app.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refused(target: str) -> str:
    """Return the message of a refusal."""
    with pytest.raises(TargetError) as caught:
        load_app(target)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_file_is_loaded_with_its_folder_on_the_path(folder: Path) -> None:
    app = load_app("my apps/support_app.py:app")
    assert isinstance(app, Threadhold)
    assert app.names == ("echo",)


def test_a_module_is_found_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load_app("support_app:app").names == ("echo",)


def test_a_file_may_be_named_like_a_module_that_is_loaded(folder: Path) -> None:
    (folder / "json.py").write_text(APP)
    assert load_app("my apps/json.py:app").names == ("echo",)
    assert sys.modules["json"].__name__ == "json"
    assert hasattr(sys.modules["json"], "dumps")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("support_app", "'support_app' names no app; write it as module:app or path/file.py:app"),
        (":app", "names no app"),
        ("nowhere/x.py:app", "there is no file nowhere/x.py"),
        (".:app", "'.' is no module; write it as module:app or path/file.py:app"),
        ("..support_app:app", "'..support_app' is no module"),
        (f"{'x' * 300}.py:app", "cannot be read: File name too long"),
        ("no_such_module_here:app", "there is no module 'no_such_module_here' here or installed"),
        ("my apps/support_app.py:ap", "my apps/support_app.py has no 'ap'; it has app"),
        ("my apps/support_app.py:other", "'other' in my apps/support_app.py is a int, not a Threadhold"),
    ],
)
def test_what_cannot_be_found_is_named(folder: Path, target: str, said: str) -> None:
    assert said in refused(target)


def test_a_module_without_any_app_is_told_how_to_make_one(folder: Path) -> None:
    assert refused("my apps/neighbour_of_app.py:app").endswith("add `app = Threadhold(agents={...})`")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("import no_such_package_there\n", "line 1: ModuleNotFoundError: No module named"),
        ("def f(:\n    pass\n", "line 1: SyntaxError: invalid syntax"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        (
            "from threadhold.runner.app import Threadhold\napp = Threadhold(agents={})\n",
            "line 2: ValueError: an app needs",
        ),
    ],
)
def test_an_error_in_the_users_code_is_told_with_its_place(folder: Path, code: str, said: str) -> None:
    (folder / "broken_app.py").write_text(code)
    message = refused("my apps/broken_app.py:app")
    assert message.startswith("my apps/broken_app.py, ")
    assert said in message


@pytest.mark.parametrize("content", [b"\0\1\2", b"\xff\xfe\n"])
def test_a_file_that_python_cannot_read_is_named(
    folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "binary_app.py").write_bytes(content)
    monkeypatch.chdir(folder)
    message = refused("binary_app.py:app")
    assert message.startswith("binary_app.py")
    assert "<frozen" not in message


def test_an_error_in_a_module_that_the_app_imports_is_told_there(folder: Path) -> None:
    (folder / "neighbour_of_app.py").write_text("1 / 0\n")
    said = "my apps/neighbour_of_app.py, line 1: ZeroDivisionError: division by zero"
    assert refused("my apps/support_app.py:app") == said
