"""The page on the WebSocket is true: its messages fit, its tables are those of the code, its clients come back."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import uvicorn

from tests.http.message_rules import check_done, check_told, may_be_sent
from tests.project.sources import ROOT
from tests.support.ports import KeptPort
from tests.support.processes import AGENTS, START_S_MAX, Processes
from tests.support.waiting import until
from threadhold.adapters.http import cors, greeting, message_schema, ops, server, session, websocket
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.errors import BODY_BYTES_MAX
from threadhold.adapters.settings import Settings
from threadhold.fanout.frame import Kind
from threadhold.runner.records import INBOX_MAX, MESSAGE_BYTES_MAX

PAGE: Final = (ROOT / "docs" / "websocket.md").read_text()
RUN: Final = dict(re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SAYS: Final = dict(
    re.findall(r"<!-- says: ([\w ]+) -->\n```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
MODELS: Final = {model.model_fields["op"].annotation.__args__[0]: model for model in get_args(ops.AnyOp)}
DEFS: Final = message_schema.message_schema()["$defs"]
HERE: Final = "127.0.0.1:8000"
QUESTION: Final = "Tell me about otters"


def section(title: str) -> str:
    """Return what stands under a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def values_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield JSON values that stand one after the other."""
    while text := text.strip():
        value, end = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[end:]


@pytest.mark.parametrize("name", MODELS)
def test_each_op_is_shown_with_its_answer(name: str) -> None:
    op, answer = values_of(SAYS[name])
    assert op["op"] == name
    assert answer["id"] == op["id"]
    check_told(answer)
    check_done(op, answer)


def test_what_else_is_said_is_shown() -> None:
    shown = {name: list(values_of(text)) for name, text in SAYS.items() if name not in MODELS}
    assert set(shown) == {"refused", "frame", "watch ended", "drain"}
    for messages in shown.values():
        for message in messages:
            check_told(message)
    assert len(SAYS) == PAGE.count("```json\n")


def test_decisions_are_those_that_may_be_sent() -> None:
    shown = re.findall(r'`(\{"kind": .*?\})`', section("What a client sends"))
    assert len(shown) == 4
    for text in shown:
        decision = json.loads(text.replace('"…"', '"x"').replace("{…}", "{}").replace("…", "1"))
        assert may_be_sent({"op": "answer", "request": "r", "decision": decision})


def test_the_table_of_ops_has_all_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?)\| (.*?) \|$", section("What a client sends"), re.MULTILINE)[1:]
    assert {name: set(re.findall(r"`(\w+)`", fields)) for name, fields, _ in rows} == {
        name: set(model.model_fields) - {"op", "id"} for name, model in MODELS.items()
    }
    for name, _, answered in rows:
        result = DEFS[DEFS["Results"]["properties"][name]["$ref"].rpartition("/")[2]]["properties"]
        assert set(re.findall(r"`(\w+)`", answered)) <= set(result)


def test_the_tables_of_what_a_server_sends_are_those_of_the_schema() -> None:
    said, frames = re.findall(r"(?:^\|.*\|\n)+", section("What a server sends"), re.MULTILINE)
    sent = [DEFS[each["$ref"].rpartition("/")[2]] for each in DEFS["ServerMessage"]["oneOf"]]
    assert set(re.findall(r"^\| `(\w+)`", said, re.MULTILINE)) - {"op"} == {
        each["properties"]["op"]["const"] for each in sent
    }
    told = {}
    for kinds, data, numbers in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", frames, re.MULTILINE)[1:]:
        for kind in re.findall(r"`(\w+)`", kinds):
            told[kind] = (set(re.findall(r"`(\w+)`", data)) - {"idle", "busy", "paused"}, numbers == "from 1")
    described = {}
    for each in sent:
        fields = each["properties"]
        if "kind" in fields:
            described[fields["kind"]["const"]] = (set(fields["data"]["required"]), "minimum" in fields["n"])
    assert told == described
    assert set(told) == set(get_args(Kind))


def test_the_close_codes_are_those_that_are_sent() -> None:
    told = {
        (int(code), reason)
        for code, reason in re.findall(r"^\| (\d{4}) \| `(\w+)` \|", section("Close codes"), re.MULTILINE)
    }
    greetings = {
        value for name, value in vars(greeting).items() if name.isupper() and isinstance(value, tuple)
    }
    assert told == greetings | {session.FAILED, session.RESTART, session.TOO_SLOW}
    codes = {int(code) for code in re.findall(r"^\| (\d{4}) \|", section("Close codes"), re.MULTILINE)}
    # Of the protocol itself: nothing was said, and a message was too large.
    assert codes == {code for code, _ in told} | {1006, 1009}


def test_the_numbers_are_those_of_the_code() -> None:
    limits, bounds = Limits(), section("Limits")
    for row in (
        f"| one message of a client | {BODY_BYTES_MAX // 1024} KiB |",
        f"| the text of a `send` | {MESSAGE_BYTES_MAX // 1024} KiB as UTF-8 |",
        f"| an `id` | {ops.ID_CHARS_MAX} characters |",
        f"| ops in flight on a socket | {limits.ops} |",
        f"| threads watched on a socket | {limits.watches} |",
        f"| what waits for a peer | {limits.outbox_frames} messages or {limits.outbox_chars:,} characters |",
        f"| how long a peer may take nothing | {limits.write_s:g} seconds |",
        f"| how long one may not say who one is | {limits.auth_s:g} seconds |",
        f"| how old the last look at a token is | {limits.recheck_s:g} seconds |",
        f"| messages that wait in a thread | {INBOX_MAX} |",
    ):
        assert row in bounds, row
    named = set(re.findall(r"`(\w+)`(?:, `\w+`)* of a principal", bounds)) | {"open_watches"}
    assert named == {"messages_per_minute", "open_watches", "open_sockets"} <= set(Settings.model_fields)
    config = uvicorn.Config("nothing")
    assert (config.ws_ping_interval, config.ws_ping_timeout) == (20, 20)
    assert "pings every 20 seconds" in PAGE
    assert "ws_ping" not in Path(server.__file__).read_text()
    assert (limits.goodbye_s / 4, server.GOODBYE_S) == (0.5, 1.5)
    assert "gives ops half a second" in PAGE


def test_names_are_those_of_the_code() -> None:
    assert f"`GET {message_schema.PATH}`" in PAGE
    assert f"`{websocket.SUBPROTOCOL}`" in PAGE
    assert f"`{greeting.TOKEN_PREFIX}TOKEN`" in PAGE
    pages = section("Which pages may call")
    (listed,) = re.findall(r"export THREADHOLD_ORIGINS=(\S+)", pages)
    assert Settings(origins=listed).allowed_origins == set(listed.split(","))
    read = re.findall(r"read (.*?) of the answer", pages, re.DOTALL)[0]
    assert ", ".join(re.findall(r"`([\w-]+)`", read)) == cors.EXPOSED


# The clients, over a server that is killed in the middle of an answer, or told to end.


def node() -> list[str] | None:
    """Return the command that runs JavaScript with a browser's WebSocket, if there is one."""
    path = shutil.which("node")
    if path is None:
        return None
    # Nothing but a flag before version 22.
    command = [path, "--experimental-websocket"]
    code = "process.exit(typeof WebSocket === 'function' ? 0 : 1)"
    return command if subprocess.run([*command, "-e", code], capture_output=True).returncode == 0 else None


