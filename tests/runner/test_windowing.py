"""A window in a run: asked for at each request, told on record, and whoever sums up what is left out is asked once."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.runner.conftest import ME, Bench, of_kind
from tests.runner.test_unruly_agents import host
from tests.support.agents import add
from tests.support.histories import texts
from tests.support.scripted import scripted_model
from threadhold import Hosted, Window
from threadhold.runner.machine import RunStatus
from threadhold.runner.window import SUMMARY

History = list[ModelMessage]
RUN = "run-2"


class Secretary:
    """Tells in short what messages said, and remembers how often it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[History] = []

    async def __call__(self, dropped: History) -> str:
        self.asked.append(dropped)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def windowed(bench: Bench, monkeypatch: pytest.MonkeyPatch, window: Window) -> None:
    agent = Agent(scripted_model(), tools=[add], system_prompt="be kind")
    host(bench, monkeypatch, Hosted(agent, window=window))


async def test_the_model_is_shown_a_part_and_the_store_keeps_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(bench, monkeypatch, Window(messages=4, chars=2_000))
    receipt = await bench.send("say one")
    facts = await bench.idle(receipt.thread)
    for text in ("two", "three", "four"):
        facts = await bench.ask(f"say {text}", receipt.thread)
    assert texts(bench.seen[-1], UserPromptPart) == ["say three", "say four"]
    assert texts(bench.seen[-1], SystemPromptPart) == ["be kind"]
    history = await bench.history(receipt.thread)
    assert texts(history, UserPromptPart) == ["say one", "say two", "say three", "say four"]
    assert texts(history, TextPart) == ["one", "two", "three", "four"]
    told = [
        {key: fact[key] for key in ("shown", "dropped", "compacted")}
        for fact in of_kind(facts, "history_windowed")
    ]
    assert told == [
        {"shown": 3, "dropped": 2, "compacted": False},
        {"shown": 3, "dropped": 4, "compacted": False},
    ]


async def test_a_long_run_is_bounded_at_each_request_and_ends_as_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(bench, monkeypatch, Window(messages=6))
    script = " ;; ".join(['call add {"a": 1, "b": 2}'] * 2 + ["say done"])
    facts = await bench.ask(script)
    thread = (await bench.runner.threads(by=ME))[0].id
    facts = await bench.ask(script, thread)
    assert facts[-1]["status"] == "completed"
    assert all(len(shown) <= 6 for shown in bench.seen)
    assert (
        len(texts(await bench.history(thread), ToolReturnPart)) == len(of_kind(facts, "tool_returned")) == 4
    )


async def test_compact_is_asked_once_for_the_same_messages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    secretary = Secretary("They counted.")
    windowed(bench, monkeypatch, Window(messages=8, compact=secretary))
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    await bench.ask("say two", receipt.thread)
    script = " ;; ".join(['call add {"a": 1, "b": 2}'] * 3 + ["say done"])
    await bench.ask(script, receipt.thread)
    assert [len(dropped) for dropped in secretary.asked] == sorted(
        {len(dropped) for dropped in secretary.asked}
    )
    assert f"{SUMMARY}They counted." in texts(bench.seen[-1], UserPromptPart)[0]
    asked = len(secretary.asked)
    assert 0 < asked < len(bench.seen)
    # What was said in short is for the model alone.
    assert not any(SUMMARY in text for text in texts(await bench.history(receipt.thread), UserPromptPart))


async def test_a_run_goes_on_without_a_summary_where_compact_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(bench, monkeypatch, Window(messages=4, compact=Secretary(RuntimeError("no"))))
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    await bench.ask("say two", receipt.thread)
    facts = await bench.ask("say three", receipt.thread)
    assert facts[-1]["status"] == "completed"
    told = of_kind(facts, "history_windowed")
    assert [(fact["compacted"], fact["error"]) for fact in told] == [(False, "RuntimeError")]
    assert texts(bench.seen[-1], UserPromptPart) == ["say two", "say three"]


async def test_a_run_whose_compact_hangs_can_be_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hang(dropped: History) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    windowed(bench, monkeypatch, Window(messages=4, compact=hang))
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    await bench.ask("say two", receipt.thread)
    third = await bench.send("say three", receipt.thread)
    await begun.wait()
    stopped = await bench.runner.stop(by=ME, run=third.run, wait=10)
    assert (stopped.settled, stopped.status) == (True, RunStatus.STOPPED)


async def test_what_was_said_of_messages_holds_for_the_runs_after(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    secretary = Secretary("They counted.")
    windowed(bench, monkeypatch, Window(messages=9, compact=secretary))
    receipt = await bench.send("say 0")
    await bench.idle(receipt.thread)
    for n in range(1, 7):
        await bench.ask(f"say {n}", receipt.thread)
    # Two messages at a time fall out, with the 6th and the 7th run.
    assert [len(dropped) for dropped in secretary.asked] == [2, 4]
