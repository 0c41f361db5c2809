"""What the judge demands of the log of facts, and of those who watch it."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.chaos.evidence import GAP, Evidence, Json
from tests.chaos.rules_messages import ends
from tests.chaos.script import SIGN

Breach = tuple[str, str]
# What only the holder of a claim writes.
BY_ATTEMPTS: Final = ("model_called", "tool_called", "tool_returned")
BEGINS: Final = ("run_started", "attempt_started")


def stopped_as_told(evidence: Evidence) -> Iterator[Breach]:
    """A run whose stop was acknowledged while it lived ends as stopped; so does any with a stop on the log."""
    status = ends(evidence)
    for asked in evidence.asked:
        run = asked.answer.get("run") if asked.accepted and asked.op.startswith("stop") else None
        if run is None:
            continue
        expected = asked.answer["status"] if asked.answer["settled"] else "stopped"
        if status.get(run) != expected:
            yield asked.thread, f"run {run} ended as {status.get(run)}, but its stop was told {asked.answer}"
    for thread, facts in evidence.facts.items():
        for fact in facts:
            if fact["data"]["fact"] == "stop_requested" and status.get(fact["run"]) != "stopped":
                yield thread, f"run {fact['run']} was asked to stop, and ended as {status.get(fact['run'])}"


def signed(evidence: Evidence) -> Iterator[Breach]:
    """What an attempt wrote stands under its own fence, and no fence falls along the log or along the history."""
    for thread, facts in evidence.facts.items():
        newest = 0
        for fact in facts:
            if fact["fence"] < newest:
                yield thread, f"fact {fact['seq']} has fence {fact['fence']} after {newest}"
            newest = max(newest, fact["fence"])
            if fact["data"]["fact"] in (*BY_ATTEMPTS, "run_ended"):
                others = set(map(int, SIGN.findall(json.dumps(fact["data"])))) - {fact["fence"]}
                if others:
                    yield thread, f"{_named(fact)} stands under {fact['fence']}, signed {sorted(others)}"
    for event in evidence.events:
        signs = event.data.get("signs", [])
        if signs != sorted(signs):
            yield event.data["thread"], f"the history of run {event.data['run']} has fences {signs}"


def one_end(evidence: Evidence) -> Iterator[Breach]:
    """Every run that anybody heard of has one end, whoever is asked."""
    for thread, facts in evidence.facts.items():
        heard = {str(fact["run"]) for fact in facts if fact["run"]}
        counts = Counter(fact["run"] for fact in facts if fact["data"]["fact"] == "run_ended")
        told = [asked.answer for asked in evidence.asked if asked.accepted and asked.thread == thread]
        for run in sorted(heard | {str(answer["run"]) for answer in told if answer.get("run")}):
            if counts[run] != 1:
                yield thread, f"run {run} has {counts[run]} ends on the log"
    for seen in evidence.seen:
        watched = Counter(fact["run"] for fact in seen.facts if fact["data"]["fact"] == "run_ended")
        for run, count in watched.items():
            if count > 1:
                yield seen.thread, f"{seen.name} saw {count} ends of run {run}"


def answered_once(evidence: Evidence) -> Iterator[Breach]:
    """Every request is settled once, as those were told whose answer was accepted; none is open in the end."""
    decided: dict[str, tuple[str, str]] = {}
    opened: dict[str, str] = {}
    for thread, facts in evidence.facts.items():
        for fact in facts:
            data, request = fact["data"], fact["data"].get("request", "")
            if data["fact"] == "request_opened":
                opened[request] = thread
            elif data["fact"] == "request_answered":
                if request in decided:
                    yield thread, f"request {request} is settled as {decided[request]} and again as {data}"
                decided[request] = (data["by"], data["decision"])
    for request in opened.keys() - decided.keys():
        yield opened[request], f"request {request} was never settled"
    for asked in evidence.asked:
        if asked.op == "answer" and asked.accepted:
            told = (asked.answer["by"], asked.answer["decision"]["kind"])
            if told != decided.get(asked.answer["request"]):
                yield asked.thread, f"{asked.answer} was told, {decided.get(asked.answer['request'])} stands"


def replayed_once(evidence: Evidence) -> Iterator[Breach]:
    """A replay that was accepted is one run, which names its origin and comes after the origin's end."""
    for thread, facts in evidence.facts.items():
        made = Counter(fact["run"] for fact in facts if fact["data"]["fact"] == "run_replayed")
        ended: set[str] = set()
        for fact in facts:
            if fact["data"]["fact"] == "run_ended":
                ended.add(fact["run"])
            elif fact["data"]["fact"] == "run_replayed" and fact["data"]["origin"] not in ended:
                yield thread, f"{_named(fact)} repeats one that had not ended"
        told = [asked for asked in evidence.asked if asked.op == "replay" and asked.accepted]
        for asked in (one for one in told if one.thread == thread):
            if made[asked.answer["run"]] != 1 or asked.answer["origin"] != asked.run:
                yield thread, f"{asked.answer} was told, and stands {made[asked.answer['run']]} times"


