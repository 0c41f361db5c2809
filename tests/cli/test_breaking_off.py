"""An answer that breaks off in its middle, because nobody is there any more who could show the rest."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from tests.cli.frames import fields, start
from threadhold.adapters.cli.client_commands import _answer
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client, ClientError, Watched


class Breaking:
    """A client whose watch gives up after its first words."""

    def __init__(self, text: str) -> None:
        self.frame = start(1, text)

    async def watch(self, thread: str, *, until: str) -> AsyncGenerator[Watched, None]:
        """Yield some words, and give up."""
        yield Watched(frame=self.frame, cursor="1-1-1", fields=fields(self.frame))
        raise ClientError("unreachable", "no answer")


@pytest.mark.parametrize(("text", "out"), [("Half an", "Half an\n"), ("All of it\n", "All of it\n")])
async def test_leaves_no_open_line_and_says_how_to_go_on(
    text: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClientError):
        await _answer(cast(Client, Breaking(text)), Terminal(), "t", "hi")
    written = capsys.readouterr()
    assert written.out == out
    assert written.err == f"the message is kept; to go on: {program()} tail t\n"


async def test_tells_a_program_nothing_but_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClientError):
        await _answer(cast(Client, Breaking("Half an")), Terminal(as_json=True), "t", "hi")
    written = capsys.readouterr()
    assert (written.out.count("\n"), written.err) == (1, "")
