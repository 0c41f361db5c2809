"""A conversation over two API replicas and two workers: whoever watches, and from wherever, sees the same."""

import asyncio
from typing import Any

import pytest

from tests.support.truth import Truth
from tests.support.watching import People, Socket, Watched
from tests.system.conftest import Gate, System

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"


async def begun(people: People, url: str, content: str) -> tuple[Socket, Watched, str, str]:
    """Start a thread over a WebSocket; return the socket, its watch, the thread and the run."""
    socket = await people.socket(url)
    receipt = await socket.ask("send", thread=None, agent=AGENT, content=content)
    assert receipt["disposition"] == "started"
    watched = await socket.watch(receipt["thread"])
    return socket, watched, receipt["thread"], receipt["run"]


async def test_both_replicas_show_the_same_text_byte_for_byte(
    system: System, judge: Truth, public: People
) -> None:
    await system.crew.have(2)
    _, on_a, thread, run = await begun(public, system.a, "words 50 0.01 | say  naïve 💬 \n\tend")
    on_b = await public.listen(system.b, thread)
    ends = await asyncio.gather(on_a.sees_end(run), on_b.sees_end(run))

    final = await judge.said(thread, run)
    assert final == "".join(f"w{number} " for number in range(1, 51)) + " naïve 💬 \n\tend"
    assert on_a.text(run).encode() == on_b.text(run).encode() == final.encode()
    assert [end["output"] for end in ends] == [final, final]
    assert on_a.lasting == on_b.lasting
    on_a.check_nothing_missing()
    on_b.check_nothing_missing()


async def test_a_dropped_socket_comes_back_on_another_replica_and_misses_nothing(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    later, last = gate("later"), gate("last")
    script = f"words 30 0.01 | hold {later} | words 30 0.01 | hold {last} | words 30 0.01"
    socket, before, thread, run = await begun(public, system.a, script)
    other = await public.listen(system.b, thread)
    await before.sees(lambda seen: "w5 " in seen.text(run))
    socket.drop()
    dropped_at = before.cursor
    later.touch()
    # Something is said while nobody listens on this socket.
    await other.sees(lambda seen: seen.text(run).count("w30 ") == 2)

    back = await (await public.socket(system.b)).watch(thread, after=dropped_at)
    await back.sees(lambda seen: seen.text(run))
    last.touch()
    await asyncio.gather(back.sees_end(run), other.sees_end(run))
    both = Watched(before, back)
    both.check_nothing_missing()
    assert both.lasting == other.lasting
    assert both.text(run) == await judge.said(thread, run)


async def test_a_message_to_a_busy_thread_steers_its_run(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    let_go = gate("tool")
    socket, watched, thread, run = await begun(public, system.a, f'call hold {{"gate": "{let_go}"}}')
    await watched.sees(lambda seen: seen.facts("tool_called"))
    over_socket = await socket.ask("send", thread=thread, content="mind the gap")
    over_rest = await public.client(system.b).send(thread, "and the doors")
    let_go.touch()
    end = await watched.sees_end(run)

    assert (over_socket["disposition"], over_rest.disposition) == ("steered", "steered")
    assert over_socket["run"] == over_rest.run == run
    assert end["output"] == "heard: mind the gap, and the doors"
    assert await judge.story(thread) == [
        *("message_accepted", "run_started", "message_delivered", "model_called", "tool_called"),
        *("message_accepted", "message_accepted", "tool_returned"),
        *("message_delivered", "message_delivered", "model_called", "attempt_closed", "run_ended"),
    ]
    delivered = [fact["message"] for fact in await judge.facts(thread, "message_delivered")]
    assert delivered[1:] == [over_socket["message"], over_rest.message]
    assert shown(await judge.history(thread))[1:] == ["mind the gap", "and the doors"]


async def test_a_message_during_the_last_answer_is_still_answered_by_the_same_run(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    finish = gate("finish")
    socket, watched, thread, run = await begun(public, system.a, f"words 5 0.01 | hold {finish} | say done")
    await watched.sees(lambda seen: seen.text(run))
    steered = await socket.ask("send", thread=thread, content="one more thing")
    finish.touch()
    end = await watched.sees_end(run)
    assert (steered["disposition"], steered["run"]) == ("steered", run)
    assert end["output"] == "heard: one more thing"
    delivered, called = await asyncio.gather(
        judge.facts(thread, "message_delivered"), judge.facts(thread, "model_called")
    )
    assert called[0]["seq"] < delivered[1]["seq"] < called[1]["seq"]
    watched.check_nothing_missing()


async def test_a_stop_from_another_replica_settles_and_the_conversation_goes_on(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    script = f"words 5 0.01 | hold {gate('never')} | say unsaid"
    socket, watched, thread, run = await begun(public, system.a, script)
    await watched.sees(lambda seen: "w5 " in seen.text(run))
    on_b = public.client(system.b)
    stopped = await on_b.stop(thread=thread, key="enough")

    assert (stopped.settled, stopped.status, stopped.run) == (True, "stopped", run)
    assert (await on_b.thread(thread)).state == "idle"
    assert (await watched.sees_end(run))["reason"] == "person"
    following = await socket.ask("send", thread=thread, content="go on")
    assert following["disposition"] == "started"
    assert (await watched.sees_end(following["run"]))["output"] == "heard: go on"
    # What was said before the stop is part of the conversation.
    assert "w1 w2 w3 w4 w5 " in answered(await judge.history(thread))
    # The same stop again, late: it is known, and does not hit anything that came after it.
    assert (await on_b.stop(thread=thread, key="enough")).run == run
    watched.check_nothing_missing()


def parts(history: list[Any], kind: str) -> list[str]:
    """Return the contents of all parts of a kind in a history."""
    return [part["content"] for message in history for part in message["parts"] if part["part_kind"] == kind]


def shown(history: list[Any]) -> list[str]:
    """Return what people said, as the model was shown it."""
    return parts(history, "user-prompt")


def answered(history: list[Any]) -> list[str]:
    """Return what the model said."""
    return parts(history, "text")
