"""Shows how far the measurements are: a bar on a terminal, a line per measurement elsewhere. Always on stderr."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Meter:
    """The progress of one call."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("bench: {task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def begin(self, name: str, total: int | None = None) -> None:
        """Say what comes next, and how many samples of it."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=total)
        if not self._console.is_terminal:
            samples = f", {total} samples" if total else ""
            self._console.print(f"bench: {name}{samples} ...", highlight=False)

    def tick(self, count: int = 1) -> None:
        """Count samples that are done."""
        if self._task is not None:
            self._progress.advance(self._task, count)
