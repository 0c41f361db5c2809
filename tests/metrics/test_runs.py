"""Each number about runs moves when that happens."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from tests.metrics.conftest import Process, read, release
from tests.support import scripted
from tests.support.agents import agent
from tests.support.waiting import until
from threadhold import delegate
from threadhold.adapters.metrics.counting import PREFIX
from threadhold.fanout import outbox
from threadhold.runner import worker as worker_module


async def test_a_run_is_counted_when_it_is_accepted_when_it_starts_and_when_it_ends(process: Process) -> None:
    receipt = await process.send("say hello")
    assert (await process.rests(receipt["run"]))["status"] == "completed"
    await process.shows("runs_ended_total", 1, agent="scripted", status="completed", reason="")
    assert await process.value("messages_accepted_total", disposition="started") == 1
    assert await process.value("runs_started_total", agent="scripted") == 1
    assert await process.value("run_wait_seconds_count", agent="scripted") == 1
    assert await process.value("run_duration_seconds_count", agent="scripted", status="completed") == 1
    waited = await process.value("run_wait_seconds_sum", agent="scripted")
    lasted = await process.value("run_duration_seconds_sum", agent="scripted", status="completed")
    assert 0 < waited < lasted < 60


async def test_what_models_took_is_counted_with_that_of_agents_that_are_asked(idle: Process) -> None:
    def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("well")], usage=RequestUsage(input_tokens=7, output_tokens=3))

    expert = Agent(FunctionModel(answers, model_name="nobody-knows"), name="expert")

    async def ask() -> str:
        """Ask somebody who knows."""
        return (await delegate(expert, "well?", name="any name")).output

    priced = FunctionModel(stream_function=scripted.stream, model_name="gpt-5")
    with agent.override(model=priced, tools=[ask]):
        await idle.work()
    receipt = await idle.send("call ask {} ;; say done")
    assert (await idle.rests(receipt["run"]))["status"] == "completed"
    await idle.shows("runs_ended_total", 1, agent="scripted", status="completed", reason="")
    steps = (await idle.client.get(f"/v1/runs/{receipt['run']}/steps")).json()["items"]
    assert len(steps) == 2
    assert await idle.value("model_calls_total", agent="scripted") == 3
    for kind, asked in (("input", 7), ("output", 3)):
        own = sum(step[f"{kind}_tokens"] for step in steps)
        assert await idle.value("tokens_total", agent="scripted", kind=kind) == own + asked
    cost = sum(Decimal(step["cost"]) for step in steps)
    assert await idle.value("cost_dollars_total", agent="scripted") == pytest.approx(float(cost))
    assert cost > 0


async def test_a_repeated_message_is_counted_once(process: Process) -> None:
    for _ in range(2):
        answer = await process.client.post(
            "/v1/messages",
            json={"agent": "scripted", "content": "say hello"},
            headers={"Idempotency-Key": "k"},
        )
        assert answer.status_code == 202
    assert await process.value("messages_accepted_total", disposition="started") == 1
    await process.shows("runs_ended_total", 1, agent="scripted", status="completed", reason="")


async def test_a_failure_is_counted_with_its_reason(process: Process) -> None:
    receipt = await process.send('call crash {"why": "no"}')
    assert (await process.rests(receipt["run"]))["status"] == "failed"
    assert await process.value("runs_ended_total", agent="scripted", status="failed", reason="error") == 1


async def test_a_run_in_progress_its_claim_and_its_stop_are_counted(process: Process, gate: Path) -> None:
    assert await process.value("worker_capacity") == 4
    receipt = await process.send(f"hold {gate}")
    await process.shows("runs_in_progress", 1)
    assert await process.value("claims_held") == 1
    steered = await process.send("and this", receipt["thread"])
    assert steered["disposition"] == "steered"
    assert await process.value("messages_accepted_total", disposition="steered") == 1
    await process.client.post(f"/v1/runs/{receipt['run']}/stop")
    assert await process.value("stops_total", outcome="requested") == 1
    await process.shows("runs_ended_total", 1, agent="scripted", status="stopped", reason="person")
    await process.shows("runs_in_progress", 0)
    await process.shows("claims_held", 0)


async def test_runs_that_wait_and_end_without_a_worker_are_counted(idle: Process) -> None:
    receipt = await idle.send("say hello")
    assert await idle.value("pending_runs", agent="scripted") == 1
    assert await idle.value("run_wait_seconds_count", agent="scripted") == 0
    queued = await idle.send("say no", receipt["thread"], on_busy="interrupt")
    assert queued["disposition"] == "queued"
    ended = {"agent": "scripted", "status": "stopped"}
    assert await idle.value("runs_ended_total", **ended, reason="interrupted_by_message") == 1
    await idle.client.post(f"/v1/threads/{receipt['thread']}/stop")
    assert await idle.value("stops_total", outcome="stopped") == 1
    assert await idle.value("runs_ended_total", **ended, reason="person") == 1
    assert await idle.value("pending_runs", agent="scripted") == 0


async def test_answers_are_counted_and_what_nobody_answered(process: Process) -> None:
    receipt = await process.send('call pay {"amount": 3}')
    assert (await process.rests(receipt["run"]))["status"] == "paused"
    (request,) = (await process.client.get("/v1/requests")).json()["items"]
    for _ in range(2):
        await process.client.post(f"/v1/requests/{request['id']}/answer", json={"kind": "approve"})
    assert await process.value("answers_total", decision="approve") == 1
    await process.send('call guarded {"expires_s": 0.2}')
    await process.shows("answers_total", 1, decision="expired")


async def test_sweeps_and_what_audits_find_are_counted(
    idle: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "AUDIT_EVERY_S", 0.1)
    await idle.work()
    await idle.shows("sweeps_total", lambda count: count > 0)
    receipt = await idle.send("say hello")
    await idle.rests(receipt["run"])
    assert await idle.value("invariants_broken_total") == 0
    # Past all guards, as only a bug or a hand in the database could. An audit looks at what changed since a moment ago,
    # and on a slow machine the next one may come later.
    async with idle.parts.database._connection() as connection:
        await connection.execute(
            "UPDATE threadhold.threads SET inbox_seq = inbox_seq + 1, updated_at = now() + interval '1 hour'"
        )
    await idle.shows("invariants_broken_total", lambda count: count > 0)


async def test_frames_that_are_given_up_are_counted(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = outbox._size

    def unsized(data: dict[str, object]) -> int:
        if "spoilt" in json.dumps(data, default=str):
            raise TypeError("this is no JSON")
        return size(data)

    monkeypatch.setattr(outbox, "_size", unsized)
    receipt = await process.send("say spoilt")
    await process.rests(receipt["run"])
    await process.shows("runs_in_progress", 0)
    assert await process.value("outbox_frames_dropped_total") > 0


async def test_nothing_that_is_known_of_people_or_runs_is_shown(process: Process, gate: Path) -> None:
    receipt = await process.send(f"hold {gate} | say secret")
    await process.shows("runs_in_progress", 1)
    await process.client.get(f"/v1/threads/{receipt['thread']}")
    await process.client.get(f"/v1/{receipt['run']}")
    text = await process.text()
    urls = {process.parts.settings.database_url, process.parts.settings.redis_url}
    hidden = {receipt["thread"], receipt["run"], receipt["message"], "secret", "local", *urls}
    assert [each for each in hidden if str(each) in text] == []
    release(gate)
    await process.rests(receipt["run"])


async def test_every_name_has_the_prefix_and_a_help(process: Process) -> None:
    text = await process.text()
    names = {name for name, _ in read(text)}
    assert {name for name in names if not name.startswith((PREFIX, "process_"))} == set()
    assert "_created" not in text

    async def renewed() -> bool:
        return await process.value("claim_renewals_total", result="ok") > 1

    await until(renewed)
    assert 0 <= await process.value("claim_renewal_age_seconds") < 60
    assert await process.value("claim_renewals_total", result="failed") == 0
