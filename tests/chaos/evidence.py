"""What the judge is given: everything that the harness, the clients and the witness saw, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Json = dict[str, Any]
# `time.monotonic()` of this machine: the same clock in every process.
Stamp = float
FOREVER: Stamp = float("inf")
# Stands among the places of live frames where a watcher was told of a gap.
GAP = (0, 0)


@dataclass(frozen=True, slots=True)
class Event:
    """One report to the witness.

    `what` is "model" or "tool" (a call, with `phase` "begin" or "end"), "stalled" (a loop that stood still from
    `since` to `until`), "invalid" (a request that a provider would refuse), "here" or "gone" (of a process).
    """

    at: Stamp
    what: str
    pid: int
    data: Json

    @classmethod
    def parse(cls, line: Json) -> Self:
        """Read a line of the witness's log."""
        rest = {name: value for name, value in line.items() if name not in ("at", "what", "pid")}
        return cls(line["at"], line["what"], line["pid"], rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A model or tool call as the witness saw it; `end` is that of its process if that came first."""

    what: str
    thread: str
    run: str
    attempt: int
    fence: int
    pid: int
    call: str
    tool: str
    begin: Stamp
    end: Stamp
    tags: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Asked:
    """One operation of a client, with every try under the same key.

    `answer` is that of the last try; `status` is None while the outcome is unknown.
    """

    op: str
    thread: str
    tag: str = ""
    run: str | None = None
    began: Stamp
    ended: Stamp = FOREVER
    tries: int = 0
    status: int | None = None
    answer: Json = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the server said yes."""
        return self.status is not None and self.status < 300


@dataclass(slots=True)
class Seen:
    """What one watcher was sent, over any number of connections.

    Args:
        name: which watcher.
        thread: whom it watched.
        facts: in the order of their arrival.
        arrived: when each of them did.
        live: fence and number of each live frame, and `GAP`.
    """

    name: str
    thread: str
    facts: list[Json] = field(default_factory=list)
    arrived: list[Stamp] = field(default_factory=list)
    live: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inflicted:
    """A fault that was really inflicted: what, on whom (pids of frozen or cut off processes), from when to when."""

    kind: str
    target: str
    pids: tuple[int, ...] = ()
    began: Stamp
    ended: Stamp
    skipped: str = ""
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Everything about one world.

    Args:
        ttl: seconds that a claim lasts.
        events: of the witness, in order.
        asked: what clients did and were told.
        seen: what watchers were sent.
        inflicted: the faults.
        facts: per thread, the facts in the database, in order; only to compare.
        messages: per tag, the message as the API tells it in the end.
        states: per thread, its state as the API tells it in the end.
        audit: what the database's own audit found.
        stuck: threads that did not come to rest in time, each with what was seen.
        failures: answers that say that the server failed, each with what was asked.
        errors: what processes logged as errors: the name of the log, and the line or the bare traceback.
    """

    ttl: float
    events: Sequence[Event] = ()
    asked: Sequence[Asked] = ()
    seen: Sequence[Seen] = ()
    inflicted: Sequence[Inflicted] = ()
    facts: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    messages: Mapping[str, Json] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    audit: Sequence[Json] = ()
    stuck: Sequence[str] = ()
    failures: Sequence[str] = ()
    errors: Sequence[str] = ()

    def work(self) -> list[Work]:
        """Return every call with its end: its own, that of its process, or never."""
        open_calls: dict[str, Event] = {}
        done: list[Work] = []
        for event in self.events:
            if event.what in ("model", "tool"):
                if event.data["phase"] == "begin":
                    open_calls[event.data["call"]] = event
                elif begun := open_calls.pop(event.data["call"], None):
                    done.append(_work(begun, event.at))
            elif event.what == "gone":
                left = [call for call, begun in open_calls.items() if begun.pid == event.pid]
                done += [_work(open_calls.pop(call), event.at) for call in left]
        return sorted([*done, *(_work(begun, FOREVER) for begun in open_calls.values())], key=_begin)


def _begin(work: Work) -> Stamp:
    return work.begin


def _work(begun: Event, end: Stamp) -> Work:
    data = begun.data
    return Work(
        what=begun.what,
        thread=data["thread"],
        run=data["run"],
        attempt=data["attempt"],
        fence=data["fence"],
        pid=begun.pid,
        call=data["call"],
        tool=data.get("tool", ""),
        begin=begun.at,
        end=end,
        tags=tuple(data.get("tags", ())),
        told=tuple(data.get("told", ())),
    )
