"""Postgres goes away under many runs: for less than a claim lasts nothing is lost; for longer each run ends by itself.

`RUNS`, `TTL_S`, `BEYOND_S`, `SHORT_TTL_S` and `SHORT_MARGIN_S` in the environment make it more than it is in CI.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.servers import Stack, TestServers
from tests.support.truth import truth
from tests.support.waiting import until
from tests.system.conftest import Gate
from tests.system.fleet import END_S_MAX, Fleet, fleet, open_gate
from tests.system.stores import FailedOver, Killed, Restarted, Store
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Receipt
from threadhold.storage.migrate import migrate

RUNS = int(os.environ.get("RUNS", "8"))
# Longer than a slow machine takes to start a database, unless one says otherwise.
TTL_S = float(os.environ.get("TTL_S", "60"))
# For how long the database stays away after the last claim has lapsed.
BEYOND_S = float(os.environ.get("BEYOND_S", "1"))
SHORT_TTL_S = float(os.environ.get("SHORT_TTL_S", "6"))
SHORT_MARGIN_S = float(os.environ.get("SHORT_MARGIN_S", "3"))
WORKERS = 2


def ways(during: Path, after: Path) -> list[str]:
    """Return scripts of runs that an outage meets at different places; each calls its tool once."""
    return [
        # In a tool that ends during the outage; in one that ends after it; while the model speaks.
        f'call step {{"gate": "{during}"}} ;; say done',
        f'call step {{"gate": "{after}"}} ;; say done',
        f"call step {{}} ;; words 3 0.01 | hold {after} | say done",
    ]


def times(ttl: float, margin: float) -> dict[str, str]:
    """Return the environment for claims that last so many seconds."""
    return {
        "THREADHOLD_CLAIM_TTL": str(ttl),
        "THREADHOLD_TRUST_MARGIN": str(margin),
        "THREADHOLD_RENEW_EVERY": str(min(1.5, ttl / 10)),
        "THREADHOLD_CAPACITY": str(max(8, RUNS)),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [Restarted, Killed, FailedOver])
async def test_runs_outlive_a_database_that_comes_back_before_their_claims_lapse(
    servers: TestServers, tmp_path: Path, gate: Gate, kind: Callable[[Path], Store]
) -> None:
    store = await asyncio.to_thread(kind, tmp_path)
    try:
        await migrate(store.url)
        stack = Stack(store.url, servers.redis_url, f"{kind.__name__}:".lower())
        async with fleet(stack, tmp_path, workers=WORKERS, times=times(TTL_S, 2)) as ships:
            await outlive(ships, store, gate("during"), gate("after"))
    finally:
        await asyncio.to_thread(store.close)


async def outlive(ships: Fleet, store: Store, during: Path, after: Path) -> None:
    """Let the database be away under all runs, and demand that all complete in their only attempt."""
    scripts = [ways(during, after)[number % 3] for number in range(RUNS)]
    sent = await ships.send_each(scripts)
    await ships.reported("begin", RUNS)
    away_at = time.monotonic()
    await asyncio.to_thread(store.go)
    # Who speaks to the threads meanwhile has to try again, and is heard once.
    steering = [asyncio.create_task(ships.surely(f"and {each.run}?", each.thread)) for each in sent]
    open_gate(during)
    await ships.reported("end", sum(script.find(str(during)) > 0 for script in scripts))
    await asyncio.to_thread(store.come)
    gone_s = time.monotonic() - away_at
    assert gone_s < TTL_S - 2, "this machine is too slow for so short a ttl"
    steered = await asyncio.gather(*steering)
    open_gate(after)
    runs = await ships.ended(sent)
    assert {(run.status, run.attempt, run.error) for run in runs} == {(RunStatus.COMPLETED, 1, None)}
    await settled(ships, steered)
    assert len(ships.reports("begin")) == len(ships.reports("end")) == RUNS
    ships.check_nothing_twice()
    await sound(ships, store)
    print(f"{RUNS} runs, {type(store).__name__}: away for {gone_s:.1f} s, all completed in one attempt")  # noqa: T201


async def run_next(ships: Fleet, queued: list[Receipt]) -> None:
    """Demand that what waited for the next run is run, each message by a run of its own."""

    async def look() -> bool:
        messages = await asyncio.gather(*(ships.client.message(each.message) for each in queued))
        for each, message in zip(queued, messages, strict=True):
            following[each.message] = replace(each, run=message.run)
        return {message.state for message in messages} == {"delivered"}

    following: dict[str, Receipt] = {}
    await until(look, within=END_S_MAX, what="not all messages were consumed")
    runs = await ships.ended(list(following.values()))
    assert {(run.status, run.attempt) for run in runs} == {(RunStatus.COMPLETED, 1)}
    assert len({run.id for run in runs}) == len(queued)


async def settled(ships: Fleet, sent: list[Receipt]) -> None:
    """Demand that these messages were consumed."""
    await ships.ended([each for each in sent if each.disposition == "started"])
    messages = await asyncio.gather(*(ships.client.message(each.message) for each in sent))
    assert {message.state for message in messages} == {"delivered"}


async def sound(ships: Fleet, store: Store) -> None:
    """Demand that no invariant is broken and that nobody met a fault of ours."""
    async with truth(store.url) as judge:
        assert await judge.broken() == []
    assert ships.starter.errors() == []


@pytest.mark.timeout(900)
async def test_runs_whose_claims_lapse_during_an_outage_end_by_their_own_worker_and_say_storage(
    servers: TestServers, tmp_path: Path, gate: Gate
) -> None:
    store = await asyncio.to_thread(Restarted, tmp_path)
    try:
        await migrate(store.url)
        stack = Stack(store.url, servers.redis_url, "beyond:")
        async with fleet(stack, tmp_path, workers=WORKERS, times=times(SHORT_TTL_S, SHORT_MARGIN_S)) as ships:
            await end_by_themselves(ships, store, gate("never"))
    finally:
        await asyncio.to_thread(store.close)


async def end_by_themselves(ships: Fleet, store: Store, never: Path) -> None:
    """Let the database be away for longer than the claims last, and demand that each run ended in time and once."""
    script = f'call step {{"gate": "{never}"}} ;; say unreached'
    sent = await ships.send_each([script] * RUNS)
    await ships.reported("begin", RUNS)
    queued = [await ships.client.send(each.thread, "say next", on_busy="queue") for each in sent]
    await asyncio.to_thread(store.go)
    gone_at = time.monotonic()
    # Nobody could renew after this moment, so nobody else could have a thread before a ttl after it.
    await ships.reported("cancelled", RUNS)
    cancelled = [each.at - gone_at for each in ships.reports("cancelled")]
    assert max(cancelled) < SHORT_TTL_S
    assert len(ships.logged('"claim_lost"', '"storage"')) == RUNS
    await asyncio.sleep(max(0.0, gone_at + SHORT_TTL_S + BEYOND_S - time.monotonic()))
    await asyncio.to_thread(store.come)

    runs = await ships.ended(sent)
    assert {(run.status, run.reason, run.attempt) for run in runs} == {(RunStatus.FAILED, "abandoned", 1)}
    assert {(run.error or {}).get("cause") for run in runs} == {"storage"}
    await run_next(ships, queued)
    assert len(ships.reports("begin")) == len(ships.reports("cancelled")) == RUNS
    ships.check_nothing_twice()
    await sound(ships, store)
    swept = len(ships.logged('"claim_lapsed"'))
    print(  # noqa: T201
        f"{RUNS} runs, ttl {SHORT_TTL_S:g} s, away for {BEYOND_S:g} s more: cancelled "
        f"{min(cancelled):.2f} to {max(cancelled):.2f} s after the database went, all abandoned (storage), "
        f"{swept} of them recorded by a sweep; each next message ran once"
    )
