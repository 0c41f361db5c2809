"""Conversations: piped ones wait for each answer, typed ones read and watch at the same time."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.cli.conftest import Api
from tests.cli.frames import fact, start
from tests.http.records import request_of
from threadhold.adapters.cli.chat import Chat
from threadhold.adapters.cli.lines import Lines
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client, ClientError
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery


@dataclass
class Console:
    """A pipe to type into, and what was printed so far."""

    capsys: pytest.CaptureFixture[str]
    read_fd: int
    write_fd: int
    out: str = ""
    err: str = ""
    closed: bool = field(default=False)

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.write_fd, text.encode())

    def end(self) -> None:
        """End the input."""
        if not self.closed:
            os.close(self.write_fd)
            self.closed = True

    def text(self) -> str:
        """Return all output."""
        written = self.capsys.readouterr()
        self.out, self.err = self.out + written.out, self.err + written.err
        return self.out + self.err

    async def shows(self, text: str) -> None:
        """Wait until a text is printed."""
        async with asyncio.timeout(10):
            while text not in self.text():
                await asyncio.sleep(0.01)


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Iterator[Console]:
    """Make a pipe for one test."""
    made = Console(capsys, *os.pipe())
    yield made
    made.end()
    os.close(made.read_fd)


@asynccontextmanager
async def chatting(
    api: Api, console: Console, *, interactive: bool, agent: str | None = "support", thread: str | None = None
) -> AsyncIterator[asyncio.Task[int]]:
    """Chat for as long as the block lasts."""
    async with Client(api.url) as client:
        chat = Chat(client, Terminal(), Lines(console.read_fd), agent=agent, thread=thread)
        running = asyncio.create_task(chat.run(interactive=interactive))
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def piped(api: Api, console: Console, text: str, *, agent: str | None = "support") -> int:
    """Return the exit code of a chat with this input."""
    console.type(text)
    console.end()
    async with chatting(api, console, interactive=False, agent=agent) as running, asyncio.timeout(20):
        return await running


async def test_piped_lines_are_answered_one_after_the_other_on_one_thread(api: Api, console: Console) -> None:
    assert await piped(api, console, "one\n\ntwo") == 0
    assert console.text() == "> one\necho: one\n> two\necho: two\n"
    threads = [given["thread"] for name, given in api.runner.calls if name == "send"]
    assert threads == [None, next(iter(api.runner.items))]


async def test_a_piped_line_may_be_a_command(api: Api, console: Console) -> None:
    assert await piped(api, console, "one\n/new\ntwo\n/quit\nthree\n") == 0
    assert "three" not in console.text()
    threads = [given["thread"] for name, given in api.runner.calls if name == "send"]
    assert threads == [None, None]


async def test_an_unknown_command_is_not_sent_and_two_slashes_send_one(api: Api, console: Console) -> None:
    assert await piped(api, console, "/foo bar\n//foo bar\n/stop\n") == 0
    assert "> /foo bar\necho: /foo bar\n" in console.text()
    assert (
        "not sent: /foo is no command (/stop, /approve, /edit, /reject, /new, /quit, /help)" in console.text()
    )
    assert [given["content"] for name, given in api.runner.calls if name == "send"] == ["/foo bar"]


async def test_a_piped_chat_allows_rejects_and_answers(api: Api, console: Console) -> None:
    lines = [
        "pay",
        "/approve",
        "pay",
        '/edit {"euros": 5}',
        "pay",
        "/reject too much",
        "pay",
        "no thanks",
        "ask",
        "XL",
    ]
    assert await piped(api, console, "\n".join(lines)) == 0
    text = console.text()
    assert text.startswith(
        '> pay\nasks to allow: refund(order="A-1003", euros=240)\n(paused: the run waits for an answer)\n'
        "(/approve, /edit JSON or /reject [REASON]; any other text rejects it)\n"
        "(local allowed refund)\nso: approve\n> pay\n"
    )
    assert '(local allowed, with changes, refund: {"euros": 5})\nso: edit\n' in text
    assert "(local rejected refund: too much)\nso: reject\n" in text
    assert "> no thanks\n(local rejected refund)\nso: reject\n" in text
    assert text.endswith(
        '> ask\nasks: which_size(order="A-1003", euros=240)\n(paused: the run waits for an answer)\n'
        "(type the answer)\n> XL\n(local answered which_size)\nso: reply\n"
    )
    hashes = {given["args_hash"] for name, given in api.runner.calls if name == "answer"}
    assert hashes == {api.runner.known_requests["approval-1"].args_hash}


async def test_of_several_requests_a_command_answers_the_one_that_it_fits(api: Api, console: Console) -> None:
    assert await piped(api, console, "both\n/approve\n/approve\nXL\n/reject\n") == 0
    text = console.text()
    assert (
        "(paused: the run waits for 2 answers)\n(a text answers the questions and rejects the rest;" in text
    )
    assert text.count("(nothing waits for that)") == 2
    answered = [given["request"] for name, given in api.runner.calls if name == "answer"]
    assert answered == ["approval-2"]
    assert "> XL\n(local allowed refund) (1 more to answer)\n(local answered which_size)\nso: reply\n" in text


async def test_what_is_no_decision_is_not_sent(api: Api, console: Console) -> None:
    assert await piped(api, console, "pay\n/edit 5\n/approve all\n/edit\n") == 0
    assert console.text().count("not answered: ") == 3
    assert [name for name, _ in api.runner.calls if name == "answer"] == []


async def test_a_typed_chat_is_asked_and_goes_on(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True) as running:
        console.type("pay\n")
        await console.shows("any other text rejects it)\n")
        console.type("/approve\n")
        await console.shows("(local allowed refund)\nso: approve\n")
        console.type("hello\n")
        await console.shows("echo: hello\n")
        console.type("/quit\n")
        assert await running == 0


async def test_a_request_that_somebody_else_has_answered_says_so(api: Api, console: Console) -> None:
    thread = api.runner.add_thread()
    asked = request_of("q", thread=thread, status="answered", answer={"kind": "approve"}, answered_by="ada")
    api.runner.known_requests["q"] = asked
    opened = fact(
        1, "request_opened", request="q", kind="approval", tool="refund", args={}, args_hash=asked.args_hash
    )
    async with chatting(api, console, interactive=True, thread=thread) as running:
        position = Position(seq=1, fence=1)
        await api.runner.publish(thread, Delivery(frame=opened, body=opened.body(), position=position))
        await console.shows("asks to allow: refund()")
        console.type("/reject\n")
        await console.shows("not answered: this request was answered by 'ada' before")
        console.type("/quit\n")
        assert await running == 0


async def test_a_stop_when_nothing_runs_says_so(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True) as running:
        console.type("/stop\n/quit\n")
        assert await running == 0
    assert "(nothing runs)" in console.text()


@pytest.mark.parametrize(("length", "sent"), [(4094, True), (4095, False), (5000, False)])
async def test_a_line_that_the_terminal_cuts_is_not_sent(
    api: Api, capsys: pytest.CaptureFixture[str], length: int, sent: bool
) -> None:
    master, slave = pty.openpty()
    console = Console(capsys, write_fd=master, read_fd=slave)
    async with chatting(api, console, interactive=True) as running:
        await asyncio.to_thread(console.type, "x" * length + "\n")
        await console.shows("echo: xx" if sent else "not sent: a terminal line holds 4095 bytes; use `")
        console.type("/quit\n")
        assert await running == 0
    assert any(name == "send" for name, _ in api.runner.calls) is sent
    console.end()
    os.close(console.read_fd)


async def test_a_failed_answer_is_an_exit_code(api: Api, console: Console) -> None:
    assert await piped(api, console, "fail\nagain\n") == 1
    assert "the run failed (error): no luck" in console.text()
    assert "echo: again" in console.text()


async def test_a_refusal_ends_a_piped_chat(api: Api, console: Console) -> None:
    with pytest.raises(ClientError, match="there is no agent"):
        await piped(api, console, "hi\n", agent="nobody")


async def test_no_input_is_no_conversation(api: Api, console: Console) -> None:
    assert await piped(api, console, "") == 0
    assert console.text() == ""


async def test_a_typed_chat_shows_answers_and_ends_with_its_input(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True) as running:
        console.type("hello\n")
        await console.shows("echo: hello\n")
        console.type("/help\n")
        await console.shows("/stop stops the run, /new")
        console.end()
        assert await running == 0


async def test_a_refusal_does_not_end_a_typed_chat(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True) as running:
        # More than a pipe holds, so it is typed beside the chat that reads it.
        await asyncio.to_thread(console.type, "x" * 70_000 + "\n")
        await console.shows("not sent: the message has 70000 bytes")
        console.type("hello\n")
        await console.shows("echo: hello\n")
        console.type("/quit\n")
        assert await running == 0


async def test_one_may_type_while_the_agent_works_and_stop_it(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True):
        console.type("wait\n")
        async with asyncio.timeout(10):
            while not api.runner.busy:
                await asyncio.sleep(0.01)
        console.type("more\n")
        await console.shows("echo: more\n")
        console.type("/stop\n")
        await console.shows("(stopped)\n")


async def test_ctrl_c_stops_a_run_and_then_leaves(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True) as running:
        console.type("wait\n")
        async with asyncio.timeout(10):
            while not api.runner.busy:
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        await console.shows("(stopped)\n")
        assert not running.done()
        os.kill(os.getpid(), signal.SIGINT)
        assert await running == 0


async def test_leaving_in_the_middle_of_an_answer_ends_its_line(api: Api, console: Console) -> None:
    thread = api.runner.add_thread()
    async with chatting(api, console, interactive=True, thread=thread) as running:
        began = start(1, "half an ans", seq=1)
        await api.runner.publish(
            thread, Delivery(frame=began, body=began.body(), position=Position(seq=1, fence=1, n=1))
        )
        await console.shows("half an ans")
        console.end()
        assert await running == 0
    assert console.text().endswith("half an ans\n")


async def test_ctrl_c_in_a_piped_chat_stops_and_leaves(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=False) as running:
        console.type("wait\nnever sent\n")
        async with asyncio.timeout(10):
            while not api.runner.busy:
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(10):
            assert await running == 130
    assert "never sent" not in console.text()


async def test_what_others_say_on_the_thread_is_shown(api: Api, console: Console) -> None:
    thread = api.runner.add_thread()
    async with chatting(api, console, interactive=True, thread=thread), Client(api.url) as other:
        await other.send(thread, "from elsewhere")
        await console.shows("local: from elsewhere\necho: from elsewhere\n")


async def test_a_thread_that_is_not_there_is_refused_at_once(api: Api, console: Console) -> None:
    async with chatting(api, console, interactive=True, thread="nowhere") as running:
        with pytest.raises(ClientError) as caught:
            await running
    assert caught.value.code == "not_found"


async def test_the_command_talks_through_a_pipe(api: Api) -> None:
    command = [sys.executable, "-m", "threadhold.adapters.cli", "chat", "support", "--url", api.url]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await process.communicate(b"hello \xff\n")
    assert (process.returncode, err) == (0, b"")
    assert out.decode() == "> hello \ufffd\necho: hello \ufffd\n"
