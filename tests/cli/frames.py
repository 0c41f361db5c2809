"""Frames as a worker makes them, for what reads them."""

from typing import Any

from threadhold.fanout.frame import Frame, Kind

AT = "2026-03-01T12:00:00.000000+00:00"


def frame(kind: Kind, data: dict[str, Any], *, seq: int, n: int = 0, fence: int = 1) -> Frame:
    """Return a frame of the thread "t"."""
    return Frame(thread="t", run="r", fence=fence, n=n, seq=seq, kind=kind, at=AT, data=data)


def fact(seq: int, name: str, **data: Any) -> Frame:
    """Return a fact."""
    return frame("fact", {"fact": name, **data}, seq=seq)


def start(n: int, text: str = "", *, seq: int = 2, index: int = 0, kind: str = "text") -> Frame:
    """Return the start of a part of a response."""
    part = {"part_kind": kind, "content": text}
    return frame("event", {"event_kind": "part_start", "index": index, "part": part}, seq=seq, n=n)


def delta(n: int, text: str, *, seq: int = 2) -> Frame:
    """Return a text delta."""
    data = {
        "event_kind": "part_delta",
        "index": 0,
        "delta": {"part_delta_kind": "text", "content_delta": text},
    }
    return frame("event", data, seq=seq, n=n)


def fields(frame: Frame) -> dict[str, Any]:
    """Return the frame as it goes over the wire, with a cursor that tells its seq and n."""
    names = ("thread", "run", "fence", "n", "seq", "kind", "at", "data")
    cursor = f"{frame.seq}-{frame.fence}-{frame.n}"
    return {name: getattr(frame, name) for name in names} | {"cursor": cursor}
