"""export: the record, for whoever has to keep it or look at it elsewhere."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from threadhold.adapters.cli.connected import Url, with_client
from threadhold.adapters.cli.failure import OK, CliError
from threadhold.adapters.client import Client
from threadhold.runner.exports import end_line

PROGRESS_S: Final = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    thread: Annotated[str | None, typer.Option(help="Only the log of this thread.")] = None,
    run: Annotated[str | None, typer.Option(help="Only what this run left.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="A file, which is there only once it is complete; default stdout.")
    ] = None,
    url: Url = None,
) -> None:
    """Write what is on record as JSON Lines: of a thread, of a run, or, for operators, of the whole workspace.

    The last line is {"end": true, "facts": N}; without it something is missing.
    """
    if thread is not None and run is not None:
        raise typer.BadParameter("give either --thread or --run")

    async def write(client: Client) -> int:
        progress = _Progress(shown=sys.stderr.isatty() and (output is not None or not sys.stdout.isatty()))
        with _written(output) as lines, progress:
            async with aclosing(client.export(thread=thread, run=run)) as facts:
                async for fact in facts:
                    lines.write(fact.line())
                    progress.one_more()
            lines.write(end_line(progress.count))
        return OK

    with_client(url, write)


class _Progress:
    """Counts facts, and shows the number to a person at a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self.count = 0
        self._shown = shown
        self._due = 0.0

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *error: object) -> None:
        """Leave the last number behind."""
        if self._shown:
            self._show("\n")

    def one_more(self) -> None:
        """Count one."""
        self.count += 1
        if self._shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + PROGRESS_S
            self._show("")

    def _show(self, end: str) -> None:
        sys.stderr.write(f"\r{self.count:,} facts{end}")
        sys.stderr.flush()


@contextmanager
def _written(output: Path | None) -> Iterator[TextIO]:
    """Give a place for lines: stdout, or a file that takes its name only when all is written."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = output.parent / f".{output.name}.{os.getpid()}.part"
    try:
        with part.open("x", encoding="ascii") as lines:
            yield lines
            lines.flush()
            os.fsync(lines.fileno())
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        text = f"cannot write {output}: {(error.strerror or str(error)).lower()}"
        raise CliError("cannot_write", text) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
