"""What can be known of the process whose claims are renewed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import until
from threadhold.claims.board import Board
from threadhold.claims.watched import ParentProcess


@pytest.fixture
def board() -> Iterator[Board]:
    """A board that is closed in the end."""
    made = Board()
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a process is stopped")
async def test_stopped_process_is_frozen_until_it_goes_on(board: Board, tmp_path: Path) -> None:
    # The process is named by what could be taken for its state.
    odd = tmp_path / "a) T ("
    odd.symlink_to(shutil.which("sleep") or "")
    process = subprocess.Popen([odd, "60"])  # noqa: ASYNC220
    time = 100.0
    parent = ParentProcess(process.pid, board, clock=lambda: time)
    board.write("tick", 100.0)

    async def frozen() -> bool:
        return parent.frozen()

    async def runs() -> bool:
        return not parent.frozen()

    try:
        assert not parent.frozen()
        process.send_signal(signal.SIGSTOP)
        await until(frozen)
        time = 101.0
        assert parent.frozen()
        assert parent.blocked_s() == 0.0
        process.send_signal(signal.SIGCONT)
        await until(runs)
    finally:
        process.kill()
        process.wait()
    assert not parent.frozen()


def test_process_is_alive_while_it_is_the_parent(board: Board) -> None:
    assert ParentProcess(os.getppid(), board).alive()
    assert not ParentProcess(os.getpid(), board).alive()


def test_loop_is_blocked_since_its_last_tick(board: Board) -> None:
    times = iter([100.0, 101.0, 103.0, 105.0, 105.0, 105.0])
    parent = ParentProcess(os.getpid(), board, clock=lambda: next(times))
    board.write("tick", 99.0)
    for _ in range(3):
        parent.frozen()
    assert parent.blocked_s() == 6.0
    board.write("tick", 105.0)
    assert parent.blocked_s() == 0.0


def test_loop_is_not_blamed_for_a_time_in_which_this_process_did_not_run_either(board: Board) -> None:
    times = iter([100.0, 500.0, 501.0, 501.0])
    parent = ParentProcess(os.getpid(), board, clock=lambda: next(times))
    board.write("tick", 100.0)
    parent.frozen()
    parent.frozen()
    assert parent.blocked_s() == 1.0
