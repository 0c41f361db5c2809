"""Lines of docs/requirements.md that are shown nowhere else: executions, pauses, admission and ends of real runs."""

import ast
import asyncio
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.messages import UserPromptPart

from tests.project.sources import ROOT
from tests.runner.conftest import ME, Bench, of_kind
from tests.runner.priced import agent as priced
from tests.runner.test_budgets import exhausted
from tests.runner.test_second_tries import bench_of
from tests.support.agents import agent, app, identity
from tests.support.histories import texts
from tests.support.scripted import scripted_model
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold import Budget, Decision, Hosted, Limits, Principal, Threadhold, open_runner
from threadhold.runner import repositories
from threadhold.runner.errors import AlreadyAnswered, RequestClosed, ThreadBusy
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Run
from threadhold.storage.pool import Database

BOSS = Principal(id="boss", workspace="home", roles=frozenset({"approver"}))
PAY = 'call pay {"amount": 3} ;; say paid'


async def rows(stack: Stack, sql: str, *args: Any) -> list[str]:
    """Return whole rows as text, to see that nothing about them has changed."""
    connection = await asyncpg.connect(stack.database_url, server_settings={"search_path": "threadhold"})
    try:
        return [str(row[0]) for row in await connection.fetch(sql, *args)]
    finally:
        await connection.close()


async def of_run(stack: Stack, run: str) -> dict[str, list[str]]:
    """Return each row that a run, its attempts, its log and its part of the history are."""
    return {
        table: await rows(stack, f"SELECT x::text FROM {table} x WHERE {key} = $1 ORDER BY 1", UUID(run))
        for table, key in (("runs", "id"), ("attempts", "run_id"), ("facts", "run_id"), ("history", "run_id"))
    }


async def test_an_execution_has_a_result_only_once_it_is_completed(bench: Bench) -> None:
    receipt = await bench.runner.execute("scripted", PAY, by=ME)
    assert UUID(receipt.execution).version == 7
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.fact(receipt.thread, "paused")

    async def standing() -> tuple[RunStatus, Any]:
        found = (await bench.runner.execution(receipt.execution, by=ME)).execution
        return found.status, found.result

    assert await standing() == (RunStatus.PAUSED, None)
    await bench.runner.answer(opened["request"], Decision.approve(), by=ME)
    await bench.idle(receipt.thread)
    assert await standing() == (RunStatus.COMPLETED, "paid")
    await bench.ask("raise the provider is down", receipt.thread)
    assert await standing() == (RunStatus.FAILED, None)


class Hasty(WrapperAgent[Any, str]):
    """An agent that gives each of its runs so much time and no more."""

    async def run(self, *args: Any, **options: Any) -> Any:
        """Run in time, or not at all."""
        return await super().run(*args, timeout=0.05, **options)


QUICK = Budget("quick", run=Limits(seconds=0.2))
SLOW = "words 9 1"
LIMITS = {
    "timeout": ("failed", Hosted(Hasty(Agent(scripted_model())))),
    "budget_exhausted": ("failed", Hosted(Agent(scripted_model()), budget=QUICK)),
    "person": ("stopped", Hosted(Agent(scripted_model()))),
}


@pytest.mark.parametrize("reason", LIMITS)
async def test_a_time_limit_and_a_stop_are_on_the_run_and_on_its_execution(
    stack: Stack, database: Database, reason: str
) -> None:
    status, hosted = LIMITS[reason]
    async with bench_of(stack, database, hosted) as bench:
        receipt = await bench.runner.execute("scripted", SLOW, by=ME)
        if status == "stopped":
            await bench.fact(receipt.thread, "run_started")
            await bench.runner.stop(run=receipt.run, by=ME, wait=10)
        await bench.idle(receipt.thread)
        run = await bench.runner.run(receipt.run, by=ME)
        found = (await bench.runner.execution(receipt.execution, by=ME)).execution
    assert (run.status, run.reason) == (status, reason)
    assert (found.status, found.reason, found.result) == (status, reason, None)


async def test_a_replay_changes_no_row_of_its_origin(bench: Bench, stack: Stack) -> None:
    receipt = await bench.send('call add {"a": 1, "b": 2} ;; call crash {"why": "no shelf"} ;; say never')
    origin = await bench.run(receipt)
    before = await of_run(stack, origin.id)
    assert all(before.values())
    replay = await bench.runner.replay(origin.id, by=ME)
    await bench.idle(receipt.thread)
    assert (replay.thread, replay.run == origin.id) == (origin.thread, False)
    assert await of_run(stack, origin.id) == before


