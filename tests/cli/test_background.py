"""`dev --chat`: the servers as a child that reports, that may fail, and that ends with us."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Api
from threadhold.adapters.cli import background
from threadhold.adapters.cli.background import chat_with_dev
from threadhold.adapters.cli.failure import CliError, failure_of
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.settings import Settings

# Says what a test tells it to, writes to its log, and lives until its stdin ends, of which it leaves a trace.
CHILD = """
import pathlib, sys
print("a line for the log", file=sys.stderr)
print(sys.argv[1], flush=True)
if "ready" in sys.argv[1] and sys.argv[2] == "stays":
    sys.stdin.read()
    pathlib.Path("ended").touch()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a folder of one's own, since state lies where one stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/threadhold"), "dev"])
    monkeypatch.setenv("PATH", str(tmp_path))


@contextmanager
def stdin(text: bytes | None) -> Iterator[None]:
    """Put a text on this process's stdin; None is one that never ends."""
    before = os.dup(0)
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)
    if text is not None:
        os.write(write, text)
        os.close(write)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        if text is None:
            os.close(write)


def child_that_says(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], then: str = "stays") -> None:
    """Replace the servers by a script."""
    command = [sys.executable, "-c", CHILD, json.dumps(said), then]
    monkeypatch.setattr(background, "_command", lambda target: command)


def example_file() -> None:
    """Make the example that is suggested."""
    Path("examples").mkdir()
    Path("examples/support.py").touch()


def ready(api: Api) -> dict[str, Any]:
    """Return what servers say when they are ready."""
    return {"ready": {"url": api.url, "agents": ["support"]}}


def chat(settings: Settings | None = None, *, target: str = "x:app", agent: str | None = None) -> int:
    """Run the command."""
    given = settings or Settings()
    coroutine = chat_with_dev(target, given, Terminal(), host="127.0.0.1", port=None, agent=agent)
    return asyncio.run(asyncio.wait_for(coroutine, 40))


def test_it_starts_talks_ends_and_says_what_to_do_next(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child_that_says(monkeypatch, ready(api))
    example_file()
    with stdin(b"hello\n"):
        assert chat() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("starting: ")
    assert lines[1].startswith(f"ready: {api.url} after ")
    assert lines[-3:-1] == ["> hello", "echo: hello"]
    assert lines[-1].startswith("next: .venv/bin/threadhold dev examples/support.py:app --chat ")
    assert Path("ended").exists()
    assert Path(".threadhold/dev.log").read_text() == "a line for the log\n"


@pytest.mark.parametrize("there", [True, False])
def test_what_was_just_run_or_is_not_there_is_not_what_to_do_next(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    child_that_says(monkeypatch, ready(api))
    if there:
        example_file()
    with stdin(b""):
        assert chat(target="./examples/support.py:app" if there else "x:app") == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("next: .venv/bin/threadhold dev path/to/your.py:app --chat ")


def test_an_agent_that_the_app_does_not_have_is_refused_before_anybody_types(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child_that_says(monkeypatch, ready(api))
    with pytest.raises(CliError, match="there is no agent 'nope'; this app has: support") as caught:
        chat(agent="nope")
    assert failure_of(caught.value).exit_code == 2
    assert "next:" not in capsys.readouterr().out


def test_a_signal_that_killed_the_servers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(background, "_command", lambda target: [sys.executable, "-c", script])
    with pytest.raises(CliError, match="did not start, they were killed by SIGKILL; see "):
        chat()


def test_servers_that_fail_tell_their_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    child_that_says(monkeypatch, {"failed": {"code": "embedded_port_in_use", "message": "port 1 is in use"}})
    with pytest.raises(CliError, match="port 1 is in use") as caught:
        chat()
    assert caught.value.code == "embedded_port_in_use"


def test_servers_that_die_while_one_talks_are_told_of(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    child_that_says(monkeypatch, ready(api), then="dies")
    with stdin(None), pytest.raises(CliError, match=r"the reason is at the end of \.threadhold/dev\.log"):
        chat()


def test_servers_that_end_without_a_word_point_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_command", lambda target: [sys.executable, "-c", "pass"])
    with pytest.raises(CliError, match=r"did not start; see \.threadhold/dev\.log"):
        chat()


def test_servers_that_take_too_long_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "READY_S", 0.05)
    monkeypatch.setattr(background, "_command", lambda target: [sys.executable, "-c", "input()"])
    with pytest.raises(CliError) as caught:
        chat()
    assert caught.value.code == "dev_not_ready"


def test_servers_that_do_not_end_are_killed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"import time; print({json.dumps(json.dumps(ready(api)))}, flush=True); time.sleep(1000)"
    monkeypatch.setattr(background, "END_S", 0.05)
    monkeypatch.setattr(background, "_command", lambda target: [sys.executable, "-c", script])
    with stdin(b""):
        assert chat() == 0


def test_a_state_folder_that_cannot_be_had_is_one_line() -> None:
    Path("taken").write_text("")
    with pytest.raises(CliError, match=r"cannot write taken/dev\.log"):
        chat(Settings(state="taken"))


def test_the_real_child_reports_what_is_wrong_with_the_app() -> None:
    Path("broken.py").write_text("print('hi')\n1 / 0\n")
    with pytest.raises(CliError) as caught:
        chat(target="broken.py:app")
    assert caught.value.code == "bad_target"
    assert caught.value.message == "broken.py, line 2: ZeroDivisionError: division by zero"
    assert "hi" in Path(".threadhold/dev.log").read_text()
