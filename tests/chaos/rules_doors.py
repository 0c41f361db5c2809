"""What the judge demands of the doors and of the processes behind them: whom they refuse, and that they do not fail."""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.chaos.evidence import FOREVER, Evidence

Breach = tuple[str, str]
# With which codes an operation may be refused; one that is not listed may not be refused at all.
REFUSALS: Final[Mapping[str, frozenset[str]]] = {
    "send reject": frozenset({"thread_busy"}),
    "answer": frozenset({"already_answered", "request_closed"}),
    "replay": frozenset({"thread_busy", "not_replayable"}),
}
REFUSED: Final = 409
# Who stops a thread before anybody has sent to it is told that there is none.
NOT_YET: Final = (404, "not_found")
# Log lines in which a process says that something in it went wrong which no fault explains.
FAILURES: Final = (
    "attempt_broken",
    "hub_job_failed",
    "internal_error",
    "invariant_broken",
    "nudge_handler_failed",
    "socket_failed",
    "subscriber_failed",
)


def refused_as_asked(evidence: Evidence) -> Iterator[Breach]:
    """An operation is refused only in the ways in which it asked to be."""
    made: dict[str, float] = {}
    for asked in evidence.asked:
        if asked.accepted and asked.tag:
            made[asked.thread] = min(asked.ended, made.get(asked.thread, FOREVER))
    for asked in evidence.asked:
        if asked.status is None or asked.accepted:
            continue
        code = asked.answer.get("code")
        as_asked = asked.status == REFUSED and code in REFUSALS.get(asked.op, ())
        not_yet = (asked.status, code) == NOT_YET and asked.began <= made.get(asked.thread, FOREVER)
        if not as_asked and not (asked.op == "stop thread" and not_yet):
            name = f"{asked.op} {asked.tag or asked.run or ''}".rstrip()
            yield asked.thread, f"{name} was refused with {asked.status} after {asked.tries}: {asked.answer}"


def no_failure(evidence: Evidence) -> Iterator[Breach]:
    """No server says that it failed, and no process logs a failure of its own or writes a traceback."""
    for text in evidence.failures:
        yield "", text
    for text in evidence.errors:
        _, _, line = text.partition(": ")
        if not line.startswith("{") or any(name in line for name in FAILURES):
            yield "", text
