"""Watchers that come late, come back, or are there for the end: whoever watches sees all of it, once, in order."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from tests.chaos.proxy import Link, Links
from tests.support.truth import Truth
from tests.support.watching import Json, People, Watched
from tests.system.conftest import Gate, System
from threadhold import Decision
from threadhold.adapters.client import Client
from threadhold.runner.storable import storable_text

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

AGENT = "scripted"
# A surrogate pair cut in two, half of one alone, and characters of one to four bytes, some of them of several parts.
ODD = [
    "na\u00efve ",
    "\ud83d",
    "\udcac \ud800 ",
    "\n\t\r\n",
    "e\u0301 \u4e2d\u6587 ",
    "\U0001f469\u200d\U0001f680 \\ \"'",
]


def spelled(texts: list[str]) -> str:
    """Return the script that says these texts."""
    return f"spell {json.dumps(texts)}"


def shown(text: str) -> str:
    """Return a text as a page shows it: halves that meet are one character, half of one alone is replaced."""
    return storable_text(text)


def says_word(watched: Watched, run: str, word: int) -> bool:
    """Tell whether a numbered word has come."""
    return f"w{word} " in watched.text(run)


Join = Callable[[str], Any]


def doors(system: System, public: People) -> dict[str, Join]:
    """Return the ways to watch a thread from the start of its current run, over both transports and replicas."""

    async def over_socket(url: str, thread: str) -> Watched:
        return await (await public.socket(url)).watch(thread)

    async def over_events(url: str, thread: str) -> Watched:
        return await public.listen(url, thread, after=None)

    return {
        "socket on a": lambda thread: over_socket(system.a, thread),
        "socket on b": lambda thread: over_socket(system.b, thread),
        "events of a": lambda thread: over_events(system.a, thread),
        "events of b": lambda thread: over_events(system.b, thread),
    }


async def test_who_comes_in_the_middle_of_an_answer_gets_what_was_said_at_once_and_then_the_rest(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(1)
    first, second, third = gate("first"), gate("second"), gate("third")
    half = len(ODD) // 2
    parts = [spelled(ODD[:half]), f"hold {first}", spelled(ODD[half:]), f"hold {second}"]
    script = " | ".join([*parts, "words 40 0.01", f"hold {third}", spelled(ODD)])
    sent = await public.client(system.a).send(None, script, agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    join = doors(system, public)
    watchers: list[Watched] = []

    async def join_all(says: str) -> None:
        """Let somebody come by each door, who sees at once what has been said."""
        came = [await each(thread) for each in join.values()]
        watchers.extend(came)
        await asyncio.gather(*(each.sees(lambda seen: says in shown(seen.text(run))) for each in came))

    begun = shown("".join(ODD[:half]))
    await join_all(begun)
    first.touch()
    await join_all(shown("".join(ODD)))
    second.touch()
    # These come while it speaks, wherever that is just then.
    for words in (1, 10, 20, 30):
        await watchers[0].sees(partial(says_word, run=run, word=words))
        watchers.append(await join[sorted(join)[words % len(join)]](thread))
    await join_all("w40 ")
    third.touch()
    ends = await asyncio.gather(*(each.sees_end(run) for each in watchers))
    watchers.append(await join["events of b"](thread))
    await watchers[-1].sees_end(run)

    final = await judge.said(thread, run)
    assert final == shown("".join(ODD)) + "".join(f"w{n} " for n in range(1, 41)) + shown("".join(ODD))
    assert {shown(each.text(run)).encode() for each in watchers} == {final.encode()}
    assert {end["output"] for end in ends} == {final}
    for each in watchers:
        each.check_nothing_missing()
        assert each.lasting == watchers[0].lasting


async def test_a_socket_that_stays_open_and_a_second_tab_see_the_next_run_from_its_first_frame(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(1)
    socket = await public.socket(system.a)
    sent = await socket.ask("send", thread=None, agent=AGENT, content="words 60 0 | say first")
    thread, first = sent["thread"], sent["run"]
    stays = await socket.watch(thread)
    await stays.sees_end(first)
    finish = gate("finish")
    # Shorter than the first one, so that its numbers are all below those that were seen.
    following = await socket.ask("send", thread=thread, content=f"words 3 0 | hold {finish} | say second")
    second = following["run"]
    await stays.sees(lambda seen: "w3 " in seen.text(second))
    tab = await public.listen(system.b, thread, after=None)
    await tab.sees(lambda seen: "w3 " in seen.text(second))
    finish.touch()
    await asyncio.gather(stays.sees_end(second), tab.sees_end(second))
    assert (
        stays.text(first)
        == await judge.said(thread, first)
        == "".join(f"w{n} " for n in range(1, 61)) + "first"
    )
    assert stays.text(second) == tab.text(second) == await judge.said(thread, second) == "w1 w2 w3 second"
    assert {frame["run"] for frame in tab.frames} <= {second, None}
    stays.check_nothing_missing()
    tab.check_nothing_missing()


async def test_a_watch_of_a_finished_run_shows_it_and_ends_with_and_without_a_cursor(
    system: System, judge: Truth, public: People
) -> None:
    await system.crew.have(1)
    client = public.client(system.a)
    sent = await client.send(None, "words 5 0", agent=AGENT)
    await judge.sees(sent.thread, "run_ended")
    whole = [each async for each in client.watch(sent.thread, until="idle")]
    assert [each.frame.kind for each in whole].count("end") == 1
    assert whole[-1].frame.data == {"state": "idle"}
    assert any(each.frame.data.get("fact") == "run_ended" for each in whole)
    cursors = [whole[0].cursor, whole[len(whole) // 2].cursor, whole[-1].cursor, "start", "head", None]
    for after in cursors:
        rest = [each async for each in client.watch(sent.thread, after=after, until="idle")]
        assert rest[-1].frame.kind == "end"
        if after in {whole[-1].cursor, "head"}:
            assert {each.frame.kind for each in rest} <= {"head", "end"}
    async with httpx.AsyncClient(base_url=system.b, trust_env=False) as http:
        path = f"/v1/threads/{sent.thread}/frames?until=idle"
        answers = [
            await http.get(path),
            await http.get(f"{path}&after={whole[-1].cursor}"),
            await http.get(path, headers={"Last-Event-ID": whole[-1].cursor}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 204]
    assert ["event: end" in answer.text for answer in answers] == [True, True, False]
    assert ["run_ended" in answer.text for answer in answers] == [True, False, False]


@pytest.fixture
def proxy(system: System) -> Iterator[tuple[Links, Link, str]]:
    """Yield a proxy in front of a replica, with its URL."""
    links = Links()
    link = links.open("a", int(system.a.rpartition(":")[2]))
    yield links, link, f"http://127.0.0.1:{link.port}"
    links.close()


def end_cleanly(link: Link) -> None:
    """End all connections the way a balancer does whose patience is over: an orderly end, and no goodbye of ours."""
    for pair in list(link._open):
        for writer in pair:
            writer.close()


@asynccontextmanager
async def following(url: str, thread: str, **options: Any) -> AsyncIterator[Watched]:
    """Watch with the client, which comes back by itself, until the block ends."""
    watched = Watched()

    async def follow() -> None:
        async with Client(url) as client:
            async for each in client.watch(thread, after="start", **options):
                watched.frames.append(each.fields)

    task = asyncio.create_task(follow())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_client_that_a_proxy_cuts_off_again_and_again_keeps_its_place_and_its_filter(
    system: System, judge: Truth, public: People, gate: Gate, proxy: tuple[Links, Link, str]
) -> None:
    links, link, url = proxy
    await system.crew.have(1)
    cuts: list[Callable[[], None]] = [lambda: end_cleanly(link), link.cut, lambda: end_cleanly(link)]
    gates = [gate(f"gate{number}") for number in range(len(cuts))]
    steps = [f'words 10 0.01 | call report {{"total": 4, "gate": "{each}"}}' for each in gates]
    sent = await public.client(system.a).send(None, " ;; ".join([*steps, "say done"]), agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    direct = await public.listen(system.b, thread)
    async with following(url, thread) as whole, following(url, thread, kinds={"fact", "draft"}) as some:
        for number, (cut, each) in enumerate(zip(cuts, gates, strict=True)):
            drafts = 4 * number + 2
            for watched in (whole, some):
                await watched.sees(partial(has_drafts, count=drafts))
            links.do(cut)
            each.touch()
        await asyncio.gather(*(watched.sees_end(run) for watched in (whole, some, direct)))
    assert whole.lasting == direct.lasting
    whole.check_nothing_missing()
    facts, live = direct.lasting
    wanted = [frame for frame in live if frame["kind"] in ("attempt", "draft")]
    assert some.lasting == (facts, wanted)
    assert of_kind(some, "gap") == of_kind(some, "event") == []
    assert [draft["data"]["done"] for draft in of_kind(some, "draft")] == [1, 2, 3, 4] * len(cuts)


def has_drafts(watched: Watched, count: int) -> bool:
    """Tell whether so many drafts have come."""
    return len(of_kind(watched, "draft")) == count


def of_kind(watched: Watched, kind: str) -> list[Json]:
    """Return the frames of one kind."""
    return [frame for frame in watched.frames if frame["kind"] == kind]


async def test_an_end_that_was_written_but_never_read_is_there_after_the_reconnect(
    system: System, judge: Truth, public: People, gate: Gate, proxy: tuple[Links, Link, str]
) -> None:
    links, link, url = proxy
    await system.crew.have(1)
    finish = gate("finish")
    sent = await public.client(system.a).send(None, f"words 3 0 | hold {finish} | say last", agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    direct = await public.listen(system.a, thread)
    async with following(url, thread, until="idle") as watched:
        await watched.sees(lambda seen: "w3 " in seen.text(run))
        let(links, link, "hold")
        finish.touch()
        # The same replica has written it to somebody else, and so to this one as well.
        await asyncio.gather(direct.sees_end(run), judge.sees(thread, "run_ended"))
        assert watched.ended(run) is None
        links.do(link.cut)
        links.do(link.heal)
        end = await watched.sees_end(run)
        await watched.sees(lambda seen: of_kind(seen, "end"))
    assert end["output"] == watched.text(run) == "w1 w2 w3 last"
    watched.check_nothing_missing()
    assert len(of_kind(watched, "end")) == 1


def let(links: Links, link: Link, flow: Any) -> None:
    """Let what goes to the clients of a link pass, wait or vanish."""
    links.do(lambda: setattr(link, "to_client", flow))


async def test_all_who_watch_a_run_whose_worker_is_killed_are_told_that_it_was_abandoned(
    system: System, judge: Truth, public: People, gate: Gate
) -> None:
    await system.crew.have(2)
    sent = await public.client(system.a).send(None, f"words 5 0.01 | hold {gate('never')}", agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    join = doors(system, public)
    watchers = [await join[door](thread) for door in ("socket on a", "events of b")]
    async with following(system.b, thread, until="idle", kinds={"event"}) as filtered:
        await asyncio.gather(
            *(each.sees(lambda seen: "w5 " in seen.text(run)) for each in (*watchers, filtered))
        )
        _, worker = await system.crew.holder(run)
        worker.kill()
        ends = await asyncio.gather(*(each.sees_end(run) for each in watchers))
        # Who asked for no facts is told as well that there is nothing to wait for.
        told = await filtered.sees(lambda seen: of_kind(seen, "end"))
    assert {(end["status"], end["reason"]) for end in ends} == {("failed", "abandoned")}
    assert [frame["data"] for frame in told] == [{"state": "idle"}]
    for each in watchers:
        each.check_nothing_missing()


async def test_whoever_starts_a_run_that_speaks_at_once_sees_its_first_frame(
    system: System, judge: Truth, public: People
) -> None:
    await system.crew.have(1)
    socket = await public.socket(system.a)
    client = public.client(system.b)

    async def over_socket(number: int) -> tuple[Watched, str, int]:
        sent = await socket.ask("send", thread=None, agent=AGENT, content=f"say {number}")
        return await socket.watch(sent["thread"]), sent["run"], number

    async def over_events(number: int) -> tuple[Watched, str, int]:
        sent = await client.send(None, f"say {number}", agent=AGENT)
        return await public.listen(system.b, sent.thread, after=None), sent.run or "", number

    calls = [(over_socket, over_events)[number % 2](number) for number in range(100)]
    for watched, run, number in await asyncio.gather(*calls):
        await watched.sees_end(run)
        watched.check_nothing_missing()
        assert [frame["data"] for frame in watched.frames if frame["n"] == 1] == [{"attempt": 1}]
        # A hundred at once: text that is not out within 50 ms is left to the fact that has it in full.
        [answer] = watched.facts("model_called", run=run)
        assert (watched.text(run) or answer["text"]) == str(number)


def turn(watched: Watched, run: str) -> Json:
    """Return a run as a page shows it that knows no attempts: by ids, each thing once, however often it is told."""
    told: Json = {"messages": [], "calls": {}, "results": {}, "progress": []}
    for frame in watched.frames:
        if frame["run"] != run or frame["kind"] not in ("fact", "event", "draft"):
            continue
        match frame["data"]:
            case {"fact": "message_delivered", "message": str(id)}:
                told["messages"].append(id)
            case {"event_kind": "function_tool_call", "part": {"tool_call_id": id} as part}:
                told["calls"][id] = (part["tool_name"], part["args"])
            case {"event_kind": "function_tool_result", "part": {"tool_call_id": id, "content": content}}:
                told["results"][id] = content
            case {"event_kind": "custom", "tool_call_id": id, "done": done}:
                told["progress"].append((id, done))
            case {"fact": "run_ended", "status": status, "output": output}:
                told["end"] = (status, output)
    return {**told, "text": watched.text(run)}


async def test_a_run_that_was_paused_and_went_on_elsewhere_is_one_turn_live_and_replayed(
    system: System, judge: Truth, public: People
) -> None:
    await system.crew.have(2)
    client = public.client(system.a)
    script = (
        'say Let me see. | call report {"total": 2} | call pay {"amount": 5} | call ask {"question": "who?"}'
        " ;; say Done."
    )
    sent = await client.send(None, script, agent=AGENT)
    thread, run = sent.thread, sent.run or ""
    on_a = await (await public.socket(system.a)).watch(thread)
    on_b = await public.listen(system.b, thread, after=None)
    await asyncio.gather(*(each.sees(lambda seen: seen.facts("paused")) for each in (on_a, on_b)))
    before = turn(on_a, run)
    first, worker = await system.crew.holder(run)
    assert await asyncio.to_thread(worker.terminate) == 0
    for request in await client.requests(thread=thread):
        decision = Decision.approve() if request.kind == "approval" else Decision.reply("me")
        await public.client(system.b).answer(request.id, decision)
    await asyncio.gather(*(each.sees_end(run) for each in (on_a, on_b)))
    assert await judge.worker(thread, run) not in ("", first)

    replayed = await public.listen(system.b, thread, after="start")
    await replayed.sees_end(run)
    live = turn(on_a, run)
    assert live == turn(on_b, run) == turn(replayed, run)
    assert on_a.lasting == on_b.lasting == replayed.lasting
    assert live["text"] == "Let me see.Done."
    assert live["messages"] == [sent.message]
    assert live["end"] == ("completed", "Done.")
    # What was seen before the pause stands, under the same ids.
    assert before["calls"].items() <= live["calls"].items()
    assert before["progress"] == live["progress"] == [("call_1_1", 1), ("call_1_1", 2)]
    assert {id: name for id, (name, _) in live["calls"].items()} == {
        "call_1_1": "report",
        "call_1_2": "pay",
        "call_1_3": "ask",
    }
    assert live["results"] == {"call_1_1": "did 2", "call_1_2": "paid 5 to anybody", "call_1_3": "me"}
    # The calls that were deferred are told again when they go on; who goes by ids shows each once.
    told = [frame["data"] for frame in of_kind(replayed, "event")]
    again = [each["part"]["tool_call_id"] for each in told if each["event_kind"] == "function_tool_call"]
    assert sorted(again) == ["call_1_1", *["call_1_2"] * 2, *["call_1_3"] * 2]
    assert {frame["run"] for frame in replayed.frames} <= {run, None}
