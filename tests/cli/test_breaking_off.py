"""An answer that breaks off in its middle, because nobody is there any more who could show the rest."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from tests.cli.frames import fact, fields, start
from threadhold.adapters.cli.following import follow
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client, ClientError, Watched


class Breaking:
    """A client whose watch gives up after its first words."""

    def __init__(self, text: str) -> None:
        self.frames = [fact(1, "message_accepted", by="local", content="hi"), start(1, text)]

    async def watch(self, thread: str, *, after: str, until: str) -> AsyncGenerator[Watched, None]:
        """Yield the message and some words, and give up."""
        for frame in self.frames:
            yield Watched(frame=frame, cursor="1-1-1", fields=fields(frame))
        raise ClientError("unreachable", "no answer")


async def broken_off(text: str, terminal: Terminal) -> None:
    """Follow a message whose answer breaks off."""
    client = cast(Client, Breaking(text))
    await follow(client, terminal, "t", seq=1, kept="the message is kept", said="hi")


@pytest.mark.parametrize(("text", "out"), [("Half an", "Half an\n"), ("All of it\n", "All of it\n")])
async def test_leaves_no_open_line_and_says_how_to_go_on(
    text: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClientError):
        await broken_off(text, Terminal())
    written = capsys.readouterr()
    assert written.out == out
    assert written.err == f"the message is kept; to go on: {program()} tail t\n"


async def test_tells_a_program_nothing_but_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClientError):
        await broken_off("Half an", Terminal(as_json=True))
    written = capsys.readouterr()
    assert (written.out.count("\n"), written.err) == (2, "")