NODE: Final = node()


class Program:
    """A client of the page in a process of its own."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self._out = folder / f"{name}.out"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "no_proxy": "127.0.0.1"}
        env.pop("THREADHOLD_TOKEN", None)
        with self._out.open("wb") as out, (folder / f"{name}.err").open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=env, cwd=folder
            )
        self._errors = folder / f"{name}.err"

    async def says(self, text: str) -> None:
        """Wait until this is all that it has said."""

        async def look() -> bool:
            assert self.process.poll() in (None, 0), self._errors.read_text()
            return self._out.read_text() == text

        await until(look, what=lambda: f"{text!r}; it said {self._out.read_text()!r}", within=START_S_MAX)

    async def ends(self) -> None:
        """Wait for its end, which is no failure."""

        async def look() -> bool:
            return self.process.poll() is not None

        await until(look, what="its end", within=START_S_MAX)
        assert self.process.returncode == 0, self._errors.read_text()


class Desk:
    """Starts the page's clients against a server of the test."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._at = url.removeprefix("http://")
        self.first, self.second = folder / "first", folder / "second"
        self._script = f"say one | hold {self.first} | say  two | hold {self.second} | say  three"
        self.programs: list[Program] = []

    def start(self, name: str) -> Program:
        """Start a client; its agent says a word, waits at a gate, and says another one, twice."""
        code = RUN[name].replace(HERE, self._at)
        assert self._at in code
        assert QUESTION in code
        code = code.replace(QUESTION, self._script)
        # How long a server takes to start is not what this is about.
        code = code.replace("token=os", "give_up_after=300, token=os")
        if name == "page":
            (self._folder / "threadhold.js").write_text(RUN["javascript"])
            (self._folder / "package.json").write_text('{"type": "module"}')
            file, command = self._folder / "page.js", list(NODE or ())
            code = f"globalThis.show = (text) => process.stdout.write(text);\n{code}"
        else:
            file, command = self._folder / f"{name}.py", [sys.executable]
        file.write_text(code)
        self.programs.append(Program([*command, str(file)], self._folder, name))
        return self.programs[-1]


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[list[Desk]]:
    """Collect what is started; none of it outlives the test."""
    made: list[Desk] = []
    yield made
    for program in (program for desk in made for program in desk.programs):
        program.process.kill()
        program.process.wait()


@pytest.mark.timeout(4 * START_S_MAX)
async def test_the_clients_go_on_where_they_were(
    spawn: Processes, clients: list[Desk], tmp_path: Path
) -> None:
    env = {"AGENTS": "support"}
    kept = KeptPort()
    serve = ["serve", AGENTS, "--port", str(kept.number)]
    worker, api = spawn.start("worker", AGENTS, env=env), spawn.start(*serve, env=env)
    url = await asyncio.to_thread(api.url)
    desk = Desk(tmp_path, url)
    clients.append(desk)
    typed = desk.start("client")
    await worker.says('"run_claimed"', within=START_S_MAX)
    # JavaScript needs a program that the project does not bring; the same way is gone in Python everywhere.
    streaming = [desk.start("python"), *([desk.start("page")] if NODE else [])]
    for gate, how, said in ((desk.first, "kill", "one"), (desk.second, "terminate", "one two")):
        for program in streaming:
            await program.says(said)
        await asyncio.to_thread(getattr(api, how))
        # The agent goes on while nobody can be watching.
        gate.touch()
        api = spawn.start(*serve, env=env)
        await asyncio.to_thread(api.url)
    for program in [*streaming, typed]:
        await program.says("one two three")
        await program.ends()


def test_every_block_is_run() -> None:
    assert set(RUN) == {"python", "client", "javascript", "page"}
    assert len(RUN) == PAGE.count("```python\n") + PAGE.count("```js\n")
