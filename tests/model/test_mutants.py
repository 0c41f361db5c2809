"""The walks and the pairs notice each guard and each lock that is taken out of the database's functions."""

import re
from collections.abc import AsyncIterator
from importlib.resources import files

import pytest

from tests.model.bench import Bench
from tests.model.mutants import LOCKING, Mutant, load, raced, source, walked
from tests.model.pairs import Lane, compare, prepare
from tests.model.walk import Differs, Walk
from tests.support.servers import TestServers
from threadhold.storage.migrate import migrate

SCHEMA, STEPS, SEEDS_MAX = "mutant", 60, 60


@pytest.fixture
async def lane(servers: TestServers) -> AsyncIterator[Lane]:
    """Connections to a database in which functions may be spoiled."""
    url = await servers.new_database()
    await migrate(url, schema=SCHEMA)
    opened = await Lane.open(url)
    await prepare(opened, SCHEMA)
    yield opened
    await opened.aclose()


async def walk_notices(lane: Lane, seed: int) -> bool:
    """Tell whether this walk finds a difference."""
    try:
        await Walk(Bench(SCHEMA), lane.aside, seed).go(STEPS)
    except Differs:
        return True
    return False


async def some_walk_notices(lane: Lane, mutant: Mutant, seed: int) -> bool:
    """Tell whether the noted walk finds a difference, or, if walks have changed since, another one."""
    await load(lane.aside, SCHEMA, mutant.text())
    noticed = await walk_notices(lane, seed)
    for other in range(SEEDS_MAX):
        noticed = noticed or await walk_notices(lane, other)
    await load(lane.aside, SCHEMA, source(mutant.file))
    return noticed


async def test_these_walks_find_nothing_while_no_guard_is_taken_out(lane: Lane) -> None:
    seeds = {seed for _, seed in walked().values()} | set(range(SEEDS_MAX))
    assert [seed for seed in sorted(seeds) if await walk_notices(lane, seed)] == []


@pytest.mark.parametrize("file", sorted({mutant.file for mutant, _ in walked().values()}))
async def test_walks_notice_every_guard_that_is_taken_out(lane: Lane, file: str) -> None:
    mutants = {name: found for name, found in walked().items() if found[0].file == file}
    missed = [
        name for name, (mutant, seed) in mutants.items() if not await some_walk_notices(lane, mutant, seed)
    ]
    assert not missed


async def pair_notices(lane: Lane, mutant: Mutant, pair: tuple[str, str, str]) -> bool:
    """Tell whether the noted pair differs with the mutant, and only with it."""
    _, before = await compare(lane, SCHEMA, *pair)
    await load(lane.aside, SCHEMA, mutant.text())
    _, difference = await compare(lane, SCHEMA, *pair)
    await load(lane.aside, SCHEMA, source(mutant.file))
    return before is None and difference is not None


@pytest.mark.parametrize("file", sorted({mutant.file for mutant, _ in raced().values()}))
async def test_pairs_notice_a_lock_that_is_missing_or_late(lane: Lane, file: str) -> None:
    mutants = {name: found for name, found in raced().items() if found[0].file == file}
    missed = [name for name, (mutant, pair) in mutants.items() if not await pair_notices(lane, mutant, pair)]
    assert not missed, "find other pairs: python -m tests.model.longer mutants"


def test_every_function_that_locks_a_thread_has_its_mutant() -> None:
    folder = files("threadhold.storage") / "functions"
    functions = {
        name
        for file in folder.iterdir()
        for name, body in re.findall(
            r"^CREATE OR REPLACE FUNCTION (\w+)\((.*?)^(?:END )?\$\$;$",
            file.read_text(),
            re.MULTILINE | re.DOTALL,
        )
        if "FOR NO KEY UPDATE" in body and "FROM threads" in body
    }
    # Members are no part of the machine; tests in tests/storage/test_members.py need these locks.
    functions -= {"set_member_v1", "remove_member_v1"}
    # Nor is what a thread is about; tests/storage/test_resolve.py needs this lock.
    functions -= {"resolve_v1"}
    # Nor are records; tests/repositories/test_locks.py takes these locks out.
    functions -= {"save_record_v1", "resolve_thread_v1"}
    assert functions == set(LOCKING)
    assert {mutant.function for mutant, _ in raced().values()} >= functions
