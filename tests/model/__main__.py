"""Explores large bounds and shows what each guard is for: `python -m tests.model [--bound small|large] [--only NAME]`.

Runs under PyPy too, which needs nothing but this repository: `pypy3 -m tests.model`.
"""

from __future__ import annotations

import argparse
import sys

from tests.model import leases, table
from tests.model.explore import explore
from tests.model.guards import without
from tests.model.world import Setting

PROGRESS_EVERY = 200_000


def say(text: str, end: str = "\n") -> None:
    """Show it at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def bounds(size: str, only: str) -> bool:
    """Explore all bounds of a size; returns whether nothing is broken."""
    say(f"{'bound':<28} {'states':>12} {'transitions':>12} {'depth':>6} {'states/s':>9}  result")
    fine = True
    for name, bound in {"small": table.SMALL, "large": table.LARGE}[size].items():
        if only in ("", name):
            found = explore(Setting(bound), say=say, every=PROGRESS_EVERY)
            fine = fine and not found.broken
            rate = found.states / max(found.seconds, 0.001)
            shown = f"{found.states:>12,} {found.transitions:>12,} {found.depth:>6} {rate:>9,.0f}"
            say(f"{name:<28} {shown}  {found.broken or 'ok'}")
            say("".join(f"    {step}\n" for step in found.steps), "")
    for name, times in {"small": table.TIMES_SMALL, "large": table.TIMES_LARGE}[size].items():
        if only in ("", name, "time"):
            broken, steps, states = leases.explore(times)
            fine = fine and not broken
            say(f"{'time: ' + name:<28} {states:>12,} {'':>12} {'':>6} {'':>9}  {broken or 'ok'}")
            say("".join(f"    {step}\n" for step in steps), "")
    return fine


def guards(verbose: bool) -> bool:
    """Take each guard away; returns whether each one was missed as expected."""
    say(f"\n{'guard taken away':<36} {'steps':>5} {'states':>7}  breaks")
    fine = True
    for name, case in table.CASES.items():
        found = explore(Setting(case.bound, without(name)))
        fine = fine and found.broken.startswith(case.breaks)
        say(f"{name:<36} {len(found.steps):>5} {found.states:>7,}  {found.broken or 'NOTHING'}")
        say("".join(f"    {step}\n" for step in found.steps if verbose), "")
    for name, (breaks, where) in table.TIME_CASES.items():
        removed = leases.TimeGuards()._replace(**{name: False})
        broken, steps, states = leases.explore(table.TIMES_SMALL[where], removed)
        fine = fine and broken.startswith(breaks)
        say(f"{name:<36} {len(steps):>5} {states:>7,}  {broken or 'NOTHING'}")
        say("".join(f"    {step}\n" for step in steps if verbose), "")
    return fine


def main() -> None:
    """Explore, then take guards away; exits with 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--bound", choices=("small", "large"), default="small")
    parser.add_argument("--only", default="", help="one bound by its name, or `time`, and no guards")
    parser.add_argument("--steps", action="store_true", help="show the way to what each missing guard breaks")
    given = parser.parse_args()
    fine = bounds(given.bound, given.only)
    if not given.only:
        fine = guards(given.steps) and fine
    sys.exit(not fine)


if __name__ == "__main__":
    main()
