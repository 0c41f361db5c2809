"""Where text goes: styled for a person at a terminal, plain in a pipe, JSON lines for a program."""

import json
import sys
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from threadhold.adapters.cli.failure import Failure
from threadhold.adapters.cli.view import Piece, Style

STYLES: Final[dict[Style, str]] = {
    "answer": "",
    "tool": "dim",
    "note": "yellow",
    "error": "bold red",
    "other": "cyan",
}
# What a model or another person writes must not move the cursor or rename the window.
_CONTROLS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\ufffd") | {
    0x09: "\t",
    0x0A: "\n",
    0x0D: "",
}


def printable(text: str) -> str:
    """Return the text without characters that a terminal takes as commands."""
    return text.translate(_CONTROLS)


class Terminal:
    """Prints.

    Args:
        as_json: one JSON object per line on stdout and nothing else; errors as JSON on stderr.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out = Console(highlight=False, markup=False, soft_wrap=True, emoji=False)
        self._err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, emoji=False)

    @property
    def is_tty(self) -> bool:
        """Tell whether a person watches."""
        return self._out.is_terminal

    def piece(self, piece: Piece) -> None:
        """Print a piece of a conversation as it is."""
        self._out.print(Text(printable(piece.text), style=STYLES[piece.style]), end="")

    def line(self, text: str, style: str = "") -> None:
        """Print a line for people; programs do not get it."""
        if not self.as_json:
            self._out.print(Text(printable(text), style=style))

    def record(self, value: dict[str, Any]) -> None:
        """Print a JSON object for programs; people do not get it."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str) + "\n")
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
