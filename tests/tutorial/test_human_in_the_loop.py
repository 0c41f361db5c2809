"""The tutorial is true: its files are saved and its commands typed in one shell, in the page's order."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.project.sources import ROOT
from tests.support.ports import KeptPort
from tests.support.servers import Stack
from tests.support.waiting import until
from tests.tutorial.terminal import Terminal, terminal

PAGE: Final = (ROOT / "docs" / "human-in-the-loop.md").read_text()
BLOCKS: Final = re.findall(
    r"<!-- (file|run|shows): (.+?) -->\n```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
HERE: Final = "http://127.0.0.1:8000"
PAYMENT: Final = {"invoice": "17", "euros": 120, "cost_centre": "IT"}
# The page is typed as it stands, with programs that a machine of one's own may not have.
pytestmark = pytest.mark.skipif(
    None in map(shutil.which, ("curl", "openssl", "sha256sum")), reason="there is no curl or openssl here"
)


def block(kind: str, name: str) -> str:
    """Return a block of the page."""
    (code,) = [code for found, title, code in BLOCKS if (found, title) == (kind, name)]
    return str(code)


def like(shown: str) -> re.Pattern[str]:
    """Return what matches a line that is shown, where an ellipsis stands for what is different each time."""
    words = (".*?".join(map(re.escape, word.split("…"))) for word in shown.split())
    return re.compile(r"\s+".join(words))


class Reader:
    """Goes through the page: saves its files, types its commands, compares what they print."""

    def __init__(self, folder: Path, shell: Terminal, url: str) -> None:
        self._folder = folder
        self._shell = shell
        self._url = url
        self.done: list[tuple[str, str]] = []

    def save(self, name: str) -> None:
        """Save a file, or write what replaces the end of one."""
        self.done.append(("file", name))
        code = block("file", name).replace(HERE, self._url)
        file, _, part = name.partition(", ")
        path = self._folder / file
        if part:
            # The page says: in the place of the last lines.
            code = "".join(path.read_text().splitlines(keepends=True)[: -code.count("\n")]) + code
        path.write_text(code)

    async def run(self, name: str, **copied: str) -> str:
        """Type a block, with what a reader copies in the place of `…`, and compare what it shows with the page."""
        self.done.append(("run", name))
        port = self._url.rpartition(":")[2]
        code = (
            block("run", name)
            .replace(HERE, self._url)
            .replace("office.py:app", f"office.py:app --port {port}")
        )
        for variable, value in copied.items():
            assert f"{variable}=…" in code
            code = code.replace(f"{variable}=…", f"{variable}={value}")
        assert "…" not in code
        told = await self._shell.type(code)
        if ("shows", name) in {(kind, title) for kind, title, _ in BLOCKS}:
            self.done.append(("shows", name))
            lines = iter(told.splitlines())
            for shown in block("shows", name).splitlines():
                # In this order, with other lines between them.
                assert any(like(shown).search(line) for line in lines), f"{shown!r} is not in {told!r}"
        return told

    async def ready(self) -> None:
        """Wait as the page says; what an earlier server wrote does not count."""

        async def look() -> bool:
            told = await self._shell.type(f"curl --fail {self._url}/readyz && cat dev.log")
            return f"ready: {self._url} " in told

        await until(look, within=90, what="`dev` does not say that it is ready")

    async def asked(self, tool: str, *, by: str = "") -> str:
        """Wait until the only open request is of this tool, and return its id."""
        token = f'-H "Authorization: Bearer $(cat {by}.token)" ' if by else ""

        async def look() -> Any:
            told = await self._shell.type(f"curl {token}'{self._url}/v1/requests?status=open'")
            return [each["id"] for each in json.loads(told)["items"] if each["tool"] == tool]

        (request,) = await until(look, what=f"{tool} is not asked")
        return str(request)


@pytest.fixture
async def reader(stack: Stack, tmp_path: Path) -> AsyncIterator[Reader]:
    """A reader with an empty folder, and servers that are up already."""
    # `dev` ends and comes back on it several times.
    kept = KeptPort()
    url = f"http://127.0.0.1:{kept.number}"
    env = stack.environment(PYTHONPATH=str(ROOT), THREADHOLD_URL=url, no_proxy="127.0.0.1", COLUMNS="200")
    env["PYTEST_ADDOPTS"] = "-p no:cacheprovider -p no:schemathesis"
    async with terminal(tmp_path, env) as shell:
        yield Reader(tmp_path, shell, url)


async def pay(reader: Reader) -> dict[str, str]:
    """Return what a reader copies to answer whether something may be paid."""
    return {"REQUEST": await reader.asked("pay")}


# It starts `dev` three times, and Python for some thirty commands, on a machine that may be slow.
@pytest.mark.timeout(600)
async def test_the_page_from_top_to_bottom(reader: Reader) -> None:
    reader.save("office.py")
    await reader.run("start")
    await reader.ready()
    await from_a_terminal(reader)
    await with_curl(reader)
    reader.save("host.py")
    await reader.run("host")
    await messages(reader)
    await reader.run("kill")
    await reader.run("start again")
    await reader.ready()
    assert 'ask(question="Which cost centre?")' in await reader.run("after the kill")
    await reader.run("answer after the kill", REQUEST=await reader.asked("ask"))
    await reader.asked("pay")
    await who_may(reader)
    reader.save("test_office.py")
    await reader.run("test")
    # Every block was read, in the order of the page.
    assert list(dict.fromkeys(reader.done)) == [(kind, name) for kind, name, _ in BLOCKS]


async def from_a_terminal(reader: Reader) -> None:
    await reader.run("send")
    await reader.run("what waits")
    told = await reader.run("reply", REQUEST=await reader.asked("ask"))
    assert told.startswith("answered; ")
    payment = await pay(reader)
    await reader.run("edit", **payment)
    await reader.run("again")


async def with_curl(reader: Reader) -> None:
    receipt, _, page = (await reader.run("curl")).partition("}")
    run = json.loads(receipt + "}")["run"]
    (asked,) = json.loads(page)["items"]
    assert (asked["kind"], asked["tool"], asked["run"]) == ("question", "ask", run)
    assert json.loads(await reader.run("curl reply", REQUEST=asked["id"]))["open"] == 0
    rejected = json.loads(await reader.run("curl reject", **await pay(reader)))
    assert rejected["decision"] == {"kind": "reject", "reason": "the supplier has not delivered"}

    async def look() -> bool:
        steps = json.loads(await reader.run("curl steps", RUN=run))["items"]
        return bool(steps[-1]["text"] and f"`{steps[-1]['text']}`" in PAGE)

    await until(look, what="the model does not say at last what the page says")


async def messages(reader: Reader) -> None:
    told = await reader.run("pause")
    (thread,) = re.findall(r"^started: thread (\S+),", told, re.MULTILINE)
    assert "asks to allow: pay(" in await reader.run("text replies", THREAD=thread)
    await reader.run("text rejects")
    await reader.run("pause again")


async def who_may(reader: Reader) -> None:
    reader.save("office.py, terms")
    await reader.run("tokens")
    await reader.run("start with tokens")
    await reader.ready()
    await reader.run("carol asks")
    await reader.run("carol replies", REQUEST=await reader.asked("ask", by="carol"))
    await reader.run("two decide", REQUEST=await reader.asked("pay", by="carol"))
    await reader.run("stop")


def test_what_it_says_of_other_pages_and_the_chat_page_exists() -> None:
    named = re.findall(r"\]\(([\w./-]+)\)", PAGE)
    assert [path for path in named if not (ROOT / "docs" / path).exists()] == []
    card = (ROOT / "adapters" / "page" / "static" / "card.js").read_text()
    browser = " ".join(PAGE.partition("## In the browser")[2].partition("\n## ")[0].split())
    labels = re.findall(r"\*([\w ?]+)\*", browser)
    assert len(labels) == 7
    assert [label for label in labels if f'"{label}"' not in card] == []
