"""What a step must have left on the log, read off what it changed."""

from collections import Counter

from tests.model import state


def facts_of(old: state.Db, new: state.Db) -> Counter[str]:
    """Return how many facts of each kind the step leaves."""
    facts: Counter[str] = Counter()
    facts["message_accepted"] = len(new.inbox) - len(old.inbox)
    facts["request_opened"] = len(new.requests) - len(old.requests)
    for i, m in enumerate(new.inbox):
        if m.state != state.WAITING and (i >= len(old.inbox) or old.inbox[i].state == state.WAITING):
            facts[f"message_{m.state}"] += 1
    for i, q in enumerate(old.requests):
        facts["request_answered"] += q.status != new.requests[i].status
    for i, run in enumerate(new.runs):
        was = old.runs[i] if i < len(old.runs) else state.Run()
        facts["run_ended"] += run.ends - was.ends
        facts["paused"] += was.status != run.status == state.PAUSED
        facts["stop_requested"] += (was.cut, was.cut_next) != (run.cut, run.cut_next)
        facts["run_started"] += run.direct and i >= len(old.runs)
        facts["attempt_closed"] += sum(bool(o) for _, o in run.attempts) - sum(
            bool(o) for _, o in was.attempts
        )
    # What was kept of the response in progress is told when its run ends.
    facts["model_called"] = int(old.partial and facts["run_ended"] > 0)
    facts["step"] = new.rec - old.rec if new.claim == old.claim != 0 else 0
    return Counter({kind: count for kind, count in facts.items() if count})
