"""What may be kept of a thread, for callers of the Runner and of the doors alike."""

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from tests.runner.conftest import ME
from threadhold.runner.app import Threadhold
from threadhold.runner.content import (
    DEPTH_MAX,
    METADATA_CHARS_MAX,
    TITLE_CHARS_MAX,
    checked_metadata,
    checked_title,
    strings_of,
)
from threadhold.runner.errors import InvalidInput
from threadhold.runner.service import Runner


def nested(levels: int) -> dict[str, Any]:
    """Return an object that is so many levels deep."""
    inner: Any = "x"
    for _ in range(levels - 1):
        inner = [inner]
    return {"a": inner}


BAD_TITLES: list[Any] = ["x" * (TITLE_CHARS_MAX + 1), "a\x00b", "\ud800", 7, ["x"]]
BAD_METADATA: list[Any] = [
    [],
    "x",
    {"a": {"b": ["\x00"]}},
    {"a": ("\x00",)},
    {"\x00": 1},
    {"a": "\ud800"},
    {"a": float("nan")},
    {"a": object()},
    {("a", "b"): 1},
    {"a": "x" * METADATA_CHARS_MAX},
    nested(DEPTH_MAX + 1),
    nested(100_000),
]


@pytest.mark.parametrize("title", BAD_TITLES, ids=range(len(BAD_TITLES)))
def test_a_title_that_cannot_be_kept_is_refused_with_its_field(title: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_title(title)
    assert refused.value.data["field"] == "title"


@pytest.mark.parametrize("metadata", BAD_METADATA, ids=range(len(BAD_METADATA)))
def test_metadata_that_cannot_be_kept_is_refused_with_its_field(metadata: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_metadata(metadata)
    assert refused.value.data["field"] == "metadata"


def test_what_can_be_kept_is_returned_as_it_is() -> None:
    title, metadata = "é" * TITLE_CHARS_MAX, {"a": "x" * (METADATA_CHARS_MAX - len('{"a": ""}'))}
    assert (checked_title(title), checked_metadata(metadata)) == (title, metadata)
    assert checked_metadata(nested(DEPTH_MAX)) == nested(DEPTH_MAX)
    assert (checked_title(None), checked_metadata(None)) == (None, None)
    assert (checked_title(""), checked_metadata({})) == ("", {})


def test_the_strings_of_a_value_are_its_keys_as_well() -> None:
    assert strings_of({"a": ["b", {"c": 1}], "d": None}, field="value") == ["a", "d", "b", "c"]


@pytest.mark.parametrize("given", [{"title": "\x00"}, {"metadata": {"a": "\x00"}}])
async def test_the_runner_refuses_it_before_anything_is_asked_of_the_database(given: dict[str, Any]) -> None:
    nobody: dict[str, Any] = dict.fromkeys(
        (
            "threads",
            "messages",
            "runs",
            "requests",
            "log",
            "executions",
            "grants",
            "spend",
            "holding",
            "wires",
            "hub",
        )
    )
    runner = Runner(Threadhold(agents={"a": Agent(TestModel())}), **nobody)
    (field,) = given
    for call in (
        runner.create_thread(agent="a", by=ME, **given),
        runner.update_thread("t", by=ME, **given),
    ):
        with pytest.raises(InvalidInput) as refused:
            await call
        assert refused.value.data["field"] == field
