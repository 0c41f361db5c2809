"""Most processes of these tests are forks: what one of them sees and leaves is what a process sees and leaves."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.forked import can_be_forked
from tests.support.processes import START_S_MAX, Process
from tests.system.conftest import ROOT

# Each starts a process of its own, on a machine that may be slow.
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only"),
]

LOOKS = """
import json, os, signal, sys
print(json.dumps({
    "environment": dict(sorted(os.environ.items())),
    "folder": os.getcwd(),
    "arguments": sys.argv,
    "path": sys.path,
    "main": sys.modules["__main__"].__spec__.name,
    "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "terminal": [each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)],
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "counts": "coverage" in sys.modules and sys.modules["coverage"].Coverage.current() is not None,
}, indent=1), flush=True)
raise LookupError("seen enough")
"""
WAITS = """
import time
print("waits", flush=True)
time.sleep(600)
"""


def begin(folder: Path, source: str, *, forked: bool) -> Process:
    """Start a worker with an app that goes by this source."""
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(source)
    log = folder / "log"
    log.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": ROOT, "AGENTS": "an own one"}
    return Process(["worker", "app.py:app"], env=env, log=log, forked=forked)


def test_a_fork_sees_what_a_process_sees_and_ends_as_it_does(tmp_path: Path) -> None:
    seen = []
    for forked in (True, False):
        process = begin(tmp_path / "here", LOOKS, forked=forked)
        seen.append((process.wait(within=START_S_MAX), process.text()))
    code, text = seen[0]
    assert '"AGENTS": "an own one"' in text
    assert "LookupError: seen enough" in text
    assert code != 0
    assert text == seen[1][1]
    assert code == seen[1][0]


def test_a_fork_is_frozen_and_killed_as_a_process_is(tmp_path: Path) -> None:
    process = begin(tmp_path / "one", WAITS, forked=True)
    process.wait_for("waits")
    assert process.ended() is None
    process.freeze()
    other = begin(tmp_path / "other", WAITS, forked=True)
    other.wait_for("waits")
    assert process.ended() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert other.ended() is None
    assert other.terminate() == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_what_an_interpreter_starts_with_is_for_no_fork() -> None:
    assert can_be_forked({**os.environ, "PYTHONPATH": ROOT, "AGENTS": "an own one"})
    assert not can_be_forked({**os.environ, "PYTHONHASHSEED": "7"})
    assert not can_be_forked({**os.environ, "LD_PRELOAD": "/somewhere/libfaketime.so.1"})
