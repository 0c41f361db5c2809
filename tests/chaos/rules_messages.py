"""What the judge demands of messages."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.chaos.evidence import Asked, Evidence, Json, Work

Breach = tuple[str, str]


def _sent(evidence: Evidence) -> dict[str, list[Asked]]:
    """Return what was asked for each tag; more than one where a message was sent twice on purpose."""
    sent: dict[str, list[Asked]] = defaultdict(list)
    for asked in evidence.asked:
        if asked.tag:
            sent[asked.tag].append(asked)
    return sent


def _accepted(evidence: Evidence) -> dict[str, Asked]:
    answers = {tag: [asked for asked in all if asked.accepted] for tag, all in _sent(evidence).items()}
    return {tag: accepted[0] for tag, accepted in answers.items() if accepted}


def _models(evidence: Evidence) -> dict[str, list[Work]]:
    """Return each thread's model calls, in the order in which they began."""
    calls: dict[str, list[Work]] = defaultdict(list)
    for work in evidence.work():
        if work.what == "model":
            calls[work.thread].append(work)
    return calls


def consumed_once(evidence: Evidence) -> Iterator[Breach]:
    """No request shows a message twice, and the last request of its thread shows it, unless it was returned.

    A reply to a paused run reaches the model as a result of its calls, or not at all if that run ended before. What a
    replay has left out is not shown any more.
    """
    models = _models(evidence)
    for thread, calls in models.items():
        for call in calls:
            for tag, count in Counter(call.tags).items():
                if count > 1:
                    yield thread, f"{tag} is shown {count} times in request {call.call} of run {call.run}"
    last = {thread: calls[-1].tags for thread, calls in models.items()}
    left_out = {thread: replayed_away(facts) for thread, facts in evidence.facts.items()}
    for tag, asked in _accepted(evidence).items():
        shown, left = tag in last.get(asked.thread, ()), left_out.get(asked.thread, frozenset())
        if asked.answer.get("message") in left:
            wrong = "is shown though a replay has left it out" if shown else ""
        else:
            wrong = _unlike(asked, evidence.messages.get(tag, {}), shown)
        if wrong:
            yield asked.thread, f"{tag} was accepted ({asked.answer}), and {wrong}"


def replayed_away(facts: Sequence[Json]) -> frozenset[str]:
    """Return the messages that were delivered to a branch of the history which replays have left.

    A replay goes on from where its origin stood when its model was first asked: with what was delivered until then.
    """
    delivered: set[str] = set()
    visible: list[str] = []
    begun: dict[str, list[str]] = {}
    beginning: str | None = None
    for fact in facts:
        data, run = fact["data"], fact["run"]
        if data["fact"] == "run_replayed":
            visible = list(begun[data["origin"]])
            begun[run] = list(visible)
        elif data["fact"] == "run_started" and run not in begun:
            beginning, begun[run] = run, list(visible)
        elif data["fact"] == "message_delivered":
            delivered.add(data["message"])
            visible.append(data["message"])
            if run == beginning:
                begun[run] = list(visible)
        elif run == beginning and data["fact"] == "model_called":
            beginning = None
    return frozenset(delivered - set(visible))


def _unlike(asked: Asked, message: Json, shown: bool) -> str:
    """Say what is wrong with the fate of an accepted message."""
    if message.get("state") == "returned":
        return "" if message.get("reason") else "is returned without a reason"
    if message.get("state") != "delivered":
        return f"is {message.get('state')} in the end"
    if asked.answer["disposition"] == "replied":
        return "is shown as a prompt as well" if shown else ""
    return "" if shown else "is not in the last request"


def refused_unseen(evidence: Evidence) -> Iterator[Breach]:
    """What a client was told is refused, or was returned to it, no model ever saw."""
    seen = {tag: work.thread for work in evidence.work() for tag in (*work.tags, *work.told)}
    for tag, all in _sent(evidence).items():
        refused = all and not any(asked.accepted for asked in all) and None not in {a.status for a in all}
        returned = evidence.messages.get(tag, {}).get("state") == "returned"
        if tag in seen and (refused or returned):
            yield seen[tag], f"{tag} was {'refused' if refused else 'returned'}, and a model was shown it"


def shown_by_its_run(evidence: Evidence) -> Iterator[Breach]:
    """A message that started, steered or answered a run that completed was shown by that run, first of all runs.

    Where a run failed or was stopped it may never have come to its next request: then a later run shows the message.
    """
    first: dict[str, Work] = {}
    by_run: dict[str, set[str]] = defaultdict(set)
    for work in evidence.work():
        if work.what == "model":
            by_run[work.run] |= {*work.tags, *work.told}
            for tag in work.tags:
                first.setdefault(tag, work)
    status = ends(evidence)
    for tag, asked in _accepted(evidence).items():
        message = evidence.messages.get(tag, {})
        promised, consumed = asked.answer.get("run") or "", message.get("run") or ""
        if message.get("state") != "delivered":
            continue
        if asked.answer["disposition"] != "queued" and status.get(promised) == "completed":
            if tag not in by_run[promised]:
                yield (
                    asked.thread,
                    f"{tag} was promised to run {promised}, which completed without showing it",
                )
        elif status.get(consumed) == "completed" and tag not in by_run[consumed]:
            yield asked.thread, f"{tag} is delivered to run {consumed}, which completed without showing it"
        if tag in first and first[tag].run != consumed and status.get(consumed) == "completed":
            yield (
                asked.thread,
                f"{tag} was first shown by run {first[tag].run}, but consumed by run {consumed}",
            )


