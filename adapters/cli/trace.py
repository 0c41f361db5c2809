"""One line per frame, for operators. Pure."""

import json
from typing import Any, Final

from threadhold.fanout.frame import Frame
from threadhold.runner.records import Fact

WIDTH_MAX: Final = 200
# What to say first of a fact, before the end of the line cuts it off.
_FIRST: Final = {
    "request_opened": ("kind", "tool", "args", "request"),
    "request_answered": ("by", "decision", "tool", "args", "value", "reason", "request"),
    "attempt_closed": ("attempt", "outcome", "cause", "text", "worker"),
    "run_ended": ("status", "reason", "error"),
    "run_replayed": ("by", "origin", "checkpoint"),
    "member_changed": ("by", "member", "access", "before"),
    "draft": ("name",),
}
# What says something where it is null: who may do nothing any more was let out.
_TELLING: Final = frozenset({("member_changed", "access")})
_STYLES: Final = {"fact": "bold", "gap": "yellow", "end": "green", "draft": "cyan"}


def trace_line(frame: Frame) -> tuple[str, str] | None:
    """Return a frame as a line and its style; None for heartbeats, which only say that nothing happened."""
    if frame.kind == "head":
        return None
    data = dict(frame.data)
    place = f"~{frame.n}" if frame.is_live else f"#{frame.seq}"
    said = data.pop("fact", None) or data.pop("event_kind", None)
    name = str(frame.kind if frame.kind == "draft" else said or frame.kind)
    first = {key: data[key] for key in _FIRST.get(name, ()) if key in data}
    told = {
        key: value for key, value in (first | data).items() if value is not None or (name, key) in _TELLING
    }
    detail = _detail(told)
    text = f"{frame.at[11:23]:12} {place:>8} {name:18} {detail}"
    return text.rstrip()[:WIDTH_MAX], _STYLES.get(frame.kind, "dim")


def fact_line(fact: Fact) -> str:
    """Return a fact as the line that a watcher of it is shown."""
    frame = Frame(
        thread="",
        run=fact.run,
        fence=fact.fence,
        n=0,
        seq=fact.seq,
        kind="fact",
        at=fact.at.isoformat(timespec="milliseconds"),
        data={"fact": fact.kind, **fact.data},
    )
    line = trace_line(frame)
    assert line is not None
    return line[0]


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
        if value not in ({}, [])
    )
