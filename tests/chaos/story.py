"""The story of one thread: all that clients, the witness, the faults and the log have to say, in one order."""

from collections.abc import Iterator

from tests.chaos.evidence import FOREVER, Evidence, Json, Stamp

Line = tuple[Stamp, str]
TEXT_MAX = 300


def told(thread: str, evidence: Evidence) -> str:
    """Return the story, one line per event, with seconds since the first of them."""
    lines = sorted(
        [
            *_clients(thread, evidence),
            *_calls(thread, evidence),
            *_faults(evidence),
            *_facts(thread, evidence),
        ]
    )
    if not lines:
        return f"  (nothing is known of thread {thread})"
    zero = lines[0][0]
    return "\n".join(
        [f"  the story of thread {thread}:", *(f"  {at - zero:8.3f}  {text}" for at, text in lines)]
    )


def _clients(thread: str, evidence: Evidence) -> Iterator[Line]:
    for asked in evidence.asked:
        if asked.thread == thread:
            what = f"{asked.op} {asked.tag or asked.run or ''}"
            yield asked.began, f"client  asks {what}"
            if asked.ended != FOREVER:
                yield (
                    asked.ended,
                    f"client  hears of {what} after {asked.tries}: {asked.status} {_short(asked.answer)}",
                )


def _calls(thread: str, evidence: Evidence) -> Iterator[Line]:
    for work in evidence.work():
        if work.thread == thread:
            name = f"{work.what} {work.tool} {work.call[:6]} run {work.run[:13]} fence {work.fence} pid {work.pid}"
            yield (
                work.begin,
                f"witness begin {name} shown ...{list(work.tags[-4:])} told {list(work.told[-3:])}",
            )
            if work.end != FOREVER:
                yield work.end, f"witness end   {name}"


def _faults(evidence: Evidence) -> Iterator[Line]:
    for fault in evidence.inflicted:
        name = f"{fault.kind} {fault.target} {list(fault.pids) or ''} {fault.skipped}"
        yield fault.began, f"FAULT   {name}"
        yield fault.ended, f"fault over {name}"


def _facts(thread: str, evidence: Evidence) -> Iterator[Line]:
    """Yield facts when the first watcher saw them; that is later than they were made."""
    first: dict[int, Stamp] = {}
    for seen in evidence.seen:
        if seen.thread == thread:
            for fact, at in zip(seen.facts, seen.arrived, strict=True):
                first[fact["seq"]] = min(at, first.get(fact["seq"], FOREVER))
    last = 0.0
    for fact in evidence.facts.get(thread, []):
        last = max(last, first.get(fact["seq"], last))
        data = {name: value for name, value in fact["data"].items() if name != "fact"}
        kind = fact["data"]["fact"]
        yield (
            last,
            f"fact    {fact['seq']:4} {kind} run {str(fact['run'])[:13]} fence {fact['fence']} {_short(data)}",
        )


def _short(data: Json) -> str:
    text = str(data)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."
