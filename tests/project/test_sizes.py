"""Functions and files stay small enough to read at one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.project.sources import name_of, other_files, product_files

FUNCTION_LINES_MAX = 70
FUNCTION_LINES_MEDIAN = 10
FILE_LINES_MAX = 400

Function = ast.FunctionDef | ast.AsyncFunctionDef


def length(function: Function) -> int:
    """Return the number of lines without decorators and docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the place and the length of each function in the file, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield f"{name_of(path)}:{node.lineno} {node.name}", length(node)


@pytest.mark.parametrize("path", [*product_files(), *other_files()], ids=name_of)
def test_a_file_and_its_functions_are_short(path: Path) -> None:
    long = {place: lines for place, lines in functions(path) if lines > FUNCTION_LINES_MAX}
    assert not long, f"split these, the limit is {FUNCTION_LINES_MAX} lines"
    lines_total = len(path.read_text().splitlines())
    assert lines_total <= FILE_LINES_MAX, "split the file by noun"


def test_most_functions_are_tiny() -> None:
    lengths = [lines for path in product_files() for _, lines in functions(path)]
    assert median(lengths or [0]) < FUNCTION_LINES_MEDIAN


def test_length_leaves_out_the_docstring() -> None:
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    x = 1\n    return x\n'
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert length(function) == 3
