"""Workers that die, freeze, leave or lack an agent: the thread goes on elsewhere, and the record says why."""

import asyncio
import time

import pytest

from tests.support.processes import START_S_MAX
from tests.support.truth import Truth
from tests.support.watching import People
from tests.system.conftest import SLACK_S, TTL_S, Gate, System

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
# The claim lapses a ttl after its last renewal; a sweep comes by every second.
NOTICED_S = TTL_S + 1.0


async def test_a_killed_worker_is_noticed_within_a_ttl_and_the_next_message_runs_on_another(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.a)
    started = await client.send(None, f"words 5 0.01 | hold {gate('never')}", agent=AGENT)
    thread, run = started.thread, started.run or ""
    on_a = await (await public.socket(system.a)).watch(thread)
    on_b = await public.listen(system.b, thread)
    await asyncio.gather(*(watch.sees(lambda seen: "w5 " in seen.text(run)) for watch in (on_a, on_b)))
    waiting = await client.send(thread, "say I am here")
    assert (waiting.disposition, waiting.run) == ("steered", run)
    dead, worker = await system.crew.holder(run)
    worker.kill()
    killed_at = time.monotonic()

    ends = await asyncio.gather(on_a.sees_end(run), on_b.sees_end(run))
    assert time.monotonic() - killed_at < NOTICED_S + SLACK_S
    for end in ends:
        assert (end["status"], end["reason"], end["by"]) == ("failed", "abandoned", "runner")
        assert end["error"]["worker"].startswith(f"{dead}-")
    new_run = (await client.message(waiting.message)).run or ""
    assert (await on_b.sees_end(new_run))["output"] == "I am here"
    await on_a.sees_end(new_run)
    assert await judge.worker(thread, new_run) not in ("", dead)
    on_a.check_nothing_missing()
    on_b.check_nothing_missing()


async def test_a_worker_that_was_frozen_past_its_ttl_writes_nothing_any_more(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.b)
    held = gate("held")
    started = await client.send(None, f"words 5 0.01 | hold {held} | words 20 0.01", agent=AGENT)
    thread, run = started.thread, started.run or ""
    watched = await public.listen(system.a, thread)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    name, frozen = await system.crew.holder(run)
    frozen.freeze()
    waiting = await client.send(thread, f"words 5 0.01 | hold {gate('second')} | say over")
    end = await watched.sees_end(run)
    assert (end["status"], end["reason"]) == ("failed", "abandoned")
    new_run = (await client.message(waiting.message)).run or ""
    await watched.sees(lambda seen: "w5 " in seen.text(new_run))

    # It wakes up in the middle of the other worker's run, with its model about to say more.
    held.touch()
    frozen.thaw()
    await frozen.says('"claim_lost"', thread)
    gate("second").touch()
    await watched.sees_end(new_run)
    # It takes part again, and has nothing left to finish: it ends at once.
    assert await asyncio.to_thread(frozen.terminate) == 0
    assert '"draining"' not in frozen.text()

    assert [fact["status"] for fact in await judge.facts(thread, "run_ended")] == ["failed", "completed"]
    assert await judge.worker(thread, new_run) not in ("", name)
    log = await judge.facts(thread)
    first_end = next(fact["seq"] for fact in log if fact["fact"] == "run_ended")
    assert all(fact["seq"] <= first_end for fact in await judge.facts(thread, run=run))
    watched.check_nothing_missing()
    assert watched.text(run) == "w1 w2 w3 w4 w5 "
    assert watched.text(new_run) == "w1 w2 w3 w4 w5 over"
    # Somebody who comes only now gets the same: nothing slipped into what is stored either.
    afterwards = await public.listen(system.b, thread)
    await afterwards.sees_end(new_run)
    assert afterwards.lasting == watched.lasting


