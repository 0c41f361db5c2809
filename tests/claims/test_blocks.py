"""Who blocks the loop, read from the stacks of its process's threads."""

import sys
import threading
import time

import pytest

from threadhold.claims import blocks
from threadhold.claims.blocks import BLOCKED_AFTER_S, Frame, Lookout, blocker, library_folders
from threadhold.claims.doing import Blocker, Doing

LIBRARIES = ["/usr/lib/python3.11", "/app/.venv/lib"]
LOOP = 1
TOOL = [
    Frame("/usr/lib/python3.11/re/__init__.py", 166, "match"),
    Frame("/app/parsing.py", 12, "parse"),
    Frame("/app/agents.py", 40, "grip"),
    Frame("/app/.venv/lib/pydantic_ai/_function_schema.py", 55, "call"),
    Frame("/app/.venv/lib/pydantic_ai/tools.py", 9, "run"),
    Frame("/app/main.py", 3, "main"),
]
IDLE = [Frame("/usr/lib/python3.11/selectors.py", 468, "select"), Frame("<frozen runpy>", 88, "_run_code")]


def test_innermost_place_of_the_application_and_the_tool_are_named() -> None:
    stacks = {2: [Frame("/app/other.py", 1, "idle")], LOOP: TOOL}
    assert blocker(stacks, thread=LOOP, libraries=LIBRARIES) == Blocker("/app/parsing.py:12", "parse", "grip")


def test_plain_function_in_another_thread_is_named_when_the_loop_only_waits() -> None:
    pool = [
        Frame("/app/agents.py", 7, "crunch"),
        Frame("/app/.venv/lib/anyio/_backends/_asyncio.py", 1002, "run"),
        Frame("/usr/lib/python3.11/threading.py", 982, "_bootstrap"),
    ]
    found = blocker({2: pool, LOOP: IDLE}, thread=LOOP, libraries=LIBRARIES)
    assert found == Blocker("/app/agents.py:7", "crunch", "crunch")


@pytest.mark.parametrize("runner", ["runners.py run", "base_events.py run_forever"])
def test_who_has_started_the_loop_does_not_block_it(runner: str) -> None:
    file, function = runner.split()
    started = [
        Frame(f"/usr/lib/python3.11/asyncio/{file}", 118, function),
        Frame("/app/main.py", 3, "main"),
        Frame("/app/.venv/bin/threadhold", 8, "<module>"),
    ]
    pool = [Frame("/app/agents.py", 7, "crunch")]
    found = blocker({LOOP: [*IDLE[:1], *started], 2: pool}, thread=LOOP, libraries=LIBRARIES)
    assert found == Blocker("/app/agents.py:7", "crunch", None)
    within = [Frame("/app/parsing.py", 12, "parse"), *started]
    assert blocker({LOOP: within}, thread=LOOP, libraries=LIBRARIES) == Blocker(
        "/app/parsing.py:12", "parse", None
    )


def test_library_is_named_when_no_application_is_to_be_seen() -> None:
    found = blocker({LOOP: IDLE}, thread=LOOP, libraries=LIBRARIES)
    assert found == Blocker("/usr/lib/python3.11/selectors.py:468", "select", None)


def test_a_call_that_was_under_way_is_named_rather_than_a_library() -> None:
    gone = Blocker("/app/agents.py:7", "crunch", "crunch")
    found = blocker({LOOP: IDLE}, thread=LOOP, libraries=LIBRARIES, under_way=gone)
    assert found == gone
    seen = blocker({LOOP: TOOL}, thread=LOOP, libraries=LIBRARIES, under_way=gone)
    assert seen == Blocker("/app/parsing.py:12", "parse", "grip")


def test_nobody_is_named_without_stacks() -> None:
    assert blocker({}, thread=LOOP, libraries=LIBRARIES) is None


def test_own_libraries_are_not_the_application() -> None:
    folders = library_folders()
    assert any(blocks.__file__.startswith(f"{folder}/") for folder in folders)
    assert any(pytest.__file__.startswith(f"{folder}/") for folder in folders)
    assert any(threading.__file__.startswith(f"{folder}/") for folder in folders)
    assert not any(__file__.startswith(f"{folder}/") for folder in folders)


