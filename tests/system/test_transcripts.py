"""One script over every door, held to a transcript that people can read: `transcripts/golden/`.

Text in three pieces, two parallel tools, a steer, an approval, and a second run that is stopped in the middle of a
sentence. When what a door shows has changed on purpose, write the transcripts anew and look at what git says of them:

    RENEW_TRANSCRIPTS=1 .venv/bin/pytest tests/system/test_transcripts.py && git diff tests/system/transcripts/golden
"""

import os
from typing import Final

import pytest

from tests.mcp.replicas import ERAS
from tests.support.truth import Truth
from tests.support.watching import People
from tests.system.conftest import System
from tests.system.transcripts import told
from tests.system.transcripts.hosts import over_http, over_mcp, over_stdio
from tests.system.transcripts.play import Opened, gates, play
from tests.system.transcripts.streams import over_sse, over_websocket
from tests.system.transcripts.terminals import over_cli, over_cli_json

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

# Whatever carries it, MCP shows the same, so that all of these are held to one transcript.
MCP: Final = "mcp.jsonl"
DOORS: Final[dict[str, tuple[Opened, str]]] = {
    "ws": (over_websocket, "ws.jsonl"),
    "sse": (over_sse, "sse.jsonl"),
    **{f"mcp-http-{era}": (over_mcp(over_http, era), MCP) for era in ERAS},
    **{f"mcp-stdio-{era}": (over_mcp(over_stdio, era), MCP) for era in ERAS},
    "cli-json": (over_cli_json, "cli-json.jsonl"),
    "cli": (over_cli, "cli.txt"),
}


@pytest.mark.parametrize("name", DOORS)
async def test_a_door_shows_what_its_transcript_says(
    system: System, judge: Truth, public: People, name: str
) -> None:
    opened, golden = DOORS[name]
    await system.crew.have(1)
    async with gates(system, name) as gate, opened(system, public) as door:
        await play(door, gate)
        shown = door.transcript().replace(f"{name}.", "")
    if os.environ.get("RENEW_TRANSCRIPTS"):
        (told.GOLDEN / golden).write_text(shown, encoding="utf-8")
    assert shown.splitlines() == told.text(golden).splitlines()


# What follows reads the transcripts, to which the test above holds the doors.
TEXTS: Final = ["Grüße, naïve 💬", "Now the money.", "heard: Mind the gap.", "Half a senten"]
ENDS: Final = [
    ("run-1", {"status": "completed", "output": "heard: Mind the gap."}),
    ("run-2", {"status": "stopped", "reason": "person"}),
]
SHOW_FRAMES: Final = ("ws.jsonl", "sse.jsonl", "cli-json.jsonl")
CAME_IN_BY: Final = ("websocket", "rest", "rest")


def test_doors_that_show_frames_show_the_same_ones() -> None:
    shown = [told.frames(golden) for golden in SHOW_FRAMES]
    for frames, interface in zip(shown, CAME_IN_BY, strict=True):
        admitted = [frame["admission"] for frame in frames if frame["run"] is not None]
        assert {each.pop("interface") for each in admitted} == {interface}
        assert all(
            each == {"principal": "local", "environment": "development", "budget": None} for each in admitted
        )
    assert shown[0] == shown[1] == shown[2]
    assert [each.seq for each in told.facts("ws.jsonl")] == list(range(1, 29))


def test_mcp_tells_the_same_facts() -> None:
    # What the model has said stands in `text`, not among the events.
    facts = [each for each in told.facts("ws.jsonl") if each.fact != "model_called"]
    assert told.events(MCP) == facts


def test_people_are_shown_the_same_facts() -> None:
    facts = told.facts("ws.jsonl")
    tailed = told.tailed("cli.txt")
    assert [(place, fact) for place, fact, _ in tailed] == [(each.seq, each.fact) for each in facts]
    ends = [line for _, fact, line in tailed if fact == "run_ended"]
    assert ['status="completed"' in ends[0], 'output="heard: Mind the gap."' in ends[0]] == [True, True]
    assert 'status="stopped" reason="person"' in ends[1]


def test_every_door_shows_the_same_text_to_the_byte() -> None:
    for golden in SHOW_FRAMES:
        said = [each.data["text"] for each in told.facts(golden) if each.fact == "model_called"]
        assert told.live_texts(golden) == said == TEXTS
    watched = [each for each in told.answers(MCP) if isinstance(each, dict) and "events" in each]
    assert [each["text"] for each in watched if each["text"] and each["status"] != "stopped"] == TEXTS
    shown = told.text("cli.txt")
    assert all(f"\n{text}\n" in shown for text in (TEXTS[0], TEXTS[1], TEXTS[3]))
    assert f'output="{TEXTS[2]}"' in shown


def test_every_door_tells_the_same_ends() -> None:
    for golden in SHOW_FRAMES:
        ends = [(each.run, each.data) for each in told.facts(golden) if each.fact == "run_ended"]
        assert ends == ENDS
    looked = [each for each in told.answers(MCP) if isinstance(each, dict) and "stop_requested" in each]
    kept = ("status", "output", "reason")
    assert [(each["run"], {name: each[name] for name in kept if name in each}) for each in looked] == ENDS
    assert "\nrun run-2: stopped\n" in told.text("cli.txt")
