"""What tools do, through the whole stack: in over REST, out as facts, frames and history."""

import json

import pytest

from tests.support.truth import Truth
from tests.support.watching import Json, People
from tests.system.conftest import TTL_S, System

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)


async def asked(system: System, judge: Truth, public: People, script: str) -> tuple[str, Json]:
    """Send a script to a new thread; return the thread and its run's end as a watcher saw it."""
    await system.crew.have(1)
    sent = await public.client(system.a).send(None, script, agent="scripted")
    watched = await public.listen(system.b, sent.thread)
    end = await watched.sees_end(sent.run or "")
    watched.check_nothing_missing()
    # REST tells the same as the log.
    run = await public.client(system.b).run(sent.run or "")
    assert (run.status, run.reason, run.error) == (end["status"], end.get("reason"), end.get("error"))
    assert (await public.client(system.b).thread(sent.thread)).state == "idle"
    return sent.thread, end


async def test_a_tool_that_works(system: System, judge: Truth, public: People) -> None:
    thread, end = await asked(system, judge, public, 'call add {"a": 2, "b": 3} ;; say five')
    assert (end["status"], end["output"]) == ("completed", "five")
    [called] = await judge.facts(thread, "tool_called")
    [returned] = await judge.facts(thread, "tool_returned")
    assert (called["tool"], json.loads(called["args"])) == ("add", {"a": 2, "b": 3})
    assert (returned["outcome"], returned["result"], returned["call_id"]) == ("ok", 5, called["call_id"])


async def test_a_tool_acts_for_whoever_sent_the_message(system: System, judge: Truth, public: People) -> None:
    thread, _ = await asked(system, judge, public, "call whoami {}")
    [returned] = await judge.facts(thread, "tool_returned")
    assert returned["result"] == "local in default"


async def test_a_rejection_goes_to_the_model_which_tries_again(
    system: System, judge: Truth, public: People
) -> None:
    script = 'call reject {"why": "not on Sundays"} ;; call add {"a": 1, "b": 1} ;; say two'
    thread, end = await asked(system, judge, public, script)
    assert (end["status"], end["output"]) == ("completed", "two")
    outcomes = [fact["outcome"] for fact in await judge.facts(thread, "tool_returned")]
    assert outcomes == ["retry", "ok"]
    seen = [part for message in await judge.history(thread) for part in message["parts"]]
    answers = [(part["outcome"], part["content"]) for part in seen if part["part_kind"] == "tool-return"]
    assert answers == [("retried", "not on Sundays"), ("success", 2)]
    assert len(await judge.facts(thread, "model_called")) == 3


async def test_a_typed_failure_ends_the_run_with_its_type(
    system: System, judge: Truth, public: People
) -> None:
    thread, end = await asked(system, judge, public, 'call fail {"why": "no more bolts"} ;; say unreached')
    assert (end["status"], end["reason"]) == ("failed", "error")
    assert end["error"] == {"type": "out_of_stock", "message": "no more bolts"}
    assert len(await judge.facts(thread, "model_called")) == 1


async def test_an_exception_that_nobody_planned_for_ends_the_run_with_its_name(
    system: System, judge: Truth, public: People
) -> None:
    thread, end = await asked(system, judge, public, 'call crash {"why": "no such shelf"} ;; say unreached')
    assert (end["status"], end["reason"]) == ("failed", "error")
    assert end["error"] == {"type": "LookupError", "message": "no such shelf"}
    assert "Traceback" not in str(await judge.facts(thread))
    # The conversation goes on after it: the call that failed does not stand in the way of the next request.
    client = public.client(system.a)
    following = await client.send(thread, "say anyway")
    watched = await public.listen(system.a, thread)
    assert (await watched.sees_end(following.run or ""))["output"] == "anyway"


async def test_a_provider_that_fails_ends_the_run(system: System, judge: Truth, public: People) -> None:
    _, end = await asked(system, judge, public, "words 3 0.01 | raise the provider is on fire")
    assert (end["status"], end["reason"]) == ("failed", "error")
    assert end["error"]["message"] == "the provider is on fire"


async def test_a_tool_that_blocks_the_loop_beyond_the_ttl_loses_nothing(
    system: System, judge: Truth, public: People
) -> None:
    script = f'call block {{"seconds": {TTL_S + 0.5}}} ;; say still here'
    thread, end = await asked(system, judge, public, script)
    assert (end["status"], end["output"]) == ("completed", "still here")
    assert len(await judge.facts(thread, "attempt_closed")) == 1
