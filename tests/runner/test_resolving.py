"""What a thread is bound to is given to its runs, and an archived thread can be read and nothing else."""

from typing import Any
from uuid import UUID

import pytest

from tests.runner.conftest import ME, Bench, of_kind
from tests.runner.test_unruly_agents import host
from tests.support.agents import agent
from threadhold import Hosted, MemoryBinding, RunIdentity
from threadhold.runner.errors import InvalidInput, ThreadArchived, UnknownAgent

NOTES = MemoryBinding("notes", "eu", "customer-7")
FILES = MemoryBinding("files", "eu", "customer-7")


async def test_bindings_live_on_the_thread_and_carry_across_its_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[MemoryBinding, ...]] = []
    host(bench, monkeypatch, Hosted(agent, deps=lambda identity: given.append(_memory(identity))))
    found = await bench.runner.resolve_thread(agent="scripted", by=ME, memory=[NOTES])
    assert UUID(found.id).version == 7
    await bench.ask("say one", found.id)
    await bench.runner.resolve_thread(found.id, agent="scripted", by=ME, memory=[FILES])
    facts = await bench.ask("say two", found.id)
    assert given == [(NOTES,), (NOTES, FILES)]
    assert [fact["made"] for fact in of_kind(facts, "thread_resolved")] == [True, False]


def _memory(identity: RunIdentity) -> tuple[MemoryBinding, ...]:
    return identity.memory


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"participants": ["a b", " c"]}, "participants"),
        ({"participants": "one"}, "participants"),
        ({"memory": [MemoryBinding("notes", "", "x")]}, "memory.instance"),
        ({"memory": [NOTES] * 101}, "memory"),
        ({"state_refs": ["a\x00"]}, "state_refs"),
        ({"status": "gone"}, "status"),
    ],
)
async def test_what_cannot_be_kept_is_refused(bench: Bench, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bench.runner.resolve_thread(agent="scripted", by=ME, **wrong)
    assert refused.value.data["field"] == field
    with pytest.raises(UnknownAgent):
        await bench.runner.resolve_thread(agent="nobody", by=ME)
    assert await bench.runner.threads(by=ME) == []


async def test_an_archived_thread_is_read_and_takes_nothing(bench: Bench) -> None:
    receipt = await bench.send("say one")
    await bench.idle(receipt.thread)
    runner, thread, run = bench.runner, receipt.thread, str(receipt.run)
    before = await runner.history(thread, by=ME)
    archived = await runner.update_thread(thread, by=ME, status="archived")
    for attempt in (
        lambda: runner.send(thread, "two", by=ME),
        lambda: runner.resolve_thread(thread, agent="scripted", by=ME, memory=[NOTES]),
        lambda: runner.resolve_thread(thread, agent="scripted", by=ME, status="active"),
        lambda: runner.replay(run, by=ME),
        lambda: runner.update_thread(thread, by=ME, status="active"),
    ):
        with pytest.raises(ThreadArchived):
            await attempt()
    assert await runner.thread(thread, by=ME) == archived
    assert await runner.history(thread, by=ME) == before
    assert (await runner.facts(thread, by=ME, limit=100)).items
    assert (await runner.run(run, by=ME)).output == "one"
    assert [frame async for frame in runner.watch(thread, by=ME, after="start", until="idle")]
