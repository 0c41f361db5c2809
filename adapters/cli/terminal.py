"""Where text goes: styled for a person at a terminal, plain in a pipe, JSON lines for a program."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from threadhold.adapters.cli.failure import Failure
from threadhold.adapters.cli.layout import Rows, fitted, laid_out
from threadhold.adapters.cli.view import Piece, Style

STYLES: Final[dict[Style, str]] = {
    "answer": "",
    "tool": "dim",
    "note": "yellow",
    "error": "bold red",
    "other": "cyan",
}
WIDTH_MAX: Final = 1000
# What a model or another person writes must not move the cursor or rename the window.
_CONTROLS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\ufffd") | {
    0x09: "\t",
    0x0A: "\n",
    0x0D: "",
}


def printable(text: str) -> str:
    """Return the text without characters that a terminal takes as commands."""
    return text.translate(_CONTROLS)


def _plain(value: object) -> str:
    """Return what JSON has no form for; times as the API writes them."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _safe(rows: Rows) -> Rows:
    return [[printable(cell) for cell in row] for row in rows]


class Terminal:
    """Prints.

    Args:
        as_json: one JSON object per line on stdout and nothing else; errors as JSON on stderr.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._in_line = False
        self._out = Console(highlight=False, markup=False, soft_wrap=True, emoji=False)
        self._err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, emoji=False)

    @property
    def is_tty(self) -> bool:
        """Tell whether a person watches."""
        return self._out.is_terminal

    def piece(self, piece: Piece) -> None:
        """Print a piece of a conversation as it is."""
        self._out.print(Text(printable(piece.text), style=STYLES[piece.style]), end="")
        self._in_line = not piece.text.endswith("\n")

    def end_line(self) -> None:
        """End the line that the last piece left open, if it did."""
        if self._in_line:
            self._out.print()
            self._in_line = False

    def line(self, text: str, style: str = "") -> None:
        """Print a line for people; programs do not get it."""
        if not self.as_json:
            self._out.print(Text(printable(text), style=style))

    def table(self, columns: Sequence[str], rows: Rows, *, cut: bool = False) -> None:
        """Print rows below their headings for people: as wide as they are in a pipe, fitted at a terminal.

        Args:
            columns: the headings.
            rows: a cell for each of them.
            cut: the last cell of a row may be cut to fit, rather than be folded.
        """
        if self.as_json:
            return
        if self.is_tty:
            self._out.print(laid_out(columns, _safe(rows), self._out.width, cut=cut), soft_wrap=False)
            return
        # Without a person there is no width to keep to, and a folded id is of no use to a program, nor are cells filled
        # with blanks to the end of the line.
        wide = Console(width=WIDTH_MAX, highlight=False)
        with wide.capture() as printed:
            wide.print(laid_out(columns, _safe(rows), WIDTH_MAX), soft_wrap=False)
        for line in printed.get().removesuffix("\n").split("\n"):
            self._out.print(Text(line.rstrip()))

    @contextmanager
    def live(self, columns: Sequence[str]) -> Iterator[Callable[[Rows, Callable[[int], str], str], None]]:
        """Give a way to show rows above a caption in the place of those before; in a pipe, below them.

        Args:
            columns: the headings. The caption is told how many rows have no room.
        """
        if self.as_json or not sys.stdout.isatty() or self._out.is_dumb_terminal:
            yield lambda rows, caption, style: self._below(columns, rows, caption(0), style)
            return
        out = Console(highlight=False, markup=False, emoji=False)
        with Live(console=out, auto_refresh=False, vertical_overflow="crop") as screen:

            def show(rows: Rows, caption: Callable[[int], str], style: str) -> None:
                width, height = out.size
                # The last line is left for what is typed.
                board = fitted(columns, _safe(rows), caption, style, width=width, height=height - 1)
                screen.update(board, refresh=True)

            yield show

    def _below(self, columns: Sequence[str], rows: Rows, caption: str, style: str) -> None:
        if rows:
            self.table(columns, rows)
        self.line(caption, style)
        sys.stdout.flush()

    def record(self, value: dict[str, Any]) -> None:
        """Print a JSON object for programs; people do not get it."""
        if self.as_json:
            sys.stdout.write(
                json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain) + "\n"
            )
            sys.stdout.flush()

    def prompt(self, text: str) -> None:
        """Print a prompt, if a person is there to type behind it."""
        if self.is_tty:
            self._out.print(Text(text, style="bold green"), end="")

    def end_prompt(self) -> None:
        """Leave the line of a prompt behind which nothing more is typed."""
        if self.is_tty:
            self._out.print()

    def erase_line(self) -> None:
        """Take back a prompt behind which nothing was typed."""
        if self.is_tty:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a line on stderr that is neither result nor error."""
        if not self.as_json:
            self._err.print(Text(printable(text), style="yellow"))

    def failure(self, failure: Failure) -> None:
        """Print an error: one line, or one JSON object."""
        if self.as_json:
            sys.stderr.write(json.dumps(failure.fields(), ensure_ascii=False, default=str) + "\n")
            sys.stderr.flush()
        else:
            self._err.print(Text(f"threadhold: {printable(failure.message)}", style="red"))
