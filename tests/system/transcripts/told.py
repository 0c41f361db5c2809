"""What the transcripts tell of one and the same run, so that they can be compared. Pure."""

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.system.transcripts.kept import Json

GOLDEN: Final = Path(__file__).parent / "golden"
_TAILED: Final = re.compile(r"#(\d+) (\w+) +(.*)")


class Happened(NamedTuple):
    """A fact as a door has told it."""

    seq: int
    run: str | None
    fact: str
    data: Json


def text(golden: str) -> str:
    """Return a transcript."""
    return (GOLDEN / golden).read_text(encoding="utf-8")


def answers(golden: str) -> list[Any]:
    """Return what a door has said, in order."""
    said = [json.loads(line) for line in text(golden).splitlines()]
    return [each["<-"] for each in said if "<-" in each]


def frames(golden: str) -> list[Json]:
    """Return the frames in a transcript, without their cursors, which are named in the order of all that was said."""
    said = [each["data"] if "event" in each else each for each in answers(golden)]
    return [
        {name: value for name, value in each.items() if name not in ("op", "cursor")}
        for each in said
        if "kind" in each
    ]


def facts(golden: str) -> list[Happened]:
    """Return the facts among the frames in a transcript, without where the live frames of a run have ended."""
    return [
        Happened(frame["seq"], frame["run"], frame["data"]["fact"], _data(frame["data"]))
        for frame in frames(golden)
        if frame["kind"] == "fact"
    ]


def _data(fact: Json) -> Json:
    return {name: value for name, value in fact.items() if name not in ("fact", "live")}


def events(golden: str) -> list[Happened]:
    """Return what an MCP host was told by `watch`."""
    watched = [each for each in answers(golden) if isinstance(each, dict) and "events" in each]
    told = [event for each in watched for event in each["events"]]
    return [Happened(each["seq"], each["run"], each["fact"], each["data"]) for each in told]


def tailed(golden: str) -> list[tuple[int, str, str]]:
    """Return the facts that a person was shown: place, kind, and the rest of the line."""
    found = [_TAILED.search(line) for line in text(golden).splitlines()]
    return [(int(each[1]), each[2], each[3]) for each in found if each]


def live_texts(golden: str) -> list[str]:
    """Return the text of each response as it was shown live, piece by piece."""
    texts: list[str] = []
    for frame in frames(golden):
        match frame["data"]:
            case {"event_kind": "part_start", "part": {"part_kind": "text", "content": str(piece)}}:
                texts.append(piece)
            case {"event_kind": "part_delta", "delta": {"content_delta": str(piece)}}:
                texts[-1] += piece
    return texts
