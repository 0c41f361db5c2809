"""What the page on this door says is true: its code runs, its tools, arguments, numbers and commands exist."""

import json
import re

import pytest
from typer.main import get_command

from tests.mcp.replicas import Replicas
from tests.project.sources import ROOT
from threadhold.adapters.cli import entry
from threadhold.adapters.mcp import resources, schemas, tasks, view
from threadhold.adapters.mcp.declared import TASKS
from threadhold.adapters.mcp.door import PATH
from threadhold.adapters.mcp.refusals import META_KEY
from threadhold.adapters.mcp.task_methods import STOPPED_KEY
from threadhold.adapters.mcp.tools import TOOLS
from threadhold.adapters.mcp.waiting import TELL_EVERY_S
from threadhold.adapters.settings import Settings

PAGE = (ROOT / "docs" / "mcp.md").read_text()
URL = "http://127.0.0.1:8000"


CODE = re.findall(r"^<!-- run: (\w+) -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_all_code_is_run() -> None:
    assert [name for name, _ in CODE] == ["client", "tasks"]
    assert PAGE.count("```python") == len(CODE)


@pytest.mark.parametrize("code", [code for _, code in CODE], ids=[name for name, _ in CODE])
@pytest.mark.asyncio(loop_scope="package")
async def test_the_code_runs(code: str, pair: Replicas, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{URL}{PATH}" in code
    body, run = code.replace(URL, pair.a).split("asyncio.run(main())")
    assert run.strip() == ""
    scope: dict[str, object] = {"__name__": __name__}
    exec(compile(body, "mcp.md", "exec"), scope)
    await scope["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out == "completed hello\n"


def test_every_tool_is_listed_with_its_arguments() -> None:
    section = PAGE.split("## The tools", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ", section, re.MULTILINE)
    told = {name: set(re.findall(r"`(\w+)`", arguments)) for name, arguments in rows}
    assert told == {name: set(tool.given.model_fields) for name, tool in TOOLS.items()}


def test_the_settings_of_hosts_are_json_and_name_a_command_that_exists() -> None:
    blocks = [json.loads(body) for body in re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)]
    assert len(blocks) == 3
    servers = [server for block in blocks for group in block.values() for server in group.values()]
    assert [each["url"] for each in servers if "url" in each] == [f"{URL}{PATH}"] * 2
    (command,) = [[each["command"], *each["args"]] for each in servers if "command" in each]
    assert command == ["threadhold", "mcp", "--url", URL]
    assert "token" in Settings.model_fields
    assert "`THREADHOLD_TOKEN`" in PAGE
    known = get_command(entry.app).commands["mcp"]  # type: ignore[attr-defined]
    assert "--url" in {option for parameter in known.params for option in parameter.opts}


def test_the_numbers_are_those_in_the_code() -> None:
    assert f"wait {schemas.WAIT_S:g} seconds" in PAGE
    assert f"and {schemas.WAIT_MAX_S:g} at most" in PAGE
    assert f"the last {view.TEXT_CHARS_MAX:,} characters" in PAGE
    assert f"at most {view.EVENTS_MAX} at\nonce" in PAGE
    assert f"up to {resources.URIS_MAX} at once" in PAGE
    assert (1 / TELL_EVERY_S, "up to four times a second" in PAGE) == (4, True)
    assert (1 / resources.CHANGE_EVERY_S, "at most ten times a second" in PAGE) == (10, True)
    assert f"under `{META_KEY}`" in PAGE
    assert all(template.uri_template in PAGE for template in resources.TEMPLATES)
    assert all(f"`{status}`" in PAGE for status in schemas.Status.__args__)  # type: ignore[attr-defined]


def test_every_status_of_a_run_is_one_of_a_task() -> None:
    section = PAGE.split("## Tasks", 1)[1]
    rows = re.findall(r"^\| (`[\w`, ]+`) \| `(\w+)` \| ", section, re.MULTILINE)
    told = {status: task for runs, task in rows for status in re.findall(r"\w+", runs)}
    assert told == {status.value: task for status, task in tasks.STATUSES.items()}
    assert (tasks.POLL_MS, "which is once a second" in section) == (1000, True)
    assert f"`{TASKS}`" in section
    assert f"under `{tasks.STANDING_KEY}`" in section
    assert f"under `{STOPPED_KEY}`" in section


def test_the_pages_it_names_exist() -> None:
    named = re.findall(r"\]\(([\w./-]+\.md)\)", PAGE)
    assert named
    assert [page for page in named if not (ROOT / "docs" / page).exists()] == []