async def test_a_worker_that_is_told_to_end_lets_its_tool_end_and_hands_the_run_over(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    client = public.client(system.a)
    finish = gate("finish")
    script = f'call hold {{"gate": "{finish}"}} ;; say done'
    started = await client.send(None, script, agent=AGENT)
    run = started.run or ""
    watched = await public.listen(system.b, started.thread)
    await judge.sees(started.thread, "tool_called")
    leaving, worker = await system.crew.holder(run)
    worker.ask_to_end()
    await worker.says('"draining"')
    # It takes nothing new meanwhile.
    other = await client.send(None, "say hello", agent=AGENT)
    await judge.sees(other.thread, "run_ended")
    assert await judge.worker(other.thread, other.run or "") != leaving
    finish.touch()

    assert (await watched.sees_end(run))["output"] == "done"
    assert await asyncio.to_thread(worker.wait) == 0
    closed = await judge.facts(started.thread, "attempt_closed", run=run)
    assert [attempt["outcome"] for attempt in closed] == ["handed_over", "completed"]
    assert closed[0]["worker"].startswith(f"{leaving}-")
    assert not closed[1]["worker"].startswith(f"{leaving}-")
    assert len(await judge.facts(started.thread, "tool_called")) == 1


async def test_a_run_whose_tool_outlasts_the_grace_is_given_up_at_once_and_said_to_be(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    env = {"AGENTS": "gamma", "THREADHOLD_GRACE": "PT0.2S"}
    name, worker = system.crew.begin(env=env)
    await worker.says('"worker_ready"', within=START_S_MAX)
    client = public.client(system.a)
    script = f'say let me see | call hold {{"gate": "{gate("never")}"}}'
    started = await client.send(None, script, agent="gamma")
    watched = await public.listen(system.b, started.thread)
    await judge.sees(started.thread, "tool_called")
    assert await asyncio.to_thread(worker.terminate) == 0
    end = await watched.sees_end(started.run or "")
    assert (end["status"], end["reason"], end["error"]["cause"]) == ("failed", "abandoned", "drain")
    assert [call["tool"] for call in end["error"]["unknown_calls"]] == ["hold"]
    assert await judge.worker(started.thread, started.run or "") == name
    # What was said until then is part of the conversation.
    said = [part for message in await judge.history(started.thread) for part in message["parts"]]
    assert [part["content"] for part in said if part["part_kind"] == "text"] == ["let me see"]
    assert (await client.send(started.thread, "say later")).no_worker


async def test_each_run_lands_on_a_worker_that_has_its_agent(
    system: System, judge: Truth, public: People
) -> None:
    crew, client = system.crew, public.client(system.a)
    # Nobody has this agent: the message is kept, and the receipt says that it waits.
    orphan = await client.send(None, "say at last", agent="delta")
    assert (orphan.disposition, orphan.no_worker) == ("started", True)
    hired = [crew.begin(env={"AGENTS": agent}) for agent in ("alpha", "beta")]
    await asyncio.gather(*(worker.says('"worker_ready"', within=START_S_MAX) for _, worker in hired))

    for (name, _), agent in zip(hired, ("alpha", "beta"), strict=True):
        for _ in range(3):
            sent = await client.send(None, f"say I am {agent}", agent=agent)
            assert not sent.no_worker
            await judge.sees(sent.thread, "run_ended")
            assert await judge.worker(sent.thread, sent.run or "") == name
    assert await judge.story(orphan.thread) == ["message_accepted"]

    late, worker = crew.begin(env={"AGENTS": "delta"})
    await worker.says('"worker_ready"', within=START_S_MAX)
    ready_at = time.monotonic()
    await judge.sees(orphan.thread, "run_ended")
    assert time.monotonic() - ready_at < 2.0 + SLACK_S
    assert await judge.worker(orphan.thread, orphan.run or "") == late
    for _, process in [*hired, (late, worker)]:
        process.ask_to_end()
    assert [await asyncio.to_thread(process.wait) for _, process in [*hired, (late, worker)]] == [0, 0, 0]
