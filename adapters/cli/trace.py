"""One line per frame, for operators. Pure."""

import json
from typing import Any, Final

from threadhold.fanout.frame import Frame

WIDTH_MAX: Final = 200
_STYLES: Final = {"fact": "bold", "gap": "yellow", "end": "green"}


def trace_line(frame: Frame) -> tuple[str, str] | None:
    """Return a frame as a line and its style; None for heartbeats, which only say that nothing happened."""
    if frame.kind == "head":
        return None
    data = dict(frame.data)
    place = f"~{frame.n}" if frame.is_live else f"#{frame.seq}"
    name = str(data.pop("fact", None) or data.pop("event_kind", None) or frame.kind)
    detail = _detail(data)
    text = f"{frame.at[11:23]:12} {place:>8} {name:18} {detail}"
    return text.rstrip()[:WIDTH_MAX], _STYLES.get(frame.kind, "dim")


def _detail(data: dict[str, Any]) -> str:
    """Return what a frame says, most telling first."""
    match data:
        case {"delta": {"content_delta": str(text)}}:
            return json.dumps(text, ensure_ascii=False)
        case {"part": {"part_kind": str(kind), **rest}}:
            told = {name: rest[name] for name in ("tool_name", "content", "args") if rest.get(name)}
            return f"{kind} {_plain(told)}".rstrip()
    return _plain(data)


def _plain(data: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in data.items()
        if value not in (None, {}, [])
    )