def ends(evidence: Evidence) -> dict[str, str]:
    """Return the status with which each run ended, as the facts say."""
    return {
        fact["run"]: fact["data"]["status"]
        for facts in evidence.facts.values()
        for fact in facts
        if fact["data"]["fact"] == "run_ended"
    }


def sent_once(evidence: Evidence) -> Iterator[Breach]:
    """Everybody who sent with one key was told the same message, and its log has one acceptance of it."""
    accepted = Counter(
        fact["data"]["message"]
        for facts in evidence.facts.values()
        for fact in facts
        if fact["data"]["fact"] == "message_accepted"
    )
    for tag, all in _sent(evidence).items():
        told = {(a.answer["message"], a.answer["disposition"], a.answer["seq"]) for a in all if a.accepted}
        if len(told) > 1:
            yield all[0].thread, f"{tag} was answered in different ways: {sorted(told)}"
        for message, _, _ in told:
            if accepted[message] != 1:
                yield all[0].thread, f"{tag} has {accepted[message]} acceptances on the log"


def in_order(evidence: Evidence) -> Iterator[Breach]:
    """Who sends after another was answered comes after it on the log."""
    by_thread: dict[str, list[Asked]] = defaultdict(list)
    for asked in _accepted(evidence).values():
        by_thread[asked.thread].append(asked)
    for thread, all in by_thread.items():
        answered = sorted(all, key=lambda asked: asked.ended)
        newest, index = 0, 0
        for asked in sorted(all, key=lambda asked: asked.began):
            while index < len(answered) and answered[index].ended < asked.began:
                newest = max(newest, answered[index].answer["seq"])
                index += 1
            if asked.answer["seq"] <= newest:
                yield (
                    thread,
                    f"{asked.tag} was sent after the answer with seq {newest}, and got {asked.answer}",
                )


def shown_in_order(evidence: Evidence) -> Iterator[Breach]:
    """Messages of one disposition that one run consumed stand in its requests in the order of their acceptance."""
    accepted = _accepted(evidence)
    for thread, calls in _models(evidence).items():
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for tag in calls[-1].tags:
            if asked := accepted.get(tag):
                consumed = str(evidence.messages.get(tag, {}).get("run"))
                groups[(consumed, asked.answer["disposition"])].append(asked.answer["seq"])
        for (run, disposition), seqs in groups.items():
            if seqs != sorted(seqs):
                yield thread, f"run {run} shows its {disposition} messages in the order {seqs}"


def returned_by_a_stop(evidence: Evidence) -> Iterator[Breach]:
    """A stop returns only messages that were accepted before it, as the log has it and as clients saw it."""
    for thread, facts in evidence.facts.items():
        yield from ((thread, text) for text in _returned_unasked(facts))
    stops: dict[str, float] = defaultdict(float)
    for asked in evidence.asked:
        if asked.op.startswith("stop") or asked.op == "send interrupt":
            stops[asked.thread] = max(stops[asked.thread], asked.ended)
    for tag, asked in _accepted(evidence).items():
        message = evidence.messages.get(tag, {})
        if message.get("reason") == "stopped" and asked.began > stops[asked.thread]:
            yield asked.thread, f"{tag} was sent after every stop had been acknowledged, and was returned"


def _returned_unasked(facts: Sequence[Json]) -> Iterator[str]:
    """Yield the returns for which no stop of the run stands between the message's acceptance and its return."""
    accepted: dict[str, int] = {}
    stops: dict[str, int] = {}
    for fact in facts:
        data = fact["data"]
        seq: int = fact["seq"]
        if data["fact"] == "message_accepted":
            accepted[data["message"]] = seq
        elif data["fact"] == "stop_requested":
            stops[fact["run"]] = seq
        elif data["fact"] == "message_returned" and data["reason"] == "stopped":
            sent = accepted.get(data["message"], seq)
            stopped = stops.get(fact["run"], 0)
            if stopped < sent:
                told = f"the last stop of its run at {stopped}" if stopped else "no stop of its run"
                yield f"message {data['message']} was accepted at {sent} and returned at {seq}, with {told}"


def histories_valid(evidence: Evidence) -> Iterator[Breach]:
    """No request was one that a provider refuses."""
    for event in evidence.events:
        if event.what == "invalid":
            yield event.data["thread"], f"run {event.data['run']}: {event.data['why']}"
