"""Rows on any width and height: ids stay whole, and a caption stays in sight."""

import io
from typing import Final

import pytest
from rich.console import Console, RenderableType

from threadhold.adapters.cli.layout import ROOM_MIN, fitted, laid_out

COLUMNS: Final = ("RUN", "STATUS", "WHERE")
ROW: Final = ("0195f1f0-0000-7000-8000-000000000001", "paused", "waits for 2 approvals and 1 question")
# The id, the status, and the gaps behind them.
BEFORE: Final = 36 + 2 + 6 + 2


def lines(what: RenderableType, width: int) -> list[str]:
    """Return what is printed on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(what, pad=False)]


def test_with_room_it_is_a_table_whose_last_column_is_folded() -> None:
    assert lines(laid_out(COLUMNS, [ROW], 120), 120) == [
        "RUN                                   STATUS  WHERE",
        "0195f1f0-0000-7000-8000-000000000001  paused  waits for 2 approvals and 1 question",
    ]
    narrow = BEFORE + ROOM_MIN
    assert lines(laid_out(COLUMNS, [ROW], narrow), narrow) == [
        "RUN                                   STATUS  WHERE",
        "0195f1f0-0000-7000-8000-000000000001  paused  waits for 2",
        "                                              approvals and 1",
        "                                              question",
    ]


def test_a_last_column_that_may_be_cut_is_not_folded() -> None:
    narrow = BEFORE + ROOM_MIN
    assert lines(laid_out(COLUMNS, [ROW], narrow, cut=True), narrow) == [
        "RUN                                   STATUS  WHERE",
        "0195f1f0-0000-7000-8000-000000000001  paused  waits for 2 app…",
    ]


def test_without_room_each_row_is_a_block_and_its_id_stays_whole() -> None:
    narrow = BEFORE + ROOM_MIN - 1
    empty = ("0195f1f0-0000-7000-8000-000000000002", "", "nobody")
    assert lines(laid_out(COLUMNS, [ROW, empty], narrow), narrow) == [
        ROW[0],
        "  status paused, where waits for 2 approvals and 1 question",
        empty[0],
        "  where nobody",
    ]
    assert lines(laid_out(COLUMNS, [ROW], 40), 40) == [
        ROW[0],
        "  status paused, where waits for 2",
        "  approvals and 1 question",
    ]


def test_wide_characters_take_the_room_that_they_need() -> None:
    wide = ("猫" * 10, "x", "y" * ROOM_MIN)
    width = 20 + 2 + 6 + 2 + ROOM_MIN
    assert lines(laid_out(COLUMNS, [wide], width), width)[0].startswith("RUN ")
    assert lines(laid_out(COLUMNS, [wide], width - 1), width - 1)[0] == "猫" * 10


def test_a_short_last_column_needs_no_more_room_than_it_has() -> None:
    assert lines(laid_out(("A", "B"), [("x", "y")], 4), 4) == ["A  B", "x  y"]


def caption(hidden: int) -> str:
    """Return a caption of one line on a wide terminal."""
    return f"({hidden} hidden)"


@pytest.mark.parametrize(
    ("height", "shown", "hidden"), [(22, 20, 0), (21, 19, 1), (10, 8, 12), (3, 1, 19), (2, 0, 20), (0, 0, 20)]
)
def test_rows_that_have_no_room_above_the_caption_are_left_out(height: int, shown: int, hidden: int) -> None:
    rows = [(str(n), "running", "here") for n in range(20)]
    told = lines(fitted(COLUMNS, rows, caption, "dim", width=80, height=height), 80)
    assert told[-1] == f"({hidden} hidden)"
    assert [line.split()[0] for line in told[1:-1]] == [str(n) for n in range(shown)]


def test_rows_of_several_lines_count_as_many() -> None:
    told = lines(fitted(COLUMNS, [ROW] * 5, caption, "dim", width=40, height=7), 40)
    assert len(told) == 7
    assert (told[0], told[3], told[-1]) == (ROW[0], ROW[0], "(3 hidden)")


def test_no_rows_are_a_caption() -> None:
    assert lines(fitted(COLUMNS, [], caption, "dim", width=80, height=10), 80) == ["(0 hidden)"]
