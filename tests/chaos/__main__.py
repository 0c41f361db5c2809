"""Run the chaos suite: one seed after the other until the time is used.

    python -m tests.chaos [--seed N] [--minutes M] [--seconds S] [--bug NAME] [--out FOLDER] [--go-on]

The exit code is 0 if no promise was broken and enough was done. With a deliberate bug it is 1 exactly if it was seen.
"""

import argparse
import json
import pickle
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.chaos.battle import Plan
from tests.chaos.bugs import BUGS
from tests.chaos.judge import stories
from tests.chaos.outcome import Outcome, figures, fought, missing

SECONDS: Final = 75.0
STORY_CHARS_SHOWN: Final = 6_000


def main() -> int:
    """Run seeds, report each, and return the exit code."""
    asked = _arguments()
    began = monotonic()
    outcomes: list[Outcome] = []
    while not outcomes or monotonic() - began + asked.seconds < asked.minutes * 60:
        outcomes.append(_one(asked.seed + len(outcomes), asked))
        if outcomes[-1].violations and not asked.go_on:
            break
    told = _saw(asked.bug, outcomes) if asked.bug else _fell_short(outcomes)
    spent = (monotonic() - began) / 60
    _say(f"chaos: {len(outcomes)} seeds in {spent:.1f} min, {figures(outcomes)}")
    return int(told)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="consecutive seeds until these are used")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of clients and faults, per seed")
    parser.add_argument("--bug", choices=sorted(BUGS), help="take one guard away")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    parser.add_argument("--go-on", action="store_true", help="also after a seed with violations")
    return parser.parse_args()


def _one(seed: int, asked: Any) -> Outcome:
    """Run one seed; the world and the evidence of one that failed are kept."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o755)
    outcome, evidence = fought(Plan(seed=seed, seconds=asked.seconds, folder=folder / "world", bug=asked.bug))
    out: Path = asked.out
    out.mkdir(parents=True, exist_ok=True)
    (out / f"seed-{seed}.json").write_text(json.dumps(asdict(outcome), indent=1))
    _say(f"seed {seed}: {figures([outcome])}, {len(outcome.errors)} error lines in logs")
    if outcome.too_little:
        _say(f"seed {seed} shows too little: {outcome.too_little}")
    if not outcome.violations:
        shutil.rmtree(folder, ignore_errors=True)
        return outcome
    text = "\n".join(stories(outcome.violations, evidence))
    (out / f"seed-{seed}.txt").write_text(text)
    (folder / "evidence.pickle").write_bytes(pickle.dumps(evidence))
    _say(text[:STORY_CHARS_SHOWN])
    _say(f"the whole story is in {out / f'seed-{seed}.txt'}, all logs are in {folder}")
    return outcome


def _saw(bug: str, outcomes: list[Outcome]) -> bool:
    """Tell whether a rule that sees this bug was broken."""
    broken = {violation.rule for outcome in outcomes for violation in outcome.violations}
    seen = broken & BUGS[bug].found_by
    _say(f"the bug was {'seen as: ' + '; '.join(sorted(seen)) if seen else 'NOT SEEN'}")
    return bool(seen)


def _fell_short(outcomes: list[Outcome]) -> bool:
    """Tell whether a promise was broken, or too little was done to say."""
    lack = missing(outcomes)
    if lack:
        _say(f"these faults never came: {lack}")
    return bool(lack) or any(outcome.violations or outcome.too_little for outcome in outcomes)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
