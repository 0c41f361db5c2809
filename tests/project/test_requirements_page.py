"""The page on requirements has each line once, in our words, with tests that exist."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.project.sources import ROOT
from tests.repositories.conformance import CHECKS

PAGE: Final = (ROOT / "docs" / "requirements.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if re.match(r"\| [ABC]\d", line)
]
IDS: Final = [f"{group}{n}" for group, last in (("A", 24), ("B", 38), ("C", 39)) for n in range(1, last + 1)]
LATER: Final = {"C31", "C32"}
WORDS_MAX: Final = 15
# What both hold are checks of a suite, and no tests by themselves.
SUITE: Final = ("tests/repositories/reads.py", "tests/repositories/writes.py")
NAMED: Final = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAGE)))


def test_each_line_stands_there_once_and_in_order() -> None:
    assert [row[0] for row in ROWS] == IDS


def test_each_row_says_what_is_asked_what_is_done_and_where_that_is_shown() -> None:
    for id, asked, done, tests in ROWS:
        assert 0 < len(asked.split()) <= WORDS_MAX, id
        assert done.endswith("."), id
        assert ("`tests/" in tests) is (id not in LATER), id
        assert re.fullmatch(r"later|`tests/[\w/.]+::\w+`(, `tests/[\w/.]+::\w+`)*", tests), id


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of the functions of a file."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in functions(path)
    assert name in CHECKS if path in SUITE else name.startswith("test_")


def test_the_links_lead_somewhere() -> None:
    for path, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", PAGE):
        heads = re.findall(r"^##+ (.*)$", (ROOT / "docs" / path).read_text(), re.MULTILINE)
        assert not anchor or anchor in {head.lower().replace(" ", "-") for head in heads}, (path, anchor)


def test_words_of_an_error_or_a_setting_are_those_of_the_code() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "runner").rglob("*.py"))
    words = {
        word for row in ROWS for word in re.findall(r"`([a-z]+(?:_[a-z]+)*)(?:\(\))?`", row[2]) if "_" in word
    }
    assert len(words) > 15
    assert {word for word in words if word not in sources} <= {"open_repository"}
