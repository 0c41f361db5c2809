"""`ps --watch`: what is shown when, and that neither a replica's absence nor Ctrl-C leaves a mess."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from tests.cli.conftest import Api, RunCli
from tests.cli.test_commands import objects
from tests.http.records import NOW, run_of, why_of
from threadhold.adapters.cli import looking, ps_command
from threadhold.adapters.cli.board import Away, Board, Seen
from threadhold.adapters.cli.looking import watch
from threadhold.adapters.client import ClientError

GONE: Final = ClientError("unreachable", "no answer from http://a (refused); start it with `threadhold dev`")
SEEN: Final = Seen(runs=[run_of("r1"), run_of("r2")], known={"r1": why_of(run_of("r1"))}, at=NOW)


class Enough(Exception):
    """The test has seen what it wants."""


async def watched(*finds: Seen | ClientError | TimeoutError) -> list[Board]:
    """Watch looks that end so, one second of our clock after the other; return what was shown."""
    boards: list[Board] = []
    looks, seconds = iter(finds), iter(range(1000))

    async def look() -> Seen:
        found = next(looks, None)
        if found is None:
            raise Enough
        if isinstance(found, Exception):
            raise found
        return found

    async def pause(wait: float) -> None:
        assert wait == looking.EVERY_S

    def now() -> datetime:
        return NOW + timedelta(seconds=next(seconds))

    with pytest.raises(Enough):
        await watch(look, boards.append, limit=50, now=now, pause=pause)
    return boards


async def test_an_absence_is_told_with_what_was_seen_before_and_passes() -> None:
    hangs = TimeoutError()
    fault = ClientError("http_502", "bad gateway", status=502)
    first, gone, still, slow, back = await watched(SEEN, GONE, fault, hangs, SEEN)
    assert first.caption(0) == "2 runs at 12:00:00 UTC, looked at every 2 s; Ctrl-C ends"
    assert gone.caption(0) == (
        "2 runs at 12:00:00 UTC; away for 1 s: no answer from http://a (refused); "
        "tried again every 2 s, Ctrl-C ends"
    )
    assert "away for 2 s: bad gateway" in still.caption(0)
    assert "away for 3 s: no answer within 10 s" in slow.caption(0)
    assert [each.style for each in (first, gone, back)] == ["dim", "yellow", "dim"]
    assert gone.rows() == [
        ("r1", "support", "local", "running", "1", "2 s", "w1-0123456789ab"),
        ("r2", "support", "local", "running", "1", "2 s", ""),
    ]
    assert back.away is None


async def test_each_look_is_a_record_and_its_runs() -> None:
    first, gone = await watched(SEEN, GONE)
    look, *runs = first.records()
    assert look == {"look": {"at": "2026-03-01T12:00:00+00:00", "runs": 2}}
    assert [(run["run"]["id"], "claim" in run) for run in runs] == [("r1", True), ("r2", False)]
    told = {"code": "unreachable", "message": GONE.message}
    assert gone.records() == [{"look": {"at": "2026-03-01T12:00:02+00:00", "runs": 0, "away": told}}]


@pytest.mark.parametrize(
    "finds", [(GONE,), (SEEN, ClientError("unauthenticated", "who are you?", status=401))]
)
async def test_a_first_look_that_fails_and_a_refusal_end_it(finds: tuple[Any, ...]) -> None:
    with pytest.raises(ClientError) as caught:
        await watched(*finds)
    assert caught.value is finds[-1]


async def test_a_replica_that_hangs_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_S_MAX", 0.01)
    with pytest.raises(ClientError, match="overloaded, or frozen"):
        await watch(lambda: asyncio.Event().wait(), print, limit=1)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("count", "limit", "hidden", "said"),
    [
        (0, 50, 0, "no runs at"),
        (1, 50, 0, "1 run at"),
        (2, 2, 0, "the newest 2 runs at"),
        (3, 50, 2, "3 runs (2 more have no room) at"),
    ],
)
def test_the_caption_counts(count: int, limit: int, hidden: int, said: str) -> None:
    seen = Seen(runs=[run_of()] * count, known={}, at=NOW)
    board = Board(seen=seen, away=None, now=NOW, every=2.0, limit=limit)
    assert board.caption(hidden).startswith(said)
    away = Board(seen=seen, away=Away(error=GONE, since=NOW), now=NOW, every=2.0, limit=limit)
    assert away.caption(hidden).startswith(said)


def interrupted_after(count: int, meanwhile: Callable[[], None]) -> Callable[[float], Awaitable[None]]:
    """Return a pause that does something at its first time, and is interrupted at the last."""
    left = [meanwhile] + [lambda: None] * (count - 2)

    async def pause(seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    return pause


def test_in_a_pipe_each_look_is_a_table_without_control_codes(
    api: Api, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = interrupted_after(3, api.runner.known_runs.clear)
    monkeypatch.setattr(ps_command, "watch_runs", partial(watch, pause=pause))
    monkeypatch.setenv("FORCE_COLOR", "1")
    ended = run_cli("ps", "--watch", "--url", api.url)
    assert (ended.code, ended.err) == (130, "")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ended.out)
    assert "\x1b" not in plain
    assert [line.split()[:2] for line in plain.splitlines()] == [
        ["RUN", "AGENT"], ["run-1", "support"], ["1", "run"], ["no", "runs"], ["no", "runs"],
    ]  # fmt: skip


def test_for_programs_each_look_is_lines(api: Api, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = interrupted_after(2, api.runner.known_runs.clear)
    monkeypatch.setattr(ps_command, "watch_runs", partial(watch, pause=pause))
    ended = run_cli("ps", "--watch", "--json", "--url", api.url)
    assert (ended.code, ended.err) == (130, "")
    assert [next(iter(line)) for line in objects(ended.out)] == ["look", "run", "look"]


def test_nobody_there_at_first_is_exit_code_3(run_cli: RunCli) -> None:
    assert run_cli("ps", "--watch", "--url", "http://127.0.0.1:9").code == 3


# It starts a process, on a machine that may be slow.
@pytest.mark.timeout(240)
@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal_the_table_stays_in_its_place_and_ctrl_c_leaves_it_tidy(api: Api, columns: int) -> None:
    main, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "20", "TERM": "xterm", "NO_COLOR": "1"}
    watching = subprocess.Popen(
        [sys.executable, "-m", "threadhold", "ps", "--watch", "--url", api.url],
        stdin=other, stdout=other, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    os.close(other)
    written = b""
    while written.count(b"Ctrl-C ends") < 2:
        written += os.read(main, 65536)
    watching.send_signal(signal.SIGINT)
    while chunk := _read(main):
        written += chunk
    assert (watching.wait(20), watching.communicate()[1]) == (130, b"")
    os.close(main)
    text = written.decode()
    # It hides the cursor, goes up to its first line for each look, and shows the cursor again.
    assert text.startswith("\x1b[?25l")
    assert text.endswith("\x1b[?25h")
    looks = text.split("\r\x1b[2K")[0]
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", looks).splitlines()]
    assert max(map(len, lines)) <= columns
    assert (lines[0].split()[0] == "run-1") is (columns == 60)
    assert "\x1b[1A" in text


def _read(fd: int) -> bytes:
    """Return what a terminal says; nothing once all that wrote to it have left."""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
