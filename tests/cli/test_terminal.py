"""Where text goes, and where lines come from."""

import asyncio
import io
import os
from pathlib import Path

import pytest

from tests.http.records import NOW
from threadhold.adapters.cli import lines as lines_module
from threadhold.adapters.cli.failure import failure_of
from threadhold.adapters.cli.lines import Lines
from threadhold.adapters.cli.terminal import Terminal, printable
from threadhold.adapters.cli.view import Piece
from threadhold.adapters.client import ClientError


def test_text_of_others_cannot_command_the_terminal() -> None:
    assert printable("a\x1b[2Jb\tc\r\nd\x9b1m\x00é") == "a\ufffd[2Jb\tc\nd\ufffd1m\ufffdé"


def test_markup_and_long_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[bold]no markup[/bold] :smile: " + "long " * 100
    Terminal().piece(Piece(text, "answer"))
    assert capsys.readouterr().out == text


def test_a_program_gets_objects_and_a_person_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (Terminal(as_json=True), Terminal()):
        terminal.line("for people")
        terminal.record({"for": "programs", "at": NOW})
        terminal.note("aside")
        terminal.failure(failure_of(ClientError("c", "m", data={"x": 1})))
    written = capsys.readouterr()
    assert written.out == '{"for":"programs","at":"2026-03-01T12:00:00+00:00"}\nfor people\n'
    assert written.err == '{"code": "c", "message": "m", "data": {"x": 1}}\naside\nthreadhold: m\n'


def test_a_table_in_a_pipe_is_as_wide_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    Terminal().table(["ID", "TEXT"], [["0195f1f0-0000-7000-8000-000000000001", "x" * 100 + "\x1b[2J"]])
    Terminal(as_json=True).table(["ID"], [["1"]])
    lines = capsys.readouterr().out.split("\n")
    # Nothing is filled up with blanks, but for what stands before another cell.
    assert lines == [
        f"{'ID':36}  TEXT",
        f"0195f1f0-0000-7000-8000-000000000001  {'x' * 100}\ufffd[2J",
        "",
    ]


def test_a_row_whose_last_cells_are_empty_ends_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().table(["ID", "SAYS", "WHERE"], [["1", "", ""], ["2", "b\u2028b", "c" * 300]])
    assert capsys.readouterr().out == f"ID  SAYS  WHERE\n1\n2   b\u2028b    {'c' * 300}\n"


def test_nobody_is_prompted_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.prompt("> ")
    terminal.erase_line()
    assert capsys.readouterr().out == ""


def test_a_terminal_is_prompted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Tty()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    assert terminal.is_tty
    terminal.prompt("> ")
    terminal.erase_line()
    assert out.getvalue().endswith("\r\x1b[K")
    assert "> " in out.getvalue()


async def test_lines_come_when_they_are_complete() -> None:
    read, write = os.pipe()
    lines = Lines(read)
    os.write(write, b"one\r\ntw")
    assert await lines.next() == "one"
    waiting = asyncio.ensure_future(lines.next())
    os.write(write, b"o\nrest")
    assert await waiting == "two"
    os.close(write)
    assert await lines.next() == "rest"
    assert await lines.next() is None
    os.close(read)
    assert await lines.next() is None


async def test_lines_of_a_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    with path.open("rb") as file:
        lines = Lines(file.fileno())
        assert [await lines.next() for _ in range(3)] == ["a", "b", None]


async def test_a_closed_stdin_is_the_end() -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    assert await Lines(read).next() is None


async def test_a_line_without_end_is_handed_on_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LINE_BYTES_MAX", 10)
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 25)
    with path.open("rb") as file:
        assert await Lines(file.fileno()).next() == "x" * 25


async def test_giving_up_on_a_line_leaves_the_descriptor_alone() -> None:
    read, write = os.pipe()
    lines = Lines(read)
    waiting = asyncio.ensure_future(lines.next())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    os.write(write, b"still here\n")
    assert await lines.next() == "still here"
    os.close(read)
    os.close(write)