def within_attempts(evidence: Evidence) -> Iterator[Breach]:
    """A run's own facts stand between the begin and the close of one of its attempts, and none after its end."""
    for thread, facts in evidence.facts.items():
        running: str | None = None
        ended: set[str] = set()
        for fact in facts:
            kind, run = fact["data"]["fact"], fact["run"]
            if run in ended:
                yield thread, f"{_named(fact)} stands after the end of its run"
            if kind in BEGINS:
                if running is not None:
                    yield thread, f"{_named(fact)} while an attempt of run {running} was open"
                running = run
            elif kind == "attempt_closed":
                running = None
            elif kind == "run_ended":
                ended.add(run)
            elif kind in BY_ATTEMPTS and (running is None or run != running):
                yield thread, f"{_named(fact)} while the attempt of {running} was open"


def watched(evidence: Evidence) -> Iterator[Breach]:
    """Each watcher saw every fact of its thread once, in order, as the table has it."""
    for seen in evidence.seen:
        table = evidence.facts.get(seen.thread, [])
        seqs = [fact["seq"] for fact in seen.facts]
        if seqs != list(range(1, len(table) + 1)):
            yield seen.thread, f"{seen.name} saw {_ranges(seqs)} of 1-{len(table)}"
        for mine, theirs in zip(seen.facts, table, strict=False):
            if mine["seq"] == theirs["seq"] and _bare(mine) != _bare(theirs):
                yield seen.thread, f"{seen.name} saw fact {mine['seq']} as {_bare(mine)}, not {_bare(theirs)}"
                break


def live_forward(evidence: Evidence) -> Iterator[Breach]:
    """Live frames grow by (fence, n), one by one within an attempt; after a gap they may jump, but never back."""
    for seen in evidence.seen:
        last, jump = (0, 0), False
        for place in seen.live:
            if place == GAP:
                jump = True
                continue
            expected = place[1] == (last[1] + 1 if place[0] == last[0] else 1)
            if place <= last or not (jump or expected):
                yield seen.thread, f"{seen.name} saw live frame {place} after {last}"
            last, jump = place, False


def at_rest(evidence: Evidence) -> Iterator[Breach]:
    """In the end every thread rests, nothing waits, no process has given up, and the audit finds nothing."""
    for text in evidence.stuck:
        yield "", text
    for thread, state in evidence.states.items():
        if state != "idle":
            yield thread, f"the thread is {state} in the end"
    for row in evidence.audit:
        yield str(row["thread_id"]), f"audit: {row['invariant']}: {row['detail']}"


def _bare(fact: Json) -> Json:
    return {name: fact[name] for name in ("run", "fence", "data")}


def _named(fact: Json) -> str:
    return f"fact {fact['seq']} {fact['data']['fact']} of run {fact['run']}"


def _ranges(seqs: list[int]) -> str:
    """Return numbers in the order seen, runs of consecutive ones as one: "1-17, 20-31"."""
    spans: list[list[int]] = []
    for seq in seqs:
        if spans and seq == spans[-1][1] + 1:
            spans[-1][1] = seq
        else:
            spans.append([seq, seq])
    return ", ".join(f"{first}-{last}" for first, last in spans) or "nothing"
