"""What `send` prints of a thread where something went on before: all that follows the message, and only that."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall

from tests.cli.conftest import Api, RunCli
from tests.cli.desk import Desk, open_desk
from tests.cli.frames import delta, fact, frame, start
from tests.cli.test_commands import objects
from tests.http.test_rest_page import answers
from tests.support.scripted import prompts
from tests.support.servers import TestServers
from threadhold.adapters.cli.view import ChatView
from threadhold.adapters.client import Client
from threadhold.fanout.cursor import N_MAX
from threadhold.fanout.frame import Frame

SLOW: Final = "Say it slowly."
PAY: Final = "Pay 120 euros for invoice 17, cost centre 4."
DESKS: Final[dict[str, Desk]] = {}


async def halting(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Answer, and when told to be slow, stop in the middle of a sentence until somebody steers."""
    if prompts(messages)[-1] != SLOW:
        async for part in answers(messages, info):
            yield part
        return
    yield "Half a "
    async with Client(DESKS["here"].url) as client:
        (thread,) = {run.thread for run in await client.runs(status=["running"])}
        while True:
            accepted = [each.kind for each in (await client.facts(thread)).items].count("message_accepted")
            if accepted == 3:
                break
            await asyncio.sleep(0.01)
    yield "sentence."


@pytest.fixture(scope="module")
def desk(servers: TestServers) -> Iterator[Desk]:
    """Open one desk for all tests of this file."""
    with open_desk(servers, halting) as opened:
        DESKS["here"] = opened
        yield opened


@pytest.fixture
def at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, _own_environment: None) -> Desk:
    """Lead the commands there."""
    monkeypatch.setenv("THREADHOLD_URL", desk.url)
    return desk


def begun(run_cli: RunCli, *args: str) -> dict[str, Any]:
    """Send, wait for the end, and return the receipt."""
    done = run_cli("send", *args, "--json")
    assert done.code == 0, done.err
    receipt: dict[str, Any] = objects(done.out)[0]["receipt"]
    return receipt


async def spoken(url: str, thread: str) -> None:
    """Return when the present run has said something."""
    async with Client(url) as client, asyncio.timeout(20):
        async for watched in client.watch(thread):
            if watched.frame.kind == "event":
                return


@pytest.mark.parametrize("as_json", [False, True])
def test_who_steers_is_shown_the_answer_in_progress_and_nothing_of_before(
    at_the_desk: Desk, run_cli: RunCli, as_json: bool
) -> None:
    thread = begun(run_cli, "What can you do for me?")["thread"]
    begun(run_cli, thread, SLOW, "--no-wait")
    asyncio.run(spoken(at_the_desk.url, thread))
    steered = run_cli("send", thread, "And now?", *(["--json"] if as_json else []))
    assert steered.code == 0
    if not as_json:
        assert steered.out == "Half a sentence.\nI pay invoices.\n"
        return
    receipt, *frames = objects(steered.out)
    assert receipt["receipt"]["disposition"] == "steered"
    facts = [each["seq"] for each in frames if each["kind"] == "fact"]
    assert facts == list(range(receipt["receipt"]["seq"], facts[-1] + 1))
    assert frames[0]["data"]["content"] == "And now?"
    assert [each["data"]["fact"] for each in frames if each["kind"] == "fact"].count("run_ended") == 1


def test_who_replies_is_not_shown_again_what_the_run_did_before(at_the_desk: Desk, run_cli: RunCli) -> None:
    thread = begun(run_cli, PAY)["thread"]
    replied = run_cli("send", thread, "too much")
    assert (replied.code, replied.out) == (0, "(local rejected pay)\nI pay invoices.\n")


def test_a_message_that_was_sent_before_shows_its_own_answer(at_the_desk: Desk, run_cli: RunCli) -> None:
    thread = begun(run_cli, "hello")["thread"]
    assert run_cli("send", thread, "one", "--key", "k").out == "I pay invoices.\n"
    begun(run_cli, thread, "two")
    again = run_cli("send", thread, "one", "--key", "k")
    assert again.out == "I pay invoices.\nlocal: two\nI pay invoices.\n"
    assert "(sent before)" in again.err


def test_a_watch_begins_before_the_message_and_behind_attempts_that_were_over(
    api: Api, run_cli: RunCli
) -> None:
    thread = begun(run_cli, "hello", "--agent", "support", "--url", api.url)["thread"]
    for content in ("again", "wait"):
        begun(run_cli, thread, content, "--url", api.url, *(["--no-wait"] if content == "wait" else []))
    steered = run_cli("send", thread, "done", "--url", api.url)
    assert (steered.code, steered.out) == (0, "echo: done\n")
    watched = [given["after"] for name, given in api.runner.calls if name == "position"]
    # Four facts a run, and the two of the one that waits.
    assert watched == ["start", f"4-1-{N_MAX}", "10-1-0"]


def told(before: list[Frame], behind: list[Frame]) -> str:
    """Return what is shown to somebody who comes between the two."""
    view = ChatView()
    for each in before:
        view.overhear(each)
    return "".join(piece.text for each in behind for piece in view.feed(each))


OLD: Final = [start(1, "Old "), delta(2, "answer.")]
NEW: Final = [start(3, "Half "), delta(4, "a ")]
LOST: Final = frame("gap", {"reason": "lost"}, seq=6)
ACCEPTED: Final = fact(7, "message_accepted", by="ada", content="Hm.")


@pytest.mark.parametrize(
    ("before", "behind", "said"),
    [
        # Over by then.
        (OLD, [ACCEPTED, start(3, "New.", seq=8), fact(9, "model_called", text="New.")], "ada: Hm.\nNew.\n"),
        # In progress: it goes on live, or ends with what was heard, or is told by its fact alone.
        (OLD + NEW, [ACCEPTED, delta(5, "sentence.")], "ada: Hm.\nHalf a sentence."),
        (OLD + NEW, [ACCEPTED, fact(8, "model_called", text="Half a ")], "ada: Hm.\nHalf a \n"),
        (NEW[1:], [ACCEPTED, fact(8, "model_called", text="Half a ")], "ada: Hm.\nHalf a \n"),
        (NEW, [delta(5, "sentence."), fact(8, "model_called", text="Half a sentence.")], "Half a sentence.\n"),
        # Begun again elsewhere, withdrawn, or stopped before it went on.
        (NEW, [frame("attempt", {"attempt": 2}, seq=8, n=1), start(2, "Whole.", seq=8)], "Whole."),
        (NEW, [fact(8, "attempt_closed", text="withdrawn"), start(1, "Whole.", seq=9)], "Whole."),
        (NEW, [fact(8, "run_ended", status="stopped"), start(1, "Whole.", seq=9)], "(stopped)\nWhole."),
        # With a hole in what was heard.
        ([*NEW, LOST], [delta(6, "ence."), fact(8, "model_called", text="Half a sentence.")], "Half a sentence.\n"),
    ],
)  # fmt: skip
def test_an_answer_is_shown_as_a_whole_if_it_goes_on(
    before: list[Frame], behind: list[Frame], said: str
) -> None:
    assert told(before, behind) == said
