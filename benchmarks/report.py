"""Prints the rows: a table for people, one JSON object per row for scripts; the last line is the figure."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

FIGURES = (
    *("start", "frame", "stop", "load", "detection", "fanout-1000", "streams-lag"),
    *("crowd-lag", "doors-rest-send", "doors-ws-send", "doors-mcp-run"),
)


def print_table(rows: Sequence[Row]) -> None:
    """Print a table, a sentence per row, and the figure."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    table = Table("name", "unit")
    for heading in ("p50", "p95", "p99", "floor p50", "ratio", "goal", "met", "n"):
        table.add_column(heading, justify="right")
    for row in rows:
        met = {None: "-", True: "[green]yes[/]", False: "[red]no[/]"}[row.met]
        values = [_number(value, row.unit) for value in (row.p50, row.p95, row.p99, row.floor_p50)]
        ratio = "-" if row.ratio is None else f"{row.ratio:.1f}x"
        table.add_row(row.name, row.unit, *values, ratio, row.goal, met, str(row.n))
    console.print(table)
    for row in rows:
        console.print(f"{row.name:20} {row.what}", style="dim", soft_wrap=True)
    print(figure(rows))


def print_json(rows: Sequence[Row]) -> None:
    """Print one object per row, and the figure as the last."""
    for row in rows:
        print(json.dumps(asdict(row)))
    print(json.dumps({"figure": figure(rows)}))


def figure(rows: Sequence[Row]) -> str:
    """Return the numbers that stand for the whole, on one line."""
    parts = [
        f"{row.name} {_number(row.p50, row.unit)} {row.unit} ({row.ratio:.1f}x its floor)"
        for row in rows
        if row.name in FIGURES and row.ratio is not None
    ]
    return f"bench: {', '.join(parts)}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if unit in ("/s", "") else f"{value:.2f}"
