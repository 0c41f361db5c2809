"""Many runs on three workers under one cap, while workers are killed: what the provider has billed is what is counted.

`SPENDERS` and `CAP` in the environment make it more runs, and more to spend, than in CI.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from tests.support.processes import START_S_MAX, Process, processes
from tests.support.scripted import is_open
from tests.support.servers import Stack
from tests.support.truth import truth
from tests.support.waiting import until
from tests.system.conftest import ROOT
from tests.system.fleet import END_S_MAX, open_gate, quietly
from tests.system.spend_app import APP, BILL_ENV, CAP_ENV, MAX_TOKENS
from threadhold.adapters.client import Client
from threadhold.runner.machine import is_final
from threadhold.runner.records import Run

RUNS: Final = int(os.environ.get("SPENDERS", "12"))
CAP: Final = int(os.environ.get("CAP", "12000"))
WORKERS: Final = 3


@pytest.fixture
async def connection(stack: Stack) -> AsyncIterator[Any]:
    """A connection to look with."""
    found = await asyncpg.connect(stack.database_url, server_settings={"search_path": "threadhold"})
    yield found
    await found.close()


def billed(bill: Path) -> int:
    """Return what the provider asks money for."""
    return sum(int(line.split()[1]) for line in bill.read_text().splitlines()) if bill.exists() else 0


@pytest.mark.timeout(600)
async def test_one_cap_holds_over_workers_agents_and_crashes(
    stack: Stack, tmp_path: Path, connection: Any, record_property: Any
) -> None:
    bill = tmp_path / "bill"
    environment = stack.environment(PYTHONPATH=ROOT, **{BILL_ENV: str(bill), CAP_ENV: str(CAP)})
    with processes(environment, tmp_path) as starter:
        replica = starter.start("serve", APP, "--port", "0")
        workers = [starter.start("worker", APP, "--name", f"worker{n}") for n in range(WORKERS)]
        async with Client(await asyncio.to_thread(replica.url)) as client, truth(stack.database_url):
            await asyncio.gather(*(each.says('"worker_ready"', within=START_S_MAX) for each in workers))
            sent = await asyncio.gather(*(client.send(None, "go", agent="spender") for _ in range(RUNS)))
            for part, victim in ((0.25, 0), (0.6, 1)):
                await spent(connection, int(CAP * part))
                await in_a_call(bill, workers[victim])
                workers[victim].kill()
                workers.append(starter.start("worker", APP, "--name", f"worker{victim}b"))
            runs = await ended(client, [str(each.run) for each in sent])
    assert [(run.status, run.reason, run.error) for run in runs if run.reason != "budget_exhausted"] == []
    row = await connection.fetchrow("SELECT * FROM spend WHERE scope = 'workspace'")
    calls = await connection.fetch("SELECT state, tokens, input_tokens, output_tokens FROM model_calls")
    lost = [call["tokens"] for call in calls if call["state"] == "lost"]
    settled = [call["input_tokens"] + call["output_tokens"] for call in calls if call["state"] == "settled"]
    told = {
        "runs": RUNS,
        "attempts": sum(run.attempt for run in runs),
        "calls": len(calls),
        "lost with their workers": len(lost),
        "cap": CAP,
        "billed": billed(bill),
        "counted": row["tokens"],
        "largest call": max(settled),
    }
    print("\n" + ", ".join(f"{name} {number}" for name, number in told.items()))  # noqa: T201
    # Nothing that the provider has billed is missing, and nothing counts that was neither billed nor lost.
    assert told["billed"] <= told["counted"] == sum(settled) + sum(lost)
    assert sum(settled) <= told["billed"]
    assert row["held_tokens"] == 0
    # Over all of them not even one call was over: a call begins only where all that are under way leave room.
    assert told["billed"] < CAP + max(*settled, MAX_TOKENS)
    assert told["lost with their workers"] >= 2


async def in_a_call(bill: Path, worker: Process) -> None:
    """Return when a worker is in the middle of a call that it will never settle."""
    open_gate(Path(f"{bill}.hang-{worker.pid}"))

    async def look() -> bool:
        return is_open(f"{bill}.hung-{worker.pid}")

    await until(look, within=END_S_MAX)


async def spent(connection: Any, tokens: int) -> None:
    """Return when so much has been spent."""

    async def look() -> bool:
        return bool(await connection.fetchval("SELECT max(tokens) >= $1 FROM spend", tokens))

    await until(look, within=END_S_MAX)


async def ended(client: Client, ids: list[str]) -> list[Run]:
    """Return the runs once all have ended."""
    found: list[Run] = []

    async def look() -> bool:
        runs = await asyncio.gather(*(quietly(lambda id=id: client.run(id)) for id in ids))  # type: ignore[misc]
        found[:] = [run for run in runs if run is not None and is_final(run.status)]
        return len(found) == len(ids)

    await until(look, within=END_S_MAX, what="not all runs have ended")
    return found
