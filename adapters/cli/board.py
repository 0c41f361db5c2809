"""What `ps --watch` shows, given what was seen and when it is. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from threadhold.adapters.cli.durations import clock, since
from threadhold.adapters.cli.tables import run_row
from threadhold.adapters.replies import ClientError
from threadhold.runner.machine import is_active
from threadhold.runner.records import Run, Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Runs as they were found at a time; `known` has what was found out about those in progress, by id."""

    runs: Sequence[Run]
    known: Mapping[str, Why]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A replica that does not answer, and since when."""

    error: ClientError
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Runs that are looked at again and again.

    Args:
        seen: what the last look that succeeded has found.
        away: why those after it did not.
        now: the time.
        every: seconds between two looks.
        limit: how many runs a look finds at most.
    """

    seen: Seen
    away: Away | None
    now: datetime
    every: float
    limit: int

    def rows(self) -> list[Sequence[str]]:
        """Return the runs as rows."""
        return [run_row(run, self.seen.known.get(run.id), self.now) for run in self.seen.runs]

    @property
    def style(self) -> str:
        """How the caption looks: it stands out while nobody answers."""
        return "dim" if self.away is None else "yellow"

    def caption(self, hidden: int) -> str:
        """Return what stands below them, `hidden` of which have no room."""
        told = f"{self._count()}{f' ({hidden} more have no room)' if hidden else ''}"
        if self.away is None:
            return f"{told} at {clock(self.seen.at)} UTC, looked at every {self.every:g} s; Ctrl-C ends"
        why = self.away.error.message.partition("; ")[0]
        gone = f"away for {since(self.away.since, self.now)}: {why}"
        return f"{told} at {clock(self.seen.at)} UTC; {gone}; tried again every {self.every:g} s, Ctrl-C ends"

    def _count(self) -> str:
        count = len(self.seen.runs)
        if count >= self.limit:
            return f"the newest {count} runs"
        return {0: "no runs", 1: "1 run"}.get(count, f"{count} runs")

    def records(self) -> list[dict[str, Any]]:
        """Return the look for programs: what kind of look it was, then its runs; none if nobody answered."""
        look: dict[str, Any] = {"at": self.now.isoformat(), "runs": len(self.seen.runs)}
        if self.away is not None:
            told = {"code": self.away.error.code, "message": self.away.error.message}
            return [{"look": look | {"runs": 0, "away": told}}]
        return [{"look": look}, *run_records(self.seen)]


def run_records(seen: Seen) -> list[dict[str, Any]]:
    """Return each run as an object, with its whereabouts while it is in progress."""
    return [{"run": asdict(run), **_whereabouts(seen.known.get(run.id))} for run in seen.runs]


def _whereabouts(why: Why | None) -> dict[str, object]:
    if why is None or not is_active(why.run.status):
        return {}
    open_ones = [request.id for request in why.requests if request.status == "open"]
    return {"claim": why.claim, "has_worker": why.has_worker, "requests": open_ones}
