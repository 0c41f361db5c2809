"""SQL stands in the .sql files of storage/ and nowhere else: a fence and its lock are read in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.sources import ROOT, name_of, product_files

# Upper-case key words anywhere, or a literal that starts like a statement in any case.
SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE [a-z_.\"]+ SET|DELETE FROM|FOR UPDATE|ON CONFLICT|RETURNING)\b"
    r"|\b(CREATE|ALTER|DROP) (OR REPLACE |UNIQUE )?(TABLE|INDEX|FUNCTION|SCHEMA|DATABASE|TYPE|ROLE)\b"
    r"|^\s*(?i:select\s+(\d|\*|[\w.]+\s*\(|[\w.,\s]+\bfrom\b)|insert\s+into|update\s+\S+\s+set|delete\s+from|notify\s+\w+$)"
)


def elsewhere() -> list[Path]:
    """Return the files that must hold no SQL: all Python of the product and of the examples."""
    return product_files() + sorted((ROOT / "examples").rglob("*.py"))


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is not a docstring; the parts of an f-string one by one."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", elsewhere(), ids=name_of)
def test_no_sql_in_python(path: Path) -> None:
    found = {line: text for line, text in literals(path.read_text()) if SQL.search(text)}
    assert not found, "move it to a .sql file in storage/, behind a port"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 'SELECT 1'", True),
        ("x = 'select fence from threadhold.claims'", True),
        ("x = f'update {table} set a = 1'", False),  # cut in two
        ("x = f'DELETE FROM {table}'", True),
        ("x = 'with t as (select 1) INSERT INTO t'", True),
        ("x = 'Select the agent that answers'", False),
        ("x = 'update: a newer state'", False),
        ("def f():\n    'Run a SELECT.'", False),
    ],
)
def test_sql_is_told_from_prose(source: str, found: bool) -> None:
    assert any(SQL.search(text) for _, text in literals(source)) is found
