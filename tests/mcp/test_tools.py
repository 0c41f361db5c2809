"""The tools, in both eras, on two replicas."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from tests.mcp.replicas import ERAS, VERSIONS, Replicas, call, code, host, read, text
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.parametrize("era", ERAS)]

AGENT = "scripted"
Gate = Callable[[str], Path]


async def test_a_message_is_sent_and_its_answer_comes_back(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        assert a.protocol_version == VERSIONS[era]
        sent = await call(a, "send", content='call add {"a": 1, "b": 2} ;; say hello', key="k1")
        assert (sent["status"], sent["output"], sent["disposition"]) == ("completed", "hello", "started")
        late = await call(b, "watch", thread=sent["thread"], run=sent["run"], after=sent["cursor"])
        assert (late["status"], late["output"], late["text"]) == ("completed", "hello", "")
        again = await call(
            b, "send", thread=sent["thread"], content='call add {"a": 1, "b": 2} ;; say hello', key="k2"
        )
        assert (again["disposition"], again["run"] != sent["run"]) == ("started", True)
        repeated = await call(
            b, "send", thread=sent["thread"], content='call add {"a": 1, "b": 2} ;; say hello', key="k2"
        )
        assert (repeated["run"], repeated["duplicate"], repeated["output"]) == (again["run"], True, "hello")
        run = await call(b, "get_run", run=sent["run"])
        assert (run["status"], run["output"], run["tools"]) == (
            "completed",
            "hello",
            {"call_1_0": "finished"},
        )
        first = await call(a, "list_threads", limit=1)
        page = await call(a, "list_threads", cursor=first["next_cursor"])
        ids = [each["thread"] for each in first["threads"] + page["threads"]]
        assert sent["thread"] in ids
        assert ids == sorted(set(ids), reverse=True)


async def test_progress_tells_what_is_said_and_a_bounded_wait_returns_a_handle(
    pair: Replicas, era: str, gate: Gate
) -> None:
    finish = gate("finish")
    told: list[tuple[float, str | None]] = []
    heard = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        if message == "one two":
            heard.set()

    async with host(pair.a, era) as a, host(pair.b, era) as b:
        script = f'spell ["one ", "two"] | hold {finish} | say  three'
        sent = await call(a, "send", content=script, agent=AGENT, wait_s=0)
        assert sent["status"] in ("pending", "running")
        handle = {"thread": sent["thread"], "run": sent["run"]}
        watching = asyncio.create_task(b.call_tool("watch", handle, progress_callback=on_progress))
        await heard.wait()
        waiting = await call(a, "watch", **handle, wait_s=0)
        assert (waiting["status"], waiting["text"]) == ("running", "one two")
        finish.touch()
        watched = (await watching).structured_content
        assert (watched["status"], watched["output"]) == ("completed", "one two three")
        assert watched["text"] == "one two three"
        counts = [count for count, _ in told]
        assert counts == sorted(set(counts))
        on = await call(a, "watch", **{**handle, "after": waiting["cursor"]})
        assert (on["status"], on["text"].strip(), on["output"]) == ("completed", "three", "one two three")
        facts = [event["fact"] for event in watched["events"]]
        assert facts[-1] == "run_ended"
        assert [event["seq"] for event in watched["events"]] == sorted({e["seq"] for e in watched["events"]})


async def test_a_message_to_a_busy_thread_steers_it(pair: Replicas, era: str, gate: Gate) -> None:
    finish = gate("finish")
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        script = f'call hold {{"gate": "{finish}"}}'
        sent = await call(a, "send", content=script, agent=AGENT, wait_s=0)
        steering = asyncio.create_task(call(b, "send", thread=sent["thread"], content="be brief"))
        facts = {"thread": sent["thread"], "after": "start", "wait_s": 0}

        async def accepted() -> bool:
            told = [event["fact"] for event in (await call(a, "watch", **facts))["events"]]
            return told.count("message_accepted") == 2

        await until(accepted)
        finish.touch()
        steered = await steering
        assert (steered["disposition"], steered["run"]) == ("steered", sent["run"])
        assert (steered["status"], steered["output"]) == ("completed", "heard: be brief")


async def test_a_queued_message_is_waited_for_until_its_thread_rests(
    pair: Replicas, era: str, gate: Gate
) -> None:
    finish = gate("finish")
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        sent = await call(a, "send", content=f"hold {finish} | say first", agent=AGENT, wait_s=0)
        given = {"thread": sent["thread"], "content": "say second", "on_busy": "queue", "key": "second"}
        queued = await call(b, "send", **given, wait_s=0)
        assert (queued["disposition"], queued["status"], "run" in queued) == ("queued", "pending", False)
        waiting = asyncio.create_task(call(b, "send", **given))
        finish.touch()
        taken = await waiting
        assert (taken["duplicate"], taken["status"], taken["output"]) == (True, "completed", "second")
        assert taken["run"] != sent["run"]
        after = await call(b, "watch", thread=queued["thread"], after=queued["cursor"])
        assert (after["run"], after["status"], after["output"]) == (taken["run"], "completed", "second")


async def test_a_message_that_nobody_reads_says_so(pair: Replicas, era: str, gate: Gate) -> None:
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        sent = await call(a, "send", content=f"say hm | hold {gate('never')}", agent=AGENT, wait_s=0)

        async def speaks() -> bool:
            seen = await call(a, "watch", thread=sent["thread"], wait_s=0)
            return str(seen["text"]) == "hm"

        await until(speaks)
        waiting = asyncio.create_task(call(b, "send", thread=sent["thread"], content="too late"))

        async def accepted() -> bool:
            seen = await call(a, "watch", thread=sent["thread"], after=sent["cursor"], wait_s=0)
            facts = [event["fact"] for event in seen["events"]]
            return "message_accepted" in facts

        await until(accepted)
        await call(a, "stop", run=sent["run"])
        returned = await waiting
        assert (returned["disposition"], returned["status"]) == ("steered", "stopped")
        assert "was not read" in returned["note"]


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"kind": "approve"}, "paid 50 to anybody"),
        ({"kind": "edit", "args": {"amount": 5, "to": "bob"}}, "paid 5 to bob"),
        ({"kind": "reject", "reason": "too much"}, "too much"),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) else "",
)
async def test_who_cannot_be_asked_is_told_how_to_answer(
    pair: Replicas, era: str, decision: dict[str, Any], said: str
) -> None:
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        paused = await a.call_tool("send", {"content": 'call pay {"amount": 50} ;; say done', "agent": AGENT})
        (asked,) = paused.structured_content["requests"]
        assert paused.structured_content["status"] == "paused"
        assert (asked["tool"], asked["args"], asked["decisions"][0]) == ("pay", {"amount": 50}, "approve")
        assert f"request={asked['request']}" in text(paused)
        given = {"request": asked["request"], "args_hash": asked["args_hash"], **decision}
        answered = await call(b, "answer", **given)
        assert (answered["status"], answered["output"], answered["open"]) == ("completed", "done", 0)
        again = await call(a, "answer", **given)
        assert (again["duplicate"], again["status"], again["output"]) == (True, "completed", "done")
        told = await call(a, "watch", thread=answered["thread"])
        assert said in str([event["data"] for event in told["events"]])
        other = {"request": asked["request"], "kind": "reject", "reason": "changed my mind"}
        assert await code(b, "answer", **other) == "already_answered"


async def test_a_question_is_answered_by_a_message_or_by_a_reply(pair: Replicas, era: str) -> None:
    script = 'call ask {"question": "Which size?"}'
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        paused = await call(a, "send", content=script, agent=AGENT)
        replied = await call(b, "send", thread=paused["thread"], content="XL")
        assert (replied["disposition"], replied["run"]) == ("replied", paused["run"])
        assert replied["status"] == "completed"
        paused = await call(a, "send", thread=paused["thread"], content=script)
        (asked,) = paused["requests"]
        answered = await call(b, "answer", request=asked["request"], kind="reply", value={"size": "S"})
        assert answered["status"] == "completed"


async def test_a_stop_by_run_and_by_thread(pair: Replicas, era: str, gate: Gate) -> None:
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        sent = await call(a, "send", content=f"say hm | hold {gate('never')}", agent=AGENT, wait_s=0)
        stopped = await call(b, "stop", run=sent["run"])
        assert (stopped["settled"], stopped["status"]) == (True, "stopped")
        assert (await call(b, "stop", run=sent["run"]))["status"] == "stopped"
        seen = await call(a, "watch", thread=sent["thread"], run=sent["run"], after=sent["cursor"])
        assert (seen["status"], seen["reason"]) == ("stopped", "person")
        nothing = await call(a, "stop", thread=sent["thread"], key="s1")
        assert (nothing["settled"], "run" in nothing) == (True, False)


async def test_a_failed_run_says_why(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        failed = await call(a, "send", content='call fail {"why": "no more"}', agent=AGENT)
        assert (failed["status"], failed["error"]["type"]) == ("failed", "out_of_stock")
        run = await call(a, "get_run", run=failed["run"])
        assert (run["status"], run["error"]) == ("failed", failed["error"])


async def test_whoever_stops_waiting_does_not_stop_the_run(pair: Replicas, era: str, gate: Gate) -> None:
    finish, heard = gate("finish"), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with host(pair.a, era) as a, host(pair.b, era) as b:
        thread = str(uuid4())
        given = {"thread": thread, "content": f"say on | hold {finish} | say  and on", "agent": AGENT}
        with anyio.move_on_after(60) as waiting:
            async with anyio.create_task_group() as both:

                async def leave() -> None:
                    await heard.wait()
                    waiting.cancel()

                both.start_soon(leave)
                await a.call_tool("send", given, progress_callback=on_progress)
        assert waiting.cancelled_caught
        thread_then = await read(b, f"threadhold://threads/{thread}")
        assert thread_then["thread"]["state"] == "busy"
        finish.touch()
        ended = await pair.ended(thread_then["thread"]["current_run"])
        assert ended.status == "completed"
        assert (await call(a, "get_run", run=ended.id))["output"] == "on and on"


async def test_a_client_that_is_gone_does_not_stop_the_run(pair: Replicas, era: str, gate: Gate) -> None:
    finish, heard = gate("finish"), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.set()

    thread = str(uuid4())

    async def gone() -> None:
        async with host(pair.a, era) as a:
            given = {"thread": thread, "content": f"say on | hold {finish} | say  and on", "agent": AGENT}
            await a.call_tool("send", given, progress_callback=on_progress)

    leaving = asyncio.create_task(gone())
    await heard.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    async with host(pair.b, era) as b:
        run = (await read(b, f"threadhold://threads/{thread}"))["runs"][0]
        finish.touch()
        assert (await pair.ended(run["id"])).status == "completed"


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("send", {"content": ""}, "invalid_input"),
    ("send", {"content": 7}, "invalid_input"),
    ("send", {"content": "hi", "agent": "nobody"}, "unknown_agent"),
    ("send", {"content": "hi", "thread": str(uuid4())}, "not_found"),
    ("send", {"content": "hi", "thread": "no uuid"}, "not_found"),
    ("send", {"content": "hi", "colour": "red"}, "invalid_input"),
    ("send", {"content": "hi", "on_busy": "perhaps"}, "invalid_input"),
    ("send", {"content": "hi", "wait_s": 51}, "invalid_input"),
    ("send", {"content": "hi", "agent": AGENT, "key": "\n"}, "invalid_input"),
    ("send", {"content": "x" * 65537, "agent": AGENT}, "message_too_large"),
    ("send", {}, "invalid_input"),
    ("answer", {"request": str(uuid4()), "kind": "approve"}, "not_found"),
    ("answer", {"request": str(uuid4()), "kind": "perhaps"}, "invalid_input"),
    ("answer", {"request": str(uuid4()), "kind": "edit"}, "invalid_input"),
    ("stop", {}, "invalid_input"),
    ("stop", {"run": str(uuid4())}, "not_found"),
    ("watch", {"thread": str(uuid4())}, "not_found"),
    ("watch", {"thread": str(uuid4()), "after": "yesterday"}, "not_found"),
    ("list_threads", {"limit": 0}, "invalid_input"),
    ("get_run", {"run": str(uuid4())}, "not_found"),
]


async def test_bad_arguments_are_told_with_our_codes(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        told = [await code(a, tool, **given) for tool, given, _ in BAD]
        assert told == [expected for _, _, expected in BAD]
        sent = await call(a, "send", content="say hi", agent=AGENT)
        assert await code(a, "watch", thread=sent["thread"], after="yesterday") == "invalid_input"


async def test_to_foreigners_there_is_nothing(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        paused = await call(a, "send", content='call pay {"amount": 50}', agent=AGENT)
        (asked,) = paused["requests"]
    for who in ("eve", "mallory"):
        async with host(pair.b, era, who=who) as other:
            tries = {
                "send": {"thread": paused["thread"], "content": "hi"},
                "answer": {"request": asked["request"], "kind": "approve"},
                "stop": {"run": paused["run"]},
                "watch": {"thread": paused["thread"], "after": paused["cursor"]},
                "get_run": {"run": paused["run"]},
            }
            assert {await code(other, tool, **given) for tool, given in tries.items()} == {"not_found"}
            assert (await call(other, "list_threads"))["threads"] == []
            assert (await other.list_resources(cache_mode="bypass")).resources == []
    assert (await pair.run(paused["run"])).status == "paused"


async def test_tools_are_described_with_schemas_and_agents(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        tools = {tool.name: tool for tool in (await a.list_tools()).tools}
        assert set(tools) == {"send", "answer", "stop", "watch", "list_threads", "get_run"}
        assert all(tool.output_schema and tool.description for tool in tools.values())
        assert "One of: scripted." in tools["send"].input_schema["properties"]["agent"]["description"]
        assert tools["stop"].annotations is not None
        assert tools["stop"].annotations.destructive_hint
        assert "durably" in (a.instructions or "")


async def test_threads_and_runs_are_resources(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a, host(pair.b, era) as b:
        sent = await call(a, "send", content="say hi", agent=AGENT)
        run = await read(b, f"threadhold://runs/{sent['run']}")
        assert (run["status"], run["output"]) == ("completed", "hi")
        thread = await read(b, f"threadhold://threads/{sent['thread']}")
        assert (thread["thread"]["state"], [each["id"] for each in thread["runs"]]) == ("idle", [sent["run"]])
        listed = await b.list_resources()
        assert f"threadhold://threads/{sent['thread']}" in {each.uri for each in listed.resources}
        templates = await b.list_resource_templates()
        assert [each.name for each in templates.resource_templates] == ["thread", "run"]
