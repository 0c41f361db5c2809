"""What the database holds of one thread, as plain values.

This package runs under PyPy too (Python 3.9), so it imports nothing but the standard library.
"""

from __future__ import annotations

from typing import NamedTuple

PENDING, RUNNING, PAUSED = "pending", "running", "paused"
COMPLETED, STOPPED, FAILED = "completed", "stopped", "failed"
ACTIVE = (PENDING, RUNNING, PAUSED)

NOW, NEXT = "now", "next"
WAITING, DELIVERED, RETURNED = "waiting", "delivered", "returned"

# A claim by the database's clock: it counts, it has run out, or its holder was declared over by its successor.
LIVE, LAPSED, DISOWNED = "live", "lapsed", "disowned"

QUESTION, APPROVAL, EXTERNAL = "question", "approval", "external"
OPEN, ANSWERED, DENIED, CANCELLED = "open", "answered", "denied", "cancelled"
# Whether a request runs out: never, one day, or it has.
NEVER, LATER, PAST = "never", "later", "past"

NONE = -1


class Run(NamedTuple):
    """One run. `cut` and `cut_next` are how many messages had been accepted when a stop came, or NONE."""

    status: str = PENDING
    reason: str = ""
    cut: int = NONE
    cut_next: int = NONE
    token: int = 0  # the claim of the latest start
    key: int = 0  # the worker's own key of that start
    unacked: int = 0  # starts in a row that no record followed
    retried: int = 0
    direct: bool = False  # held by somebody's own code, not by an agent of ours
    attempts: tuple[tuple[int, str], ...] = ()  # (token, outcome); an open one has no outcome
    # What only the proof knows:
    ends: int = 0  # how often its end was written
    ran: int = 0  # bit 0: its agent ran; bit 1: it ran since the last restart that is allowed


class Message(NamedTuple):
    """One accepted message; its position in the inbox, from 1, is its number."""

    key: int
    mode: str
    disposition: str
    for_run: int
    state: str = WAITING
    run: int = NONE  # who consumed it
    reason: str = ""
    kept: bool = False  # the proof's: the history holds it


class Request(NamedTuple):
    """A question, an approval or an external call that a paused run waits for."""

    run: int
    kind: str
    other_only: bool = False
    expires: str = NEVER
    status: str = OPEN
    by: str = ""
    answer: str = ""
    answers: int = 0  # the proof's: how often it was settled


class Lease(NamedTuple):
    """The row of the claim. `lock`: the holder's death would be seen, because its lock stands."""

    phase: str = LIVE
    lock: bool = True


class Db(NamedTuple):
    """All of one thread. `claim` is the token that may write now, 0 if none."""

    cur: int = NONE
    claim: int = 0
    rec: int = 0
    lease: Lease | None = None
    runs: tuple[Run, ...] = ()
    inbox: tuple[Message, ...] = ()
    requests: tuple[Request, ...] = ()
    stops: tuple[tuple[int, int], ...] = ()  # (key, the run that was current then)
    quiet: bool = False  # the database came up lately: no claim is taken over
    partial: bool = False  # text in progress is kept, and nothing was added to the history since
    loose: bool = False  # the last commit, a start, may be lost with the database

    def run(self) -> Run | None:
        """Return the current run."""
        return self.runs[self.cur] if self.cur >= 0 else None

    def with_run(self, index: int, run: Run) -> Db:
        """Return the same with one run changed."""
        return self._replace(runs=(*self.runs[:index], run, *self.runs[index + 1 :]))

    def visible(self) -> tuple[int, ...]:
        """Return the positions of the messages that the current run is to see."""
        return tuple(i for i, m in enumerate(self.inbox) if m.state == WAITING and m.mode == NOW)


class Broken(Exception):
    """An invariant does not hold; the text begins with its name."""
