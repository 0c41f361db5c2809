"""The page on REST is true: its commands run, in one shell, and its list of paths is that of the OpenAPI document."""

import asyncio
import json
import os
import re
import runpy
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.project.sources import ROOT
from tests.support.scripted import prompts
from tests.support.servers import Stack
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.server import ApiServer, listen

PAGE: Final = (ROOT / "docs" / "rest.md").read_text()
BLOCKS: Final = re.findall(
    r"<!-- run: ([\w ]+?)( \d+)? -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
HERE: Final = "http://127.0.0.1:8000"
# The page is typed as it stands, with a program that a machine of one's own may not have.
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


async def answers(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Pay what is to be paid, and say something else to anything else."""
    if "Pay" in prompts(messages)[-1] and isinstance(messages[-1].parts[-1], UserPromptPart):
        args = json.dumps({"invoice": "17", "euros": 120, "cost_centre": "4"})
        yield {0: DeltaToolCall(name="pay", json_args=args, tool_call_id="call-1")}
    else:
        yield "I pay invoices."


@dataclass
class Shell:
    """Runs the page's blocks one after the other; what a reader would copy from an answer stands in variables."""

    url: str
    folder: Path
    values: dict[str, str] = field(default_factory=dict)

    async def run(self, name: str) -> list[tuple[int, str]]:
        """Run a block and return the status and the body of each answer that it shows."""
        code = next(code for found, _, code in BLOCKS if found == name).replace(HERE, self.url)
        # An ellipsis stands for what is copied.
        code = re.sub(r"\b([A-Z]+)=…", lambda match: f"{match[1]}={self.values[match[1]]}", code)
        kept = self.folder / "variables"
        kept.touch()
        script = f"set -euo pipefail; . {kept}\n{code}\n{{ declare -p URL TAG >{kept}; }} 2>/dev/null || true"
        # Each answer is followed by its status, which a reader sees with `-i`.
        (self.folder / ".curlrc").write_text('silent\nwrite-out = "\\n%{http_code}\\n"\n')
        env = {**os.environ, **self.values, "CURL_HOME": str(self.folder), "no_proxy": "127.0.0.1"}
        ran = await asyncio.create_subprocess_exec(
            "bash", "-c", script, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, errors = await ran.communicate()
        assert ran.returncode == 0, errors.decode()
        return [
            (int(status), body) for body, status in re.findall(r"(.*?)\n(\d{3})\n", out.decode(), re.DOTALL)
        ]

    async def told(self, name: str) -> Any:
        """Run a block with one answer; check its status against the page and return its body."""
        (expected,) = [int(status) for found, status, _ in BLOCKS if found == name]
        ((status, body),) = await self.run(name)
        assert status == expected, body
        return json.loads(body) if body.startswith("{") else body


@pytest.fixture
async def shell(stack: Stack, tmp_path: Path) -> AsyncIterator[Shell]:
    """A shell on a machine where a server with a worker runs, for the example that the page names."""
    example = runpy.run_path(str(ROOT / "examples" / "approvals.py"))
    async with AsyncExitStack() as exits:
        exits.enter_context(example["agent"].override(model=FunctionModel(stream_function=answers)))
        parts = await exits.enter_async_context(open_parts(stack.settings(grace=0)))
        worker = running_worker(example["app"], parts, id=worker_id("w"), capacity=10)
        await exits.enter_async_context(worker)
        runner, drain = make_runner(example["app"], parts), asyncio.Event()
        exits.push_async_callback(runner.aclose)
        api = create_api(runner, health=parts.health, drain=drain)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        yield Shell(f"http://127.0.0.1:{server.port}", tmp_path)
        server.should_exit = True
        await serving


@needs_curl
async def test_the_commands_do_what_the_page_says(shell: Shell) -> None:
    assert await shell.run("begin") == []
    receipt = await shell.told("send")
    (shown,) = re.findall(r"<!-- shows: receipt -->\n```json\n(.*?)\n```", PAGE)
    assert {
        name: "…" if isinstance(value, str) and "-" in value else value for name, value in receipt.items()
    } == (json.loads(shown) | {"seq": receipt["seq"]})
    shell.values |= {"THREAD": receipt["thread"], "RUN": receipt["run"]}
    (_, run), (_, steps), (_, calls) = await shell.run("read")
    assert json.loads(run)["status"] == "completed"
    assert [step["text"] for step in json.loads(steps)["items"]] == ["I pay invoices."]
    assert json.loads(calls) == {"items": [], "next_cursor": None}
    assert (await shell.told("go on"))["thread"] == receipt["thread"]
    stream = await shell.told("watch")
    assert stream.count("event: end") == 1
    assert stream.count('"fact":"run_ended"') == 2

    await shell.told("ask")
    (asked,) = (await shell.told("what is asked"))["items"]
    assert (asked["tool"], asked["args"]["euros"]) == ("pay", 120)
    shell.values["REQUEST"] = asked["id"]
    assert (await shell.told("approve"))["open"] == 0
    assert (await shell.told("stop"))["settled"] is True

    await check_second_tries(shell)
    resolved = await shell.told("resolve")
    assert (resolved["participants"], len(resolved["memory"])) == (["approvals", "billing"], 1)
    made = await shell.told("grant")
    shell.values["GRANT"] = made["id"]
    assert await shell.told("the grant") == made
    assert (await shell.told("revoke"))["status"] == "revoked"
    assert await shell.told("spend") == {"items": []}
    assert await shell.told("unchanged") == ""
    assert (await shell.told("edit"))["title"] == "Invoices of May"
    assert (await shell.told("edit again"))["code"] == "thread_changed"

    first, second = await shell.told("page"), await shell.told("next page")
    assert [fact["seq"] for fact in first["items"] + second["items"]] == [1, 2, 3, 4, 5, 6]
    assert first["next_cursor"] == "3"
    exports = [*await shell.run("export"), *await shell.run("export on")]
    whole, rest = ([json.loads(line) for line in body.splitlines()] for _, body in exports)
    assert [status for status, _ in exports] == [200, 200]
    assert whole.pop() == {"end": True, "facts": whole[-1]["seq"]}
    assert rest[:-1] == whole[3:]
    history = ModelMessagesTypeAdapter.validate_python((await shell.told("history"))["items"])
    said = [part.content for message in history for part in message.parts if isinstance(part, TextPart)]
    assert said == ["I pay invoices."] * 2
    assert not [part for message in history for part in message.parts if isinstance(part, ToolCallPart)]


async def check_second_tries(shell: Shell) -> None:
    """Follow the part of the page on executions, checkpoints and replays."""
    started = await shell.told("execute")
    shell.values |= {"EXECUTION": started["execution"], "RUN": started["run"]}
    tree = await shell.told("the execution")
    assert (tree["execution"]["status"], tree["execution"]["result"]) == ("completed", "I pay invoices.")
    begin, end = (await shell.told("checkpoints"))["items"]
    assert (begin["ends_in"], end["ends_in"]) == ("request", "response")
    shell.values["CHECKPOINT"] = begin["id"]
    (shown,) = ModelMessagesTypeAdapter.validate_python((await shell.told("the past"))["items"])
    assert prompts([shown]) == ["Find out what you may do without asking me."]
    made = [await shell.told("again"), await shell.told("again from there")]
    assert [replay["checkpoint"] for replay in made] == [begin["id"]] * 2
    (thread,) = (await shell.told("the execution"))["threads"]
    assert [each["run"]["id"] for each in thread["runs"]] == [made[1]["run"], made[0]["run"], started["run"]]
    for each in thread["runs"][:2]:
        assert (each["run"]["replay_of"], each["run"]["replay_from"]) == (started["run"], begin["id"])


def test_every_block_is_run() -> None:
    ran = set(re.findall(r'shell\.(?:run|told)\("([\w ]+)"\)', Path(__file__).read_text()))
    assert ran == {name for name, _, _ in BLOCKS}
    assert len(BLOCKS) == PAGE.count("```sh")


def test_the_list_of_paths_is_that_of_the_document() -> None:
    nobody: Any = None
    app = create_api(type("Nobody", (), {"agents": ()})(), health=nobody, drain=asyncio.Event())
    document = {
        f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods
    }
    table = PAGE.partition("## All of it")[2]
    assert set(re.findall(r"`([A-Z]+ /[\w/{}]+)`", table)) == document
