"""Ways to run a command as `threadhold` runs it, without the seconds that a new Python takes."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.cli.answering import AnsweringRunner, answering
from threadhold.adapters.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Outcome]


@dataclass(frozen=True)
class Api:
    """A server that answers."""

    url: str
    runner: AnsweringRunner


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in ("URL", "DATABASE_URL", "REDIS_URL", "STATE", "CAPACITY"):
        monkeypatch.delenv(f"THREADHOLD_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    """Run a command to its end."""

    def run(*args: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["threadhold", *args])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main()
        written = capsys.readouterr()
        code = exited.value.code
        return Outcome(code if isinstance(code, int) else 0, written.out, written.err)

    return run


@pytest.fixture
def api() -> Iterator[Api]:
    """Serve for one test."""
    with answering() as (url, runner):
        yield Api(url, runner)
