"""What the judge demands of attempts: who may call models and tools, and when."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from tests.chaos.evidence import FOREVER, Evidence, Stamp, Work

Breach = tuple[str, str]
# Until a process that was frozen or stood still has looked at its clock and cancelled what runs, on a busy machine.
FENCED_WITHIN_S: Final = 1.0
# Between a record that the database took and the begin of the call that it allows, on a busy machine.
BEGIN_AFTER_RECORD_S: Final = 0.5
# What takes a worker's connections to the database away, or lets its lock on them go.
CUTS: Final = ("cut", "half open", "refuse", "hole to server", "hole to client", "hold", "kill the keeper")


def _threads(evidence: Evidence) -> dict[str, dict[int, list[Work]]]:
    """Return the calls of each thread by fence, oldest fence first."""
    threads: dict[str, dict[int, list[Work]]] = defaultdict(lambda: defaultdict(list))
    for work in evidence.work():
        threads[work.thread][work.fence].append(work)
    return {thread: dict(sorted(fences.items())) for thread, fences in threads.items()}


def _older_than(fences: dict[int, list[Work]]) -> Iterator[tuple[Work, Work]]:
    """Yield each call with the first call of the first attempt that came after its own."""
    order = list(fences)
    for older, newer in pairwise(order):
        successor = min(fences[newer], key=lambda work: work.begin)
        for work in fences[older]:
            yield work, successor


class Standstills:
    """When the processes of a world were frozen or blocked."""

    def __init__(self, evidence: Evidence) -> None:
        self._spans: dict[int, list[tuple[Stamp, Stamp]]] = defaultdict(list)
        for fault in evidence.inflicted:
            if fault.kind.startswith("freeze") and fault.pids:
                for pid in fault.pids:
                    self._spans[pid].append((fault.began, fault.ended))
        for event in evidence.events:
            if event.what == "stalled":
                self._spans[event.pid].append((event.data["since"], event.data["until"]))
        # A tool that holds the loop for long is one too, even if its process does not live to say so.
        for work in evidence.work():
            if work.tool == "block":
                self._spans[work.pid].append((work.begin, work.end))

    def moving(self, pid: int, since: Stamp, until: Stamp) -> float:
        """Return how many seconds of a span a process could act, not counting the time until it was fenced."""
        spans = [(begin, end + FENCED_WITHIN_S) for begin, end in self._spans[pid]]
        edges = sorted({since, until, *(edge for span in spans for edge in span if since < edge < until)})
        pieces = pairwise(edges)
        free = [(a, b) for a, b in pieces if not any(begin <= a and b <= end for begin, end in spans)]
        return sum(b - a for a, b in free)

    def just_over(self, pid: int, at: Stamp) -> bool:
        """Tell whether a process stood still a moment ago, or does now."""
        return any(begin <= at <= end + FENCED_WITHIN_S for begin, end in self._spans[pid])


def _was_cut_off(evidence: Evidence, pid: int, at: Stamp) -> bool:
    """Tell whether, within the time of a claim, a process was cut off from the database, or its clock jumped ahead."""
    for fault in evidence.inflicted:
        near = fault.began <= at <= fault.ended + 2 * evidence.ttl
        cut = fault.kind in CUTS and pid in fault.pids and not fault.target.endswith("redis")
        if near and not fault.skipped and (cut or fault.kind == "jump forward"):
            return True
    return False


def no_overlap(evidence: Evidence) -> Iterator[Breach]:
    """No call runs once a later attempt has begun, whichever began first; what is allowed is said by the judge."""
    standstills = Standstills(evidence)
    for thread, fences in _threads(evidence).items():
        for work, successor in _older_than(fences):
            if work.end <= successor.begin:
                continue
            since = max(work.begin, successor.begin)
            moving = standstills.moving(work.pid, since, work.end)
            in_flight = _was_cut_off(evidence, work.pid, successor.begin)
            if moving > (evidence.ttl if in_flight else 0.0):
                late = "for ever" if work.end == FOREVER else f"for {work.end - since:.2f} s"
                yield thread, f"{_named(work)} went on {late} after {_named(successor)} had begun"


def no_late_begin(evidence: Evidence) -> Iterator[Breach]:
    """No call begins after one of a later attempt, except in a process that was just thawed."""
    standstills = Standstills(evidence)
    for thread, fences in _threads(evidence).items():
        for work, successor in _older_than(fences):
            late = work.begin - successor.begin
            if late > BEGIN_AFTER_RECORD_S and not standstills.just_over(work.pid, work.begin):
                yield thread, f"{_named(work)} began {late:.2f} s after {_named(successor)} had begun"


def executed_once(evidence: Evidence) -> Iterator[Breach]:
    """A call that a model asked for is executed at most once."""
    begins = [event for event in evidence.events if event.what == "tool" and event.data["phase"] == "begin"]
    times = Counter(event.data["id"] for event in begins)
    for event in begins:
        if times[event.data["id"]] > 1:
            yield (
                event.data["thread"],
                f"call {event.data['id']} of run {event.data['run']} was executed twice",
            )


def journaled(evidence: Evidence) -> Iterator[Breach]:
    """No tool is executed before the log says so."""
    called = {
        (thread, fact["data"]["call_id"])
        for thread, facts in evidence.facts.items()
        for fact in facts
        if fact["data"]["fact"] == "tool_called"
    }
    for event in evidence.events:
        if event.what == "tool" and event.data["phase"] == "begin":
            thread, call = event.data["thread"], event.data["id"]
            if (thread, call) not in called:
                yield thread, f"call {call} of run {event.data['run']} is not on the log"


def stop_is_final(evidence: Evidence) -> Iterator[Breach]:
    """After a stop was acknowledged, no call of its run begins."""
    standstills = Standstills(evidence)
    acknowledged: dict[str, Stamp] = {}
    for asked in evidence.asked:
        run = asked.answer.get("run") if asked.accepted and asked.op.startswith("stop") else None
        if run is not None:
            acknowledged[run] = min(asked.ended, acknowledged.get(run, FOREVER))
    for work in evidence.work():
        late = work.begin - acknowledged.get(work.run, FOREVER)
        if late > BEGIN_AFTER_RECORD_S and not standstills.just_over(work.pid, work.begin):
            yield work.thread, f"{_named(work)} began {late:.2f} s after the stop of its run was acknowledged"


def allowed_overlaps(evidence: Evidence) -> Sequence[float]:
    """Return how long calls went on after their successor had begun, where that was allowed."""
    return [
        work.end - max(work.begin, successor.begin)
        for fences in _threads(evidence).values()
        for work, successor in _older_than(fences)
        if successor.begin < work.end < FOREVER
    ]


def _named(work: Work) -> str:
    return (
        f"{work.what} {work.tool} of run {work.run} attempt {work.attempt} fence {work.fence} pid {work.pid}"
    )
