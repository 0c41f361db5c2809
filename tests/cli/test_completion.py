"""Completion: what a shell asks when somebody presses TAB, and what it is told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

BIN: Final = Path(sys.executable).parent
# Loads the script as a shell's own start file would, then presses TAB behind the words.
TAB: Final = """
eval "$(_THREADHOLD_COMPLETE=source_bash threadhold)"
complete -p threadhold >/dev/null
COMP_WORDS=(TYPED) COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_threadhold_completion threadhold
printf '%s\\n' "${COMPREPLY[@]}"
"""


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which a shell finds the program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THREADHOLD_")}
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


# It completes for a shell: where that one is not installed, nobody presses TAB in it.
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("threadhold wo", ["worker", "workers"]),
        ("threadhold members t --", ["--add", "--remove", "--json", "--url", "--help"]),
        ("threadhold exec", ["executor", "execute", "executions"]),
        ("threadhold replay r --", ["--from", "--key", "--wait", "--no-wait", "--json", "--url", "--help"]),
        ("threadhold ps --status pa", ["paused"]),
        ("threadhold send --on-busy q", ["queue"]),
    ],
)  # fmt: skip
def test_bash_is_told_what_may_follow(words: str, offered: list[str]) -> None:
    done = subprocess.run(
        ["bash", "-eu", "-c", TAB.replace("TYPED", words)],
        env=environment(), capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("shell", "asked"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "threadhold wo"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "threadhold wo", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_other_shells_are_told_the_same(shell: str, asked: dict[str, str]) -> None:
    """The shells themselves are seldom installed; this is what their scripts run."""
    script, told = (
        subprocess.run(
            ["threadhold"],
            env=environment(_THREADHOLD_COMPLETE=f"{what}_{shell}", **asked),
            capture_output=True,
            text=True,
            timeout=50,
        )
        for what in ("source", "complete")
    )
    assert "_THREADHOLD_COMPLETE=complete_" in script.stdout
    assert "worker" in told.stdout
    assert "workers" in told.stdout
    assert "drain" not in told.stdout


def test_nothing_that_takes_time_is_imported_before_it_is_needed() -> None:
    """Every TAB starts the program; what only some commands need is imported by these."""
    heavy = ["asyncpg", "fastapi", "pydantic_ai", "redis", "uvicorn"]
    code = f"import sys; from threadhold.adapters.cli import entry; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "[]\n"
