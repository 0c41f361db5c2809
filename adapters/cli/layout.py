"""How rows are laid out on a given width and height: as a table, or one below the other where it would break ids."""

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP: Final = 2
# A last column that is narrower makes towers of words.
ROOM_MIN: Final = 16
INDENT: Final = 2

Rows = Sequence[Sequence[str]]


def laid_out(columns: Sequence[str], rows: Rows, width: int, *, cut: bool = False) -> RenderableType:
    """Return rows below their headings; only the last column is folded, or cut, so that ids and times can be copied.

    Where that leaves it no room, each row is its first cell, and below it the others with their headings.
    """
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    room = width - sum(widths[:-1]) - GAP * (len(columns) - 1)
    return (
        _table(columns, rows, room if cut else None)
        if room >= min(widths[-1], ROOM_MIN)
        else _blocks(columns, rows)
    )


def _table(columns: Sequence[str], rows: Rows, cut_at: int | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        cells = [Text(cell) for cell in row]
        if cut_at is not None:
            cells[-1].truncate(cut_at, overflow="ellipsis")
        table.add_row(*cells)
    return table


def _blocks(columns: Sequence[str], rows: Rows) -> Group:
    blocks: list[RenderableType] = []
    for first, *rest in rows:
        named = [f"{name.lower()} {cell}" for name, cell in zip(columns[1:], rest, strict=True) if cell]
        below = Text(", ".join(named), overflow="fold")
        blocks += [Text(first, style="bold", overflow="fold"), Padding(below, (0, 0, 0, INDENT))]
    return Group(*blocks)


def fitted(
    columns: Sequence[str],
    rows: Rows,
    caption: Callable[[int], str],
    style: str,
    *,
    width: int,
    height: int,
) -> RenderableType:
    """Return as many rows as fit above their caption.

    Args:
        columns: the headings.
        rows: the most important one first.
        caption: returns what stands below, given how many rows are left out.
        style: of the caption.
        width: in columns.
        height: in lines.
    """
    console = Console(file=io.StringIO(), width=width)

    def shown(count: int) -> RenderableType:
        below = Text(caption(len(rows) - count), style=style)
        return Group(laid_out(columns, rows[:count], width), below) if count else below

    def lines(count: int) -> int:
        return len(console.render_lines(shown(count), pad=False))

    return shown(bisect_right(range(1, len(rows) + 1), height, key=lines))
