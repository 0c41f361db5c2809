"""What is kept of what a door showed: all of it, except what differs from run to run. Pure.

Ids, fences and cursors get names in the order in which they appear; times and durations go; text that came in several
pieces is one, since the pieces depend on how fast the machine was; heartbeats, which say that nothing happened, go. A
live frame that came late stands where it says that it belongs, behind the fact that it names.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

# The numbers of tokens are guesses that other versions of the library may guess otherwise.
MEASURED: Final = frozenset({"latency_ms", "ms", "input_tokens", "output_tokens"})
_VARIES: Final = re.compile(
    r"(?P<cursor>\b\d+-(?:0|\d{16})-\d+\b)"
    r"|(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<fence>\b\d{16}\b)"
    r"|(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)|\b\d\d:\d\d:\d\d\.\d{3}\b)"
    r"|(?P<worker>\bworker\d+-[0-9a-f]{12}\b)"
    r"|(?P<took>(?<=\bms=)[\d.]+)"
)
_NOUN: Final = re.compile(r"(thread|run|message|request|answer)s?\W*$")


def line(value: Json) -> str:
    """Return a value as a line of JSON that people can read."""
    return json.dumps(value, ensure_ascii=False)


def named(text: str) -> str:
    """Return the text with names instead of ids, fences and cursors, and without times."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def name(found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        if kind in ("time", "worker", "took"):
            return kind
        if found[0] not in names:
            kind = _noun(text[: found.start()][-20:]) if kind == "id" else kind
            counts[kind] += 1
            names[found[0]] = f"{kind}-{counts[kind]}"
        return f'"{names[found[0]]}"' if found.lastgroup == "fence" else names[found[0]]

    return _VARIES.sub(name, text)


def _noun(before: str) -> str:
    """Return what an id is the id of, by the word before it."""
    found = _NOUN.search(before)
    noun = found[1] if found else "id"
    return "request" if noun == "answer" else noun


def kept(frames: list[Json]) -> list[Json]:
    """Return frames as they are kept."""
    shown = sorted((frame for frame in frames if frame["kind"] != "head"), key=_place)
    return list(_numbered(_joined([_bare(frame) for frame in shown])))


def _place(frame: Json) -> tuple[int, bool, int, int]:
    """Return where a frame belongs: facts by their number, live frames behind the fact that they came after."""
    return frame["seq"], frame["n"] > 0, frame["fence"], frame["n"]


def unmeasured(value: Any) -> Any:
    """Return a value with a zero for whatever was measured."""
    if isinstance(value, dict):
        return {name: 0 if name in MEASURED else unmeasured(each) for name, each in value.items()}
    return [unmeasured(each) for each in value] if isinstance(value, list) else value


def _bare(frame: Json) -> Json:
    """Leave out what was measured and, of the library's own events, what is empty: its versions differ in that."""
    data = unmeasured(frame["data"])
    return {**frame, "data": _filled(data) if frame["kind"] == "event" else data}


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        filled = {name: _filled(each) for name, each in value.items()}
        return {name: each for name, each in filled.items() if each not in (None, {}, [])}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _joined(frames: list[Json]) -> list[Json]:
    """Join pieces of one text that follow each other; the whole stands where the last one stood."""
    joined: list[Json] = []
    for frame in frames:
        before = _piece(joined[-1]) if joined else None
        if before is not None and _piece(frame) is not None and _part(joined[-1]) == _part(frame):
            delta = frame["data"]["delta"]
            delta = {**delta, "content_delta": before + delta["content_delta"]}
            joined[-1] = {**frame, "data": {**frame["data"], "delta": delta}}
        else:
            joined.append(frame)
    return joined


def _piece(frame: Json) -> str | None:
    text: str | None = frame["data"].get("delta", {}).get("content_delta")
    return text


def _part(frame: Json) -> tuple[Any, ...]:
    return frame["fence"], frame["seq"], frame["data"]["index"]


def _numbered(frames: list[Json]) -> Iterator[Json]:
    """Number live frames anew within each attempt, since some of them are joined now."""
    last: Counter[int] = Counter()
    for frame in frames:
        if frame["n"] > 0:
            last[frame["fence"]] += 1
            yield {**frame, "n": last[frame["fence"]]}
        elif "live" in frame["data"]:
            live = frame["data"]["live"]
            yield {**frame, "data": {**frame["data"], "live": {**live, "n": last[live["fence"]]}}}
        else:
            yield frame
