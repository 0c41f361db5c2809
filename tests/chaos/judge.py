"""The judge: holds the evidence against what the runtime promises, and tells each breach with its whole story.

It believes the witness and the clients. Our own tables are read only to compare. What it allows, and nothing else:

- a process that was frozen, or whose loop stood still, goes on with what it was in the middle of, and may begin calls,
  until it is fenced: for as long as it stood still and one second after it (`FENCED_WITHIN_S`);
- a call of an older attempt may go on beside its successor until the holder's trust in its claim ends, for one ttl at
  most, if the holder was cut off from the database or its keeper killed, or the database's clock jumped ahead, up to
  two ttl ago;
- between a record that the database took and the begin of the call that it allows half a second may lie
  (`BEGIN_AFTER_RECORD_S`): so late a call may begin after a stop of its run was acknowledged, and after the first call
  of a later attempt, beside which it may not run unless one of the above holds;
- a message that a run consumed just before it failed or was stopped is first shown to the model by a later run;
- a request does not show what a replay has left out of the history;
- a `reject` or a replay meets a busy thread, a replay a run that has not ended or never began; an answer comes too
  late, a stop comes before the first message of its thread.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos import rules_attempts, rules_doors, rules_facts, rules_messages
from tests.chaos.evidence import Evidence
from tests.chaos.story import told

Rule = Callable[[Evidence], Iterator[tuple[str, str]]]
RULES: Final[dict[str, Rule]] = {
    "every accepted message is consumed once or returned": rules_messages.consumed_once,
    "a refused or returned message is never shown": rules_messages.refused_unseen,
    "a completed run has shown every message that it was to take": rules_messages.shown_by_its_run,
    "a repeated send is one message": rules_messages.sent_once,
    "messages stand in the order in which they were accepted": rules_messages.in_order,
    "a run shows its messages in order": rules_messages.shown_in_order,
    "a stop returns only what came before it": rules_messages.returned_by_a_stop,
    "no two attempts of a thread overlap": rules_attempts.no_overlap,
    "no call begins under an older fence": rules_attempts.no_late_begin,
    "no call is executed twice": rules_attempts.executed_once,
    "every executed call is on the log": rules_attempts.journaled,
    "a stopped run does nothing more": rules_attempts.stop_is_final,
    "an acknowledged stop ends the run as stopped": rules_facts.stopped_as_told,
    "no write of a zombie": rules_facts.signed,
    "exactly one end per run": rules_facts.one_end,
    "every request is settled once": rules_facts.answered_once,
    "a replay is one run that names its origin": rules_facts.replayed_once,
    "facts of a run stand within its attempts": rules_facts.within_attempts,
    "facts are gap-free for every watcher and equal to the table": rules_facts.watched,
    "live frames never go back": rules_facts.live_forward,
    "histories can be continued": rules_messages.histories_valid,
    "who is refused has asked for it": rules_doors.refused_as_asked,
    "no process fails": rules_doors.no_failure,
    "nothing is stuck": rules_facts.at_rest,
}
STORIES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: on which thread, and what was seen."""

    rule: str
    thread: str
    detail: str


def judged(evidence: Evidence) -> list[Violation]:
    """Return every breach."""
    return [
        Violation(rule, thread, detail) for rule, look in RULES.items() for thread, detail in look(evidence)
    ]


def stories(violations: Sequence[Violation], evidence: Evidence) -> Iterator[str]:
    """Yield what happened on the threads of the first violations, and how many there are of each kind."""
    for rule, count in Counter(violation.rule for violation in violations).items():
        yield f"VIOLATED {count} times: {rule}"
    done: set[str] = set()
    for violation in violations:
        yield f"- {violation.rule}: {violation.thread}: {violation.detail}"
        if violation.thread and violation.thread not in done and len(done) < STORIES_MAX:
            done.add(violation.thread)
            yield told(violation.thread, evidence)
