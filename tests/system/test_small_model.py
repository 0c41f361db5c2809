"""The real small model behind the whole stack: real tokens at a real pace, from a worker to a watcher elsewhere."""

from pathlib import Path

import pytest

from tests.support.processes import Processes
from threadhold.adapters.client import Client

DEMO = str(Path(__file__).parents[2] / "examples" / "demo.py") + ":app"


@pytest.mark.model
@pytest.mark.timeout(120)
async def test_real_tokens_arrive_one_after_the_other_and_make_up_the_answer(spawn: Processes) -> None:
    spawn.worker(app=DEMO)
    _, here = spawn.api(app=DEMO)
    _, there = spawn.api(app=DEMO)
    async with Client(here) as sender, Client(there) as watcher:
        receipt = await sender.send(None, "What is the capital of France?", agent="demo")
        text, deltas, answer = "", 0, ""
        async for watched in watcher.watch(receipt.thread, after="start", until="idle"):
            data = watched.frame.data
            if data.get("event_kind") == "part_start":
                text += data["part"]["content"]
            if data.get("event_kind") == "part_delta":
                text += data["delta"]["content_delta"]
                deltas += 1
            if data.get("fact") == "model_called":
                answer = data["text"]
        assert deltas > 1
        assert text == answer
        assert "Paris" in answer
        again = await sender.send(receipt.thread, "And of Italy?")
        assert again.disposition == "started"
