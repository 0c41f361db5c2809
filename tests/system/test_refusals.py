"""Processes that cannot start say so in one line, with an exit code, and without a traceback."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import AGENTS, START_S_MAX, Process, Processes, processes
from tests.support.servers import Stack
from tests.system.conftest import ROOT

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

NOBODY_THERE = "postgresql://127.0.0.1:1/x"
AWAY = 3


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Processes]:
    """Start processes whose database does not exist."""
    environment = Stack(NOBODY_THERE, "redis://127.0.0.1:1/0", "th:").environment(PYTHONPATH=ROOT)
    with processes(environment, tmp_path) as some:
        yield some


def only_line(process: Process) -> str:
    """Return the one line that a process wrote before it ended."""
    lines = process.text().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_a_database_that_is_away_is_said_in_one_line(starter: Processes) -> None:
    refused = [
        starter.start("serve", AGENTS, "--port", "0"),
        starter.start("worker", AGENTS),
        starter.start("migrate"),
    ]
    for process in refused:
        assert process.wait(within=START_S_MAX) == AWAY
        line = only_line(process)
        assert line.startswith("threadhold: ")
        assert "database" in line


def test_a_port_in_use_is_said_in_one_line(starter: Processes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = [starter.start(command, AGENTS, "--port", str(port)) for command in ("serve", "dev")]
        for process in refused:
            assert process.wait(within=START_S_MAX) == 1
            line = only_line(process)
            assert f"port {port} " in line
            assert "--port" in line
