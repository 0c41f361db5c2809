"""Frames as they come over the socket, and what the page's own fold makes of them."""

import json
from typing import Any

from tests.page.browser import Tab


def frame(kind: str, seq: int = 0, *, run: str = "run", **data: Any) -> dict[str, Any]:
    """Return a frame as it comes over the socket."""
    return {"kind": kind, "seq": seq, "run": run, "data": data, "cursor": f"{seq}-0-0"}


def fact(name: str, seq: int, /, **data: Any) -> dict[str, Any]:
    """Return the frame of a fact."""
    return frame("fact", seq) | {"data": {"fact": name, **data}}


def start(text: str, *, index: int = 0, seq: int = 0, kind: str = "text") -> dict[str, Any]:
    """Return the frame that starts a part."""
    part = {"part_kind": kind, "content": text}
    return frame("event", seq, event_kind="part_start", index=index, part=part)


def delta(text: str, *, index: int = 0, seq: int = 0) -> dict[str, Any]:
    """Return the frame of some text."""
    change = {"part_delta_kind": "text", "content_delta": text}
    return frame("event", seq, event_kind="part_delta", index=index, delta=change)


async def folded(module: Tab, *frames: Any) -> dict[str, Any]:
    """Return the state after some frames; each of them must leave earlier states as they were."""
    state: dict[str, Any] = await module.js(
        "import('/page/folding.js').then(({fold, EMPTY}) => "
        f"{json.dumps(frames)}.reduce((state, frame) => fold(Object.freeze(state), frame), EMPTY))"
    )
    return state


async def texts(module: Tab, *frames: Any) -> list[str]:
    """Return the texts of the items after some frames."""
    return [item["text"] for item in (await folded(module, *frames))["items"]]