async def test_an_answer_changes_no_row_of_the_attempt_that_paused(bench: Bench, stack: Stack) -> None:
    receipt = await bench.send(PAY)
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.fact(receipt.thread, "paused")
    run = UUID(str(receipt.run))

    async def first() -> list[str]:
        attempt = await rows(stack, "SELECT x::text FROM attempts x WHERE run_id = $1 AND attempt = 1", run)
        chunk = "SELECT x::text FROM history x WHERE run_id = $1 AND chunk <= 2 ORDER BY chunk"
        return attempt + await rows(stack, chunk, run)

    before = await first()
    assert len(before) == 3
    await bench.runner.answer(opened["request"], Decision.approve(), by=ME)
    assert (await bench.run(receipt)).status is RunStatus.COMPLETED
    assert await first() == before
    tries = (await bench.runner.why(str(receipt.run), by=ME)).attempts
    assert [each.outcome for each in tries] == ["interrupted", "completed"]


async def test_a_paused_run_keeps_no_slot_no_task_and_no_transaction(
    stack: Stack, database: Database
) -> None:
    async with open_runner(app, stack.settings(), capacity=1) as runner:
        bench = Bench(runner, database)
        await bench.ask("say hi")
        tasks = len(asyncio.all_tasks())
        receipt = await bench.send(PAY)
        await bench.fact(receipt.thread, "paused")

        async def given_up() -> bool:
            return len(asyncio.all_tasks()) <= tasks

        await until(given_up, what=lambda: f"these are still there: {asyncio.all_tasks()}")
        held = "SELECT count(*) FROM claims UNION ALL SELECT count(*) FROM pg_stat_activity"
        held += " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        assert await rows(stack, held) == ["0", "0"]
        # The one slot is free for somebody else's run meanwhile.
        assert (await bench.run(await bench.send("say hello"))).status is RunStatus.COMPLETED
        [request] = await runner.requests(by=ME)
        await runner.answer(request.id, Decision.approve(), by=ME)
        assert (await bench.run(receipt)).output == "paid"


def test_models_and_narrow_protocols_of_records_are_there_and_know_no_store() -> None:
    models = {"Run", "RunState", "RunHistoryEntry", "RunConditionResult", "RunFailureState", "Thread"}
    others = {"RunStatus", "ThreadStatus", "ThreadMemoryBinding", "ConditionResultRecorder"}
    protocols = {"RunReader", "RunWriter", "CheckpointStore", "ThreadStore"}
    assert models | others | protocols <= set(repositories.__all__)
    assert all(getattr(getattr(repositories, name), "_is_protocol", False) for name in protocols)
    assert issubclass(repositories.Run, repositories.RunState)
    sources = list((ROOT / "runner").rglob("*.py"))
    assert len(sources) > 50
    assert [path for path in sources if any(map(_is_of_a_store, _imported(path)))] == []


