"""A page of a list, as each command shows it: a record for each item, a table, and how to go on."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal

T = TypeVar("T")


def show_page(
    terminal: Terminal,
    found: Sequence[T],
    *,
    kind: str,
    columns: Any,
    row: Callable[[T], Sequence[Any]],
    before: str | None,
    limit: int,
    cut: bool = False,
) -> None:
    """Show a page of what a command lists.

    Args:
        terminal: where to.
        found: the items; each has an `id`.
        kind: what one of them is called; its plural is the command.
        columns: of the table.
        row: the cells of an item.
        before: what the page began below, if anything.
        limit: how many a page has.
        cut: cut long cells, rather than that lines are broken.
    """
    for item in found:
        terminal.record({kind: asdict(item)})  # type: ignore[call-overload]
    if found:
        terminal.table(columns, [row(item) for item in found], cut=cut)
    else:
        terminal.line(f"no {kind}s" if before is None else f"no more {kind}s")
    if len(found) == limit:
        last: Any = found[-1]
        terminal.note(f"to go on: {program()} {kind}s --before {last.id} --limit {limit}")
