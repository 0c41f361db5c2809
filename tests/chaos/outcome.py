"""What a battle came to, in numbers, and whether it was enough to have shown anything."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.battle import Battle, Plan
from tests.chaos.clients import LAST_SPEAKER
from tests.chaos.evidence import Asked, Evidence
from tests.chaos.judge import Violation, judged
from tests.chaos.rules_attempts import allowed_overlaps
from tests.chaos.rules_messages import ends
from tests.chaos.schedule import CARDS, GAP_S

# Fewer than these, and a run has shown nothing: operations that were accepted, runs that completed under faults.
ACCEPTED_PER_S_MIN: Final = 1.0
COMPLETED_PER_S_MIN: Final = 0.2
FAULTS_PER_S_MIN: Final = 0.2
# In so much time every kind of fault has come, also where some are left out since their targets recover slowly.
ALL_KINDS_AFTER_S: Final = 4 * GAP_S * len(CARDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one seed came to.

    Args:
        seed: which.
        seconds: of clients and faults.
        spent: seconds per phase.
        accepted: how many operations of each name were accepted; the last messages do not count, nor do their runs.
        refused: how many were refused, by name and code.
        completed: how many runs completed.
        unknown: how many operations were asked more than once, since their outcome was unknown.
        faults: really inflicted, by kind and kind of target.
        skipped: why a kind of fault was left out.
        overlaps: how many calls went on after their successor had begun, where that is allowed.
        overlap_s_max: the longest of them.
        timetable: the faults as they were inflicted, with seconds since the first operation.
        errors: log lines in which a process reports a fault of its own.
        violations: broken promises.
    """

    seed: int
    seconds: float
    spent: dict[str, float]
    accepted: dict[str, int]
    refused: dict[str, int]
    completed: int
    unknown: int
    faults: dict[str, int]
    skipped: dict[str, str]
    overlaps: int
    overlap_s_max: float
    timetable: list[str]
    errors: list[str]
    violations: list[Violation]

    @property
    def too_little(self) -> str:
        """Why this run has shown too little, if so."""
        done = {
            "accepted operations": (sum(self.accepted.values()), ACCEPTED_PER_S_MIN),
            "completed runs": (self.completed, COMPLETED_PER_S_MIN),
            "faults": (sum(self.faults.values()), FAULTS_PER_S_MIN),
        }
        lacking = [f"only {n} {what}" for what, (n, per_s) in done.items() if n < per_s * self.seconds]
        return ", ".join(lacking)


def fought(plan: Plan) -> tuple[Outcome, Evidence]:
    """Play a plan and judge it."""
    battle = Battle(plan)
    evidence = asyncio.run(battle.play())
    return counted(evidence, seed=plan.seed, seconds=plan.seconds, spent=battle.spent), evidence


def counted(evidence: Evidence, *, seed: int, seconds: float, spent: dict[str, float]) -> Outcome:
    """Judge and count what was seen; the rest of the arguments as in `Outcome`."""
    overlaps = allowed_overlaps(evidence)
    done = [asked for asked in evidence.asked if not _is_last_word(asked)]
    refused = [asked for asked in done if asked.status is not None and not asked.accepted]
    return Outcome(
        seed=seed,
        seconds=seconds,
        spent=spent,
        accepted=_sorted(asked.op for asked in done if asked.accepted),
        refused=_sorted(f"{asked.op}: {asked.answer.get('code')}" for asked in refused),
        completed=_completed(evidence),
        unknown=sum(asked.tries > 1 for asked in evidence.asked),
        faults=_inflicted(evidence),
        skipped={fault.kind: fault.skipped for fault in evidence.inflicted if fault.skipped},
        overlaps=len(overlaps),
        overlap_s_max=round(max(overlaps, default=0.0), 3),
        timetable=_timetable(evidence),
        errors=list(evidence.errors),
        violations=judged(evidence),
    )


def _sorted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _is_last_word(asked: Asked) -> bool:
    return asked.tag.startswith(f"c{LAST_SPEAKER}-")


def _completed(evidence: Evidence) -> int:
    last = {asked.answer.get("run") for asked in evidence.asked if _is_last_word(asked)}
    return sum(status == "completed" and run not in last for run, status in ends(evidence).items())


def _inflicted(evidence: Evidence) -> dict[str, int]:
    faults = Counter(
        f"{fault.kind} {_whom(fault.target)}" for fault in evidence.inflicted if not fault.skipped
    )
    steps = [event.data["step"].split()[0] for event in evidence.events if event.data.get("step")]
    faults["model fails"] = steps.count("raise")
    tools = [event.data.get("tool") for event in evidence.events]
    faults["tool blocks the loop"] = tools.count("block")
    return {name: count for name, count in sorted(faults.items()) if count}


def _timetable(evidence: Evidence) -> list[str]:
    zero = min((asked.began for asked in evidence.asked), default=0.0)
    return [
        f"{fault.began - zero:7.2f} {fault.ended - fault.began:6.2f} {fault.kind}: {fault.target} {fault.note}".rstrip()
        for fault in sorted(evidence.inflicted, key=lambda fault: fault.began)
    ]


def _whom(target: str) -> str:
    return " -> ".join(part.rstrip("0123456789") for part in target.split(" -> "))


def missing(outcomes: Sequence[Outcome]) -> str:
    """Say which kinds of faults never came, although there was the time for each, and no reason against it."""
    if sum(outcome.seconds for outcome in outcomes) < ALL_KINDS_AFTER_S:
        return ""
    came = {name for outcome in outcomes for name in outcome.faults}
    left_out = {kind for outcome in outcomes for kind in outcome.skipped}
    kinds = {kind for kind, _ in CARDS if not any(name.startswith(f"{kind} ") for name in came)}
    return ", ".join(sorted(kinds - left_out))


def figures(outcomes: Sequence[Outcome]) -> str:
    """Return how much was done and how much was harmed."""
    accepted = sum(count for outcome in outcomes for count in outcome.accepted.values())
    refused = sum(count for outcome in outcomes for count in outcome.refused.values())
    completed = sum(outcome.completed for outcome in outcomes)
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    listed = ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))
    violations = sum(len(outcome.violations) for outcome in outcomes)
    done = f"{accepted} operations accepted and {refused} refused, {completed} runs completed"
    return f"{done}, {faults.total()} faults ({listed}), {violations} violations"