def _imported(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    return plain + [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]


def _is_of_a_store(module: str) -> bool:
    return module.startswith(("threadhold.storage", "asyncpg"))


async def test_what_a_run_is_admitted_with_stands_before_anything_runs(stack: Stack) -> None:
    hosted = Hosted(agent, budget=Budget("guests", run=Limits(model_calls=5)))
    async with open_runner(Threadhold(agents={"a": hosted}), stack.settings(environment="staging")) as runner:
        receipt = await runner.send(None, "say hi", by=ME, agent="a")
        run = await runner.run(str(receipt.run), by=ME)
    assert (run.status, run.attempt, run.id, run.thread) == (
        RunStatus.PENDING,
        *(0, receipt.run, receipt.thread),
    )
    assert (run.principal, run.interface, run.environment, run.budget) == (
        "me",
        "python",
        "staging",
        "guests",
    )


async def test_a_message_that_is_refused_leaves_the_run_and_the_record_alone(
    bench: Bench, stack: Stack, tmp_path: Path
) -> None:
    receipt = await bench.send(f"hold {tmp_path / 'gate'} | say done")
    await bench.asked()

    async def recorded() -> list[str]:
        return [
            row
            for table in ("inbox", "facts", "runs", "threads")
            for row in await rows(stack, f"SELECT x::text FROM {table} x ORDER BY 1")
        ]

    before = await recorded()
    with pytest.raises(ThreadBusy):
        await bench.send("and now?", receipt.thread, on_busy="reject")
    assert await recorded() == before
    (tmp_path / "gate").touch()
    assert (await bench.run(receipt)).output == "done"
    assert len(texts(await bench.history(receipt.thread), UserPromptPart)) == 1


async def test_each_call_of_a_model_says_what_it_took_and_what_all_have_cost(
    stack: Stack, database: Database
) -> None:
    async with bench_of(stack, database, Hosted(priced)) as bench:
        facts = await bench.ask('call add {"a": 1, "b": 2} ;; call add {"a": 3, "b": 4} ;; say done')
    called = of_kind(facts, "model_called")
    assert len(called) == 3
    assert all(call["input_tokens"] > 0 < call["output_tokens"] for call in called)
    assert all(call["latency_ms"] >= 0 for call in called)
    costs = [float(call["cost"]) for call in called]
    assert min(costs) > 0
    assert [float(call["cost_total"]) for call in called] == pytest.approx(list(accumulate(costs)))
    # Each stands on the log before the tools that it asked for.
    order = [fact["fact"] for fact in facts if fact["fact"] in ("model_called", "tool_called")]
    assert order == ["model_called", "tool_called"] * 2 + ["model_called"]


async def test_no_tool_begins_once_the_time_of_a_budget_is_used_up(stack: Stack, database: Database) -> None:
    hosted = Hosted(agent, deps=identity, budget=Budget("quick", run=Limits(seconds=0.1)))
    async with bench_of(stack, database, hosted) as bench:
        error, facts = await exhausted(bench, 'words 1 0.5 | call add {"a": 1, "b": 2} ;; say done')
    assert (error["limit"], of_kind(facts, "tool_called")) == ("seconds", [])


TWICE = 'call add {"a": 1, "b": 2} ;; call add {"a": 1, "b": 2} ;; say x'
ENDS = {
    None: ("completed", "say done"),
    "error": ("failed", "raise the provider is down"),
    "budget_exhausted": ("failed", TWICE),
    "rejected": ("failed", PAY),
    "person": ("stopped", PAY),
}


async def ended(bench: Bench, script: str, reason: str | None) -> tuple[Run, str | None]:
    """Run a script to such an end; return its run, and what it was asked on the way."""
    receipt, request = await bench.send(script), None
    if script == PAY:
        request = str((await bench.fact(receipt.thread, "request_opened"))["request"])
        await bench.fact(receipt.thread, "paused")
        if reason == "rejected":
            await bench.runner.answer(request, Decision.reject("no"), by=ME)
        else:
            await bench.runner.stop(run=receipt.run, by=ME)
    return await bench.run(receipt), request


@pytest.mark.parametrize("reason", ENDS)
async def test_each_end_has_one_record_and_nothing_goes_on_from_it(
    stack: Stack, database: Database, reason: str | None
) -> None:
    status, script = ENDS[reason]
    budget = Budget("two", run=Limits(model_calls=2))
    hosted = Hosted(agent, deps=identity, on_reject="fail", budget=budget)
    async with bench_of(stack, database, hosted) as bench:
        run, request = await ended(bench, script, reason)
        assert (run.status, run.reason) == (status, reason)
        if request is not None:
            with pytest.raises((AlreadyAnswered, RequestClosed)):
                await bench.runner.answer(request, Decision.approve(), by=ME)
        stopped = await bench.runner.stop(run=run.id, by=ME)
        assert (stopped.settled, stopped.status) == (True, status)
        following = await bench.send("say next", run.thread)
        facts = await bench.idle(run.thread)
        assert following.run not in (None, run.id)
        assert await bench.runner.run(run.id, by=ME) == run
    ends = [(fact["status"], fact.get("reason")) for fact in of_kind(facts, "run_ended")]
    assert ends == [(status, reason), ("completed", None)]


async def test_the_record_says_who_asked_who_decided_what_and_when(bench: Bench) -> None:
    receipt = await bench.send('call guarded {"approvers": ["boss"]} ;; say done')
    opened = await bench.fact(receipt.thread, "request_opened")
    await bench.runner.answer(opened["request"], Decision.edit({"approvers": ["eve"]}), by=BOSS)
    await bench.idle(receipt.thread)
    request = await bench.runner.request(opened["request"], by=ME)
    assert (request.requested_by, request.answered_by, request.status) == ("me", "boss", "answered")
    assert request.args == {"approvers": ["boss"]}
    assert request.answer == {"kind": "edit", "args": {"approvers": ["eve"]}}
    assert request.answered_at is not None
    assert request.created_at < request.answered_at
    facts = (await bench.runner.facts(receipt.thread, by=ME)).items
    (answered,) = [fact for fact in facts if fact.kind == "request_answered"]
    assert (answered.run, answered.data["request"], answered.data["by"]) == (
        receipt.run,
        *(request.id, "boss"),
    )
    assert (answered.data["decision"], answered.data["args"]) == ("edit", {"approvers": ["eve"]})
    assert (answered.admission or {})["principal"] == "me"
