"""The command line: with --json, as scripts have it, and without, as people do. Each command is a process."""

import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.processes import START_S_MAX, Process
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import System
from tests.system.transcripts.kept import Json, named
from tests.system.transcripts.play import AGENT, Door
from tests.system.transcripts.streams import FrameDoor
from threadhold.adapters.cli.trace import WIDTH_MAX

_FACT = re.compile(r"#\d+ (\w+)")
_REQUEST = re.compile(r"answer (\S+) --approve")
_BEGUN = re.compile(r"thread (\S+), run (\S+)")
_MEASURES = re.compile(r" (?:latency_ms|input_tokens|output_tokens)=\S*")


class Command:
    """One command, and what it writes."""

    def __init__(self, system: System, *args: str) -> None:
        self.told = f"threadhold {shlex.join(args)}"
        # Found by its name, so that what it tells people to type is the same wherever it is.
        path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self._process: Process = system.starter.start(*args, "--url", system.a, env=path)

    @property
    def text(self) -> str:
        """What it has written so far, in whole lines and the beginning of one."""
        return self._process.text()

    @property
    def lines(self) -> list[str]:
        """The whole lines that it has written so far."""
        return self.text.split("\n")[:-1]

    @property
    def code(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._process.ended()

    async def ended(self) -> None:
        """Return when it has ended."""

        async def look() -> bool:
            return self.code is not None

        await until(look, within=START_S_MAX, what=lambda: f"{self.told} does not end: {self.text}")

    def end(self) -> None:
        """End it, if it has not ended."""
        if self.code is None:
            self._process.terminate()


class ScriptDoor(FrameDoor):
    """Commands with --json: a `tail` that goes on all the while, and a command for each thing to do."""

    def __init__(self, system: System) -> None:
        super().__init__()
        self._system = system
        self._tail: Command | None = None

    async def _run(self, *args: str) -> tuple[list[Json], Json]:
        command = Command(self._system, *args, "--json")
        await command.ended()
        assert command.code == 0, command.text
        said: list[Json] = [json.loads(text) for text in command.lines]
        return [{"$": command.told}, *({"<-": each} for each in said)], said[0]

    async def ask_send(self, content: str) -> tuple[list[Json], Json]:
        """Send, without waiting for the answer: the tail shows it."""
        to = ["--agent", AGENT] if self.thread is None else [self.thread]
        told, said = await self._run("send", *to, content, "--no-wait")
        return told, said["receipt"]

    async def ask_watch(self, thread: str) -> list[Json]:
        """Begin to watch."""
        self._tail = Command(self._system, "tail", thread, "--after", "start", "--json")
        return [{"$": self._tail.told + " &"}]

    async def ask_approve(self, request: str) -> list[Json]:
        """Approve."""
        return (await self._run("answer", request, "--approve"))[0]

    async def ask_stop(self, run: str) -> list[Json]:
        """Stop."""
        return (await self._run("stop", "--run", run))[0]

    async def shows(self, fact: str, times: int = 1) -> None:
        """Return when the tail has written so many facts of a kind."""

        async def look() -> bool:
            self._read()
            return len(self.seen.facts(fact)) >= times

        await until(look, within=START_S_MAX, what=f"no {times} {fact}")

    async def says(self, text: str) -> None:
        """Return when the tail has written this text, in deltas."""

        async def look() -> bool:
            self._read()
            return self.seen.text(self.run) == text

        await until(look, within=START_S_MAX, what=f"{text!r} was not said")

    def _read(self) -> None:
        assert self._tail is not None
        self.seen.frames = [json.loads(text) for text in self._tail.lines]

    def end(self) -> None:
        """End the tail."""
        if self._tail is not None:
            self._tail.end()


class PersonDoor:
    """Commands as people use them: a `send` shows the answer as it is said, a `tail` beside it what happens."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._commands: list[Command] = []
        self._thread = ""
        self._run = ""

    def _start(self, *args: str) -> Command:
        self._commands.append(Command(self._system, *args))
        return self._commands[-1]

    async def _finish(self, *args: str) -> str:
        command = self._start(*args)
        await command.ended()
        return command.text

    async def _begins(self, sending: Command) -> tuple[str, str]:
        """Return the thread and the run, which are told before the answer."""

        async def look() -> tuple[str, str] | None:
            found = _BEGUN.search("\n".join(sending.lines))
            return (found[1], found[2]) if found else None

        return await until(look, within=START_S_MAX, what=lambda: sending.text) or ("", "")

    async def send(self, content: str) -> None:
        """Send and wait for the answer, in a terminal of its own; what steers is sent from another one."""
        if not self._thread:
            sending = self._start("send", "--agent", AGENT, content)
            self._thread, self._run = await self._begins(sending)
            self._tail = self._start("tail", self._thread, "--after", "start", "--kind", "fact")
        elif self._sending.code is None:
            await self._finish("send", self._thread, content, "--no-wait")
        else:
            _, self._run = await self._begins(self._start("send", self._thread, content))

    @property
    def _sending(self) -> Command:
        """The last command that waits for an answer, or did."""
        told = [each for each in self._commands if " send " in each.told and "--no-wait" not in each.told]
        return told[-1]

    async def approve(self) -> None:
        """Approve, in the words that `send` has told before it ended."""
        await self._sending.ended()
        found = _REQUEST.search(self._sending.text)
        assert found is not None, self._sending.text
        await self._finish("answer", found[1], "--approve")

    async def stop(self) -> None:
        """Stop the run; whoever waits for its answer is told."""
        await self._finish("stop", "--run", self._run)
        await self._sending.ended()

    async def shows(self, fact: str, times: int = 1) -> None:
        """Return when the tail has written so many facts of a kind."""

        async def look() -> bool:
            found = [_FACT.search(text) for text in self._tail.lines]
            return [each[1] for each in found if each].count(fact) >= times

        await until(look, within=START_S_MAX, what=lambda: f"no {times} {fact}: {self._tail.text}")

    async def says(self, text: str) -> None:
        """Return when `send` shows this text."""

        async def look() -> bool:
            return text in self._sending.text

        await until(look, within=START_S_MAX, what=lambda: self._sending.text)

    def transcript(self) -> str:
        """Return each command with what it wrote, in the order in which they were begun."""
        return named("\n".join(map(_block, self._commands)))

    def end(self) -> None:
        """End what still runs."""
        for command in self._commands:
            command.end()


def _block(command: Command) -> str:
    """Return a command and what it wrote, and its exit code where that says more than nothing."""
    text = "".join(f"{_settled(text)}\n" for text in command.lines)
    return f"$ {command.told}\n{text}" + (f"(exit code {command.code})\n" if command.code else "")


def _settled(text: str) -> str:
    """Leave out what was measured, on which it depends where a long line is cut off."""
    whole, _, rest = text.rpartition(" ") if len(text) >= WIDTH_MAX else (text, "", "")
    return _MEASURES.sub("", whole) + (" …" if rest else "")


@asynccontextmanager
async def over_cli_json(system: System, public: People) -> AsyncIterator[Door]:
    """Open terminals for scripts."""
    door = ScriptDoor(system)
    try:
        yield door
    finally:
        door.end()


@asynccontextmanager
async def over_cli(system: System, public: People) -> AsyncIterator[Door]:
    """Open terminals for people."""
    door = PersonDoor(system)
    try:
        yield door
    finally:
        door.end()
