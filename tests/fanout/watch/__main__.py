"""Runs the proof of the watch by hand: `python -m tests.fanout.watch [--bound small|large] [--only NAME] [--steps]`."""

import argparse
import logging
import sys

import structlog

from tests.fanout.watch import guards, table
from tests.fanout.watch.explore import explore


def say(text: str) -> None:
    """Show it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def bounds(size: str, only: str) -> bool:
    """Explore all bounds of a size; returns whether nothing is broken."""
    say(f"{'bound':<26} {'states':>9} {'steps':>10} {'states/s':>9}  result")
    fine, states = True, 0
    for name, bound in {"small": table.SMALL, "large": table.LARGE}[size].items():
        if only in ("", name):
            found = explore(bound, say=say, every=100_000)
            fine, states = fine and not found.broken, states + found.states
            rate = found.states / max(found.seconds, 0.001)
            say(
                f"{name:<26} {found.states:>9,} {found.transitions:>10,} {rate:>9,.0f}  {found.broken or 'ok'}"
            )
            for step in found.steps:
                say(f"    {step}")
    say(f"{states:,} states in all")
    return fine


def guards_taken(*, verbose: bool) -> bool:
    """Take each guard away; returns whether each one was missed as expected."""
    say(f"\n{'guard taken away':<52} {'steps':>5} {'states':>7}  breaks")
    fine = True
    for name, case in table.CASES.items():
        with guards.taken_away(name) as left:
            found = explore(case.bound, left)
        fine = fine and found.broken.startswith(case.breaks)
        say(f"{name:<52} {len(found.steps):>5} {found.states:>7,}  {found.broken or 'NOTHING'}")
        for step in found.steps if verbose else ():
            say(f"    {step}")
    for name, bound in table.COVERED.items():
        with guards.taken_away(name) as left:
            found = explore(bound, left)
        fine = fine and not found.broken
        say(f"{name:<52} {'':>5} {found.states:>7,}  {found.broken or 'nothing: another guard covers it'}")
    return fine


def main() -> None:
    """Explore, then take guards away; exits with 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.fanout.watch", description=__doc__)
    parser.add_argument("--bound", choices=("small", "large"), default="small")
    parser.add_argument("--only", default="", help="one bound by its name, and no guards")
    parser.add_argument("--steps", action="store_true", help="show the way to what each missing guard breaks")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    fine = bounds(given.bound, given.only)
    if not given.only:
        fine = guards_taken(verbose=given.steps) and fine
    sys.exit(not fine)


if __name__ == "__main__":
    main()