class Blocked:
    """A lookout over this thread, on a clock of the test's own."""

    def __init__(self) -> None:
        self.time = 100.0
        self.said: list[tuple[float, Blocker | None]] = []
        self.lookout = Lookout(lambda late, who: self.said.append((late, who)), clock=lambda: self.time)
        self.lookout._loop = threading.get_ident()

    def look(self) -> None:
        """Let another thread look while this one is where it is."""
        looking = threading.Thread(target=self.lookout.look)
        looking.start()
        looking.join()


def test_who_blocks_is_said_once_per_block_and_not_of_a_loop_that_ticks() -> None:
    blocked = Blocked()
    blocked.look()
    assert blocked.said == []
    for _ in range(2):
        blocked.time += BLOCKED_AFTER_S
        blocked.look()
    [(late, who)] = blocked.said
    assert late == BLOCKED_AFTER_S
    assert who is not None
    assert (who.function, (who.where or "").startswith(f"{__file__}:")) == ("look", True)
    blocked.lookout.tick()
    blocked.time += BLOCKED_AFTER_S
    blocked.look()
    assert len(blocked.said) == 2


def test_code_that_keeps_the_interpreter_is_named_as_soon_as_it_lets_go() -> None:
    said: list[Blocker | None] = []
    named = threading.Event()

    def say(late: float, who: Blocker | None) -> None:
        said.append(who)
        named.set()

    lookout = Lookout(say)
    interval = sys.getswitchinterval()
    lookout.start()
    try:
        # Nobody else gets the interpreter before this one has been computing for long enough.
        sys.setswitchinterval(BLOCKED_AFTER_S + 0.5)
        end = time.monotonic() + BLOCKED_AFTER_S + 1
        while time.monotonic() < end and not named.is_set():
            pass
        sys.setswitchinterval(interval)
        assert named.wait(20)
    finally:
        sys.setswitchinterval(interval)
        lookout.close()
    assert said[0] is not None
    assert (said[0].where or "").startswith(f"{__file__}:")


def test_a_thread_that_kept_the_interpreter_is_named_by_the_loop_if_that_ticks_before_anybody_has_looked() -> (
    None
):
    blocked, entered, leave = Blocked(), threading.Event(), threading.Event()

    def clutching() -> None:
        entered.set()
        leave.wait()

    thread = threading.Thread(target=clutching)
    thread.start()
    entered.wait()
    blocked.lookout.tick()
    blocked.time += BLOCKED_AFTER_S
    blocked.lookout.tick()
    blocked.look()
    leave.set()
    thread.join()
    [(late, who)] = blocked.said
    assert late == BLOCKED_AFTER_S
    assert who is not None
    assert who.function == "clutching"


def test_a_call_that_is_gone_before_anybody_could_look_is_named_by_the_loop() -> None:
    blocked = Blocked()
    crunch = Blocker("/app/agents.py:7", "crunch", "crunch")
    # Other tests' threads may be anywhere.
    blocked.lookout._libraries.append("")
    blocked.lookout.tick()
    with blocked.lookout.doing.call(crunch):
        blocked.time += BLOCKED_AFTER_S
    blocked.lookout.tick()
    blocked.look()
    assert blocked.said == [(BLOCKED_AFTER_S, crunch)]


def test_of_calls_the_one_that_began_last_and_lasted_through_is_named() -> None:
    doing, time = Doing(clock=lambda: clock[0]), 10.0
    clock = [time]
    first, last, late = (Blocker(None, None, tool) for tool in ("first", "last", "late"))
    ended = doing.call(Blocker(None, None, "ended"))
    with doing.call(first):
        clock[0] = 11.0
        with ended:
            pass
        with doing.call(last):
            clock[0] = 14.0
            assert doing.through(10.5, 14.0) == last
            with doing.call(late):
                assert doing.through(10.5, 14.0) == last
        # The loop sees the end of it as soon as it runs again.
        assert doing.through(10.5, 14.0) == last
        clock[0] = 20.0
        assert doing.through(16.0, 20.0) == first
    assert doing.through(30.0, 34.0) is None
