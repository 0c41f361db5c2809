"""Holds the database's functions against the machine for longer: `python -m tests.model.longer walks|pairs|mutants`."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path

import asyncpg

from tests.model.bench import Bench
from tests.model.mutants import load, raced, source, walked
from tests.model.pairs import CALLS, OF_FUNCTION, SCENES, Lane, compare, prepare
from tests.model.walk import Differs, Walk
from tests.support.servers import TestServers
from threadhold.storage.migrate import migrate

SCHEMA, MUTANT = "threadhold", "mutant"
STEPS = 60  # as in the tests, which play the seeds that are found here
SHOWN_MAX = 5


def say(text: str) -> None:
    """Show it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def walks(url: str, count: int, steps: int, first: int) -> int:
    """Walk; returns how many walks found a difference."""
    connection = await asyncpg.connect(url)
    bench, seen, bad, began = Bench(SCHEMA), Counter[str](), 0, time.monotonic()
    await bench.run(connection, "note_start")
    for seed in range(first, first + count):
        walk = Walk(Bench(SCHEMA), connection, seed)
        try:
            await walk.go(steps)
        except Differs as difference:
            bad += 1
            say(f"seed {seed}: {difference}" if bad <= SHOWN_MAX else f"seed {seed}")
        seen += walk.seen
    broken = await bench.audit(connection)
    for what, times in sorted(seen.items()):
        say(f"  {times:>7,}  {what}")
    took = time.monotonic() - began
    say(f"{count:,} walks, {count * steps:,} steps in {took:.0f} s: {bad} differ; audit: {broken or 'empty'}")
    await connection.close()
    return bad + len(broken)


async def pairs(url: str, count: int, seed: int) -> int:
    """Play pairs; returns how many differ."""
    lane, began = await Lane.open(url), time.monotonic()
    await prepare(lane, SCHEMA)
    all = list(product(SCENES, CALLS, CALLS))
    random.Random(seed).shuffle(all)
    bad = waited = 0
    for scene, a, b in all[:count]:
        held_up, difference = await compare(lane, SCHEMA, scene, a, b)
        waited += held_up
        if difference is not None:
            bad += 1
            say(str(difference) if bad <= SHOWN_MAX else f"{scene}: {a}, {b}")
    broken = await Bench(SCHEMA).audit(lane.aside)
    took = time.monotonic() - began
    say(
        f"{len(all[:count]):,} pairs of {len(all):,} in {took:.0f} s: in {waited:,} the second waited, {bad} differ"
    )
    say(f"audit: {broken or 'empty'}")
    await lane.aclose()
    return bad + len(broken)


async def mutants(url: str, seeds: int, only: str) -> int:
    """Look for a walk or a pair that notices each mutant; returns how many nobody notices."""
    await migrate(url, schema=MUTANT)
    lane, missed = await Lane.open(url), 0
    await prepare(lane, MUTANT)
    for name, (mutant, _) in [*walked().items(), *raced().items()]:
        if only not in name:
            continue
        await load(lane.aside, MUTANT, mutant.text())
        by = (
            await _walk_that_notices(lane, seeds)
            if name in walked()
            else await _pair_that_notices(lane, name)
        )
        missed += by == ""
        say(f"{name:<50} {by or 'NOBODY NOTICES'}")
        await load(lane.aside, MUTANT, source(mutant.file))
    await lane.aclose()
    return missed


async def _walk_that_notices(lane: Lane, seeds: int) -> str:
    for seed in range(seeds):
        try:
            await Walk(Bench(MUTANT), lane.aside, seed).go(STEPS)
        except Differs as difference:
            return f"seed = {seed}  # {str(difference).splitlines()[0][:90]}"
    return ""


async def _pair_that_notices(lane: Lane, name: str) -> str:
    mine = OF_FUNCTION[raced()[name][0].function]
    for scene, a, b in product(SCENES, CALLS, mine):
        _, difference = await compare(lane, MUTANT, scene, a, b)
        if difference is not None:
            return f'pair = ["{scene}", "{a}", "{b}"]'
    return ""


async def run(given: argparse.Namespace) -> int:
    """Start a server, and do what was asked for."""
    with tempfile.TemporaryDirectory() as folder, TestServers(Path(folder)) as servers:
        await servers.make_template()
        url = (await servers.new_stack()).database_url
        if given.what == "walks":
            return await walks(url, given.count, given.steps, given.seed)
        if given.what == "mutants":
            return await mutants(url, given.count, given.only)
        return await pairs(url, given.count, given.seed)


def main() -> None:
    """Exits with 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.longer", description=__doc__)
    parser.add_argument("what", choices=("walks", "pairs", "mutants"))
    parser.add_argument(
        "--count", type=int, default=1_000_000, help="how many walks or pairs; walks per mutant"
    )
    parser.add_argument("--only", default="", help="mutants with this in their name")
    parser.add_argument("--steps", type=int, default=100, help="how long a walk is")
    parser.add_argument("--seed", type=int, default=0, help="the first walk, or how pairs are drawn")
    sys.exit(bool(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
