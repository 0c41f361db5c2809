"""The page on executions is true: its commands are typed in one shell, its code runs, its lists are the code's."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.project.sources import ROOT
from tests.support.servers import Stack
from tests.tutorial.terminal import Terminal, terminal
from threadhold import Threadhold
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import ROUTERS, create_api
from threadhold.adapters.http.errors import WIRE
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.runner.executions import PRECEDENCE
from threadhold.runner.machine import FailReason, RunStatus, StopReason

PAGE: Final = (ROOT / "docs" / "executions.md").read_text()
BLOCKS: Final = re.findall(
    r"<!-- (file|run|shows): (.+?) -->\n```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
HERE: Final = "http://127.0.0.1:8000"
# The page is typed as it stands, with a program that a machine of one's own may not have.
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


def block(kind: str, name: str) -> str:
    """Return a block of the page."""
    (code,) = [code for found, title, code in BLOCKS if (found, title) == (kind, name)]
    return str(code)


def scope_of(kind: str, name: str, **replaced: str) -> dict[str, Any]:
    """Run a block of Python and return what it defines."""
    code = block(kind, name)
    for old, new in replaced.items():
        code = code.replace(old, new)
    scope: dict[str, Any] = {}
    exec(compile(code, f"executions.md, {name}", "exec"), scope)
    return scope


async def report(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Read the figures, then say what they are."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        yield "{1} {0} were sold.".format(*str(last.content).strip().split(","))
    else:
        yield {0: DeltaToolCall(name="figures", json_args='{"month": "may"}', tool_call_id="call-1")}


@dataclass
class Reader:
    """Types the page's blocks, and compares what they print with what the page shows."""

    shell: Terminal
    url: str

    async def run(self, name: str, **copied: str) -> str:
        """Type a block, with what a reader copies in the place of `…`."""
        code = block("run", name).replace(HERE, self.url)
        for variable, value in copied.items():
            assert f"{variable}=…" in code
            code = code.replace(f"{variable}=…", f"{variable}={value}")
        assert "=…" not in code
        told = await self.shell.type(code)
        if ("shows", name) in {(kind, title) for kind, title, _ in BLOCKS}:
            lines = iter(told.splitlines())
            for shown in block("shows", name).splitlines():
                # In this order, with other lines between them.
                assert any(like(shown).search(line) for line in lines), f"{shown!r} is not in {told!r}"
        return told


def like(shown: str) -> re.Pattern[str]:
    """Return what matches a line that is shown, where an ellipsis stands for what is different each time."""
    words = (".*?".join(map(re.escape, word.split("…"))) for word in shown.split())
    return re.compile(r"\s*".join(words))


def answers(told: str) -> list[Any]:
    """Return the JSON objects among what was printed."""
    decoder, found = json.JSONDecoder(), []
    while (begin := told.find("{")) >= 0:
        value, end = decoder.raw_decode(told[begin:])
        found.append(value)
        told = told[begin + end :]
    return found


@pytest.fixture
async def reader(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reader]:
    """A reader in a folder where a server with a worker runs, for the app of the page."""
    monkeypatch.chdir(tmp_path)
    scope = scope_of("file", "report.py")
    async with AsyncExitStack() as exits:
        exits.enter_context(scope["agent"].override(model=FunctionModel(stream_function=report)))
        parts = await exits.enter_async_context(open_parts(stack.settings(grace=0)))
        await exits.enter_async_context(running_worker(scope["app"], parts, id=worker_id("w"), capacity=10))
        runner, drain = make_runner(scope["app"], parts), asyncio.Event()
        exits.push_async_callback(runner.aclose)
        api = create_api(runner, health=parts.health, drain=drain)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        url = f"http://127.0.0.1:{server.port}"
        env = stack.environment(PYTHONPATH=str(ROOT), THREADHOLD_URL=url, no_proxy="127.0.0.1", COLUMNS="200")
        shell = await exits.enter_async_context(terminal(tmp_path, env))
        yield Reader(shell, url)
        server.should_exit = True
        await serving


