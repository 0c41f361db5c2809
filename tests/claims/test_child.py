"""The process that renews: told everything at once, started anew when it dies, and never left behind."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from tests.support.waiting import until
from threadhold.claims import child as child_module
from threadhold.claims.child import ChildProcess
from threadhold.claims.clock import now
from threadhold.claims.ports import Line

ECHO = "import sys\nfor line in sys.stdin:\n sys.stdout.write(line); sys.stdout.flush()"
STUBBORN = (
    "import sys, time\nsys.stdout.write('[\"ready\"]\\n'); sys.stdout.flush()\nwhile True: time.sleep(60)"
)
SLOW = (
    "import sys, time\nsys.stdin.readline(); sys.stdout.write('[\"ready\"]\\n'); sys.stdout.flush()\n" + ECHO
)
Start = Callable[..., ChildProcess]


@pytest.fixture
def heard() -> list[Line]:
    """What the child has said."""
    return []


@pytest.fixture
async def start(heard: list[Line]) -> AsyncIterator[Start]:
    """Start a child with a program of its own; it is ended with the test."""
    started: list[ChildProcess] = []

    def begin(program: str, *greeting: Line) -> ChildProcess:
        made = ChildProcess([sys.executable, "-c", program], first=["first"], fds=[])
        made.start(hear=heard.append, greet=lambda: greeting)
        started.append(made)
        return made

    yield begin
    for one in started:
        await one.aclose()


async def hears(heard: list[Line], *lines: Line) -> None:
    """Return when the child has said exactly this."""

    async def said() -> bool:
        return heard == list(lines)

    await until(said, what=lambda: f"heard {heard[:5]} instead of {lines[:5]}")


async def test_lines_arrive_in_order_even_those_sent_before_it_is_ready(
    start: Start, heard: list[Line]
) -> None:
    child = start(ECHO, ["hold", 1])
    child.send(["look", "a"])
    await hears(heard, ["first"], ["hold", 1], ["look", "a"])


async def test_more_than_the_pipe_takes_arrives_whole(start: Start, heard: list[Line]) -> None:
    child = start(SLOW)
    lines = [["hold", number, "x" * 6000] for number in range(100)]
    for line in lines:
        child.send(line)
    await hears(heard, ["ready"], *lines)


async def test_killed_one_is_replaced_and_the_next_is_told_everything_again(
    start: Start, heard: list[Line]
) -> None:
    child = start(ECHO, ["hold", 1])
    await hears(heard, ["first"], ["hold", 1])
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await hears(heard, ["first"], ["hold", 1], ["first"], ["hold", 1])
    assert child.pid not in (None, first)


async def test_line_to_one_that_has_just_died_is_no_error(start: Start, heard: list[Line]) -> None:
    child = start(ECHO)
    await hears(heard, ["first"])
    assert child._process is not None
    child._process.kill()
    child._process.wait()
    child.send(["drop", "a"])
    child.send(["drop", "b"])
    await hears(heard, ["first"], ["first"])
    child.send(["drop", "c"])
    await hears(heard, ["first"], ["first"], ["drop", "c"])


async def test_one_that_dies_of_its_start_is_started_ever_more_slowly(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    start("raise SystemExit(3)")
    while len(slept) < 8:
        await sleep(0.02)
    assert slept[:8] == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


async def test_program_that_is_not_there_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    child = ChildProcess(["/nowhere/python"], first=["first"], fds=[])
    heard: list[Line] = []
    child.start(hear=heard.append, greet=lambda: [])
    child.send(["look", "a"])
    child._command = [sys.executable, "-c", ECHO]
    await hears(heard, ["first"])
    await child.aclose()


async def test_one_that_does_not_end_is_killed(
    start: Start, heard: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "END_WITHIN_S", 0.1)
    child = start(STUBBORN)
    await hears(heard, ["ready"])
    process = child._process
    assert process is not None
    await child.aclose()
    assert process.returncode == -signal.SIGKILL
    assert child.pid is None


async def test_one_that_is_ended_ends_by_itself(
    start: Start, heard: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python may take its time to end; a kill would not be an end by itself.
    monkeypatch.setattr(child_module, "END_WITHIN_S", 50.0)
    child = start(ECHO)
    await hears(heard, ["first"])
    process = child._process
    assert process is not None
    await child.aclose()
    assert process.returncode == 0


async def test_however_often_it_has_died_another_one_follows_though_tools_have_taken_all_threads(
    start: Start, heard: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "RESTART_AFTER_S_MAX", 0.01)
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    # More than the pool has.
    taken = [loop.run_in_executor(None, gate.wait) for _ in range(64)]
    try:
        child = start(ECHO)
        await hears(heard, ["first"])
        child._deaths = 2_000
        child._started = now()
        assert child._process is not None
        child._process.kill()
        await hears(heard, ["first"], ["first"])
    finally:
        gate.set()
        await asyncio.gather(*taken)


async def test_one_that_has_died_is_waited_for_though_nobody_replaces_it_any_more(start: Start) -> None:
    child = start(ECHO)
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the loop must not hear of it yet
    # The loop hears of its death, and it is closed before anything else happens.
    child._read()
    assert child.pid is None
    await child.aclose()
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it returns at once
