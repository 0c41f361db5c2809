"""What the page on watching says is read off the code."""

import json
import re
from typing import Any, get_args

import pytest
from pydantic_ai.models.test import TestModel
from typer.main import get_command

from tests.project.sources import ROOT
from threadhold import Threadhold
from threadhold.adapters.cli import entry
from threadhold.adapters.http import greeting, ops, session
from threadhold.adapters.http.app import ROUTERS
from threadhold.adapters.http.doors import Limits
from threadhold.fanout.frame import Kind
from threadhold.runner.drafts import DRAFT_CHARS_MAX, draft_data
from threadhold.runner.records import WatchKind

PAGE = (ROOT / "docs" / "watching.md").read_text()


def test_the_kinds_are_those_that_exist_and_can_be_chosen() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE.partition("## Text")[0], re.MULTILINE)
    assert {kind for kind, _ in rows} == set(get_args(Kind))
    assert {kind for kind, comes in rows if comes == "if chosen"} == set(get_args(WatchKind))


def test_the_reasons_of_gaps_are_those_that_are_given() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Coming back")[2], re.MULTILINE)
    given = "".join((ROOT / "fanout" / name).read_text() for name in ("merge.py", "hub.py"))
    assert rows == ["lost", "trimmed", "pruned", "reset"]
    assert all(f'"{reason}"' in given for reason in rows)


def test_the_close_codes_are_those_that_are_sent() -> None:
    told = {(int(code), reason) for code, reason in re.findall(r"closed with (\d{4}) `(\w+)`", PAGE)}
    before = {greeting.BINARY, greeting.UNAUTHENTICATED, greeting.AUTH_TIMEOUT, greeting.TRY_LATER}
    assert told == before | {greeting.RATE_LIMITED, session.FAILED, session.RESTART, session.TOO_SLOW}
    assert Limits().write_s == 10
    assert "took nothing for ten seconds" in PAGE


def test_the_op_is_one() -> None:
    (text,) = re.findall(r'`(\{"id": 1, "op": "watch".*?\})`', PAGE)
    assert isinstance(ops.parse_op(text), ops.Watch)


def test_the_path_and_its_parameters_exist() -> None:
    (path, query) = re.findall(r"`GET (/v1/[\w/{}]+)\?(\S+)`", PAGE)[0]
    [route] = [
        route
        for router in ROUTERS
        for route in router.routes
        if re.sub(r"\{\w+\}", "{id}", route.path) == path
    ]
    known = {parameter.name for parameter in route.dependant.query_params}
    assert {pair.partition("=")[0] for pair in query.split("&")} == known


def test_the_command_and_its_options_exist() -> None:
    (line,) = re.findall(r"`(threadhold tail .*?)`", PAGE)
    command = get_command(entry.app).commands["tail"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in line.split() if word.startswith("--")} <= known


@pytest.fixture
def scope() -> dict[str, Any]:
    """Run the page's code."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    scope: dict[str, Any] = {"__name__": "watching_page"}
    exec(compile(code, "watching.md", "exec"), scope)
    return scope


async def test_the_tool_tells_what_the_page_shows(scope: dict[str, Any]) -> None:
    assert isinstance(scope["app"], Threadhold)
    with scope["agent"].override(model=TestModel()):
        async with scope["agent"].run_stream_events("read") as events:
            told = [draft_data(event) async for event in events if isinstance(event, scope["PagesReadEvent"])]
    (shown,) = re.findall(r"<!-- shows: a draft -->\n```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert [each | {"tool_call_id": "…"} for each in told] == [json.loads(shown)]
    assert f"{DRAFT_CHARS_MAX:,} characters" in PAGE