@needs_curl
async def test_the_commands_do_what_the_page_says(reader: Reader) -> None:
    told = await reader.run("execute")
    ((execution, _, run),) = re.findall(
        r"^started: execution (\S+), thread (\S+), run (\S+)$", told, re.MULTILINE
    )
    await reader.run("look", EXECUTION=execution)
    receipt, before = answers(await reader.run("rest"))
    assert (receipt["execution"], receipt["run"], receipt["duplicate"]) == (execution, run, True)
    assert before["execution"]["status"] == "failed"

    told = await reader.run("replay", RUN=run)
    ((second, checkpoint),) = re.findall(
        r"^started: run (\S+) on thread \S+, from (\S+)$", told, re.MULTILINE
    )
    assert checkpoint == f"{run}.1"
    (page,) = answers(await reader.run("checkpoints", RUN=second))
    # The model asks for the figures, the tool returns them, the model says what they are.
    assert [each["ends_in"] for each in page["items"]] == ["response", "request", "response"]
    assert page["items"][0]["parent"] == checkpoint

    reworded = scope_of("run", "client", **{HERE: reader.url})["reworded"]
    assert await reworded(second) == "120 lamps were sold."
    asked = page["items"][1]["id"]
    (third,) = answers(await reader.run("replay from", CHECKPOINT=asked))
    assert (third["origin"], third["checkpoint"]) == (second, asked)
    (shown,) = answers((await reader.run("history")).partition('{"items"')[2].join(['{"items"', ""]))
    assert [message["kind"] for message in shown["items"]] == ["request", "response", "request"]


async def test_the_program_tries_again(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    failures = iter(["the provider is away"])

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for why in failures:
            raise RuntimeError(why)
        yield "done"

    app = Threadhold(agents={"worker": Agent(FunctionModel(stream_function=answer))})
    found = await scope_of("run", "python")["achieve"](app, "worker", "Do it.")
    assert (found.status, found.result, found.mission) == (RunStatus.COMPLETED, "done", "Do it.")


def test_every_block_is_run() -> None:
    used = Path(__file__).read_text()
    ran = set(re.findall(r'reader\.run\("([\w ]+)"', used))
    ran |= set(re.findall(r'scope_of\("(?:run|file)", "([\w. ]+)"', used))
    assert ran == {name for kind, name, _ in BLOCKS if kind != "shows"}
    assert len(BLOCKS) == PAGE.count("```") / 2


def test_the_lists_are_those_of_the_code() -> None:
    (listed,) = re.findall(r"<!-- listed: precedence -->\n(.*)", PAGE)
    assert re.findall(r"`(\w+)`", listed) == list(PRECEDENCE)
    rows = re.findall(r"^\| \w[\w ,]+ \| (.*) \|$", PAGE.partition("| elsewhere |")[2], re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)} - {"attempt", "reason", "error"}
    assert 'on_reject="fail"' in "".join(rows)
    assert named == {
        "rejected",
        "pending",
        "paused",
        "completed",
        "failed",
        "stopped",
        *StopReason,
        "timeout",
        "budget_exhausted",
    }
    assert named <= {*RunStatus, *StopReason, *FailReason}


def test_the_refusals_have_the_status_that_is_sent() -> None:
    table = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert len(table) == 6
    assert set(table) <= {(kind.code, str(row.status)) for kind, row in WIRE.items()}


def test_the_paths_and_links_exist() -> None:
    routes = {re.sub(r"\{\w+\}", "{}", route.path) for router in ROUTERS for route in router.routes}
    named = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"`(?:GET|POST) (/v1/[\w/{}]+)`", PAGE)}
    assert len(named) == 6
    assert named <= routes
    assert all((ROOT / "docs" / path).exists() for path in re.findall(r"\]\(([\w.]+)\)", PAGE))
