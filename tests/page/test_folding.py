"""What the page makes of frames: the fold itself, and a page on a server that says whatever a test wants."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.http.scripted import Api, delivery, serving
from tests.page.browser import Browser, Tab
from tests.page.chats import chat
from tests.page.folds import delta, fact, folded, frame, start, texts
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.page.serving import HEADERS, PATHS
from threadhold.runner.records import Principal

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def tab(chromium: Browser, api: Api) -> AsyncIterator[Tab]:
    """Open the page for one test."""
    async with chat(chromium, str(api.client.base_url)) as opened:
        yield opened


async def test_text_grows_and_is_what_the_fact_says(module: Tab) -> None:
    assert await texts(module, start("He"), delta("l"), delta("lo")) == ["Hello"]
    assert await texts(module, start("He"), delta("llo"), fact("model_called", 1, text="Hello!")) == [
        "Hello!"
    ]
    parts = [start("a"), start("", index=1, kind="thinking"), start("c", index=2), delta("b")]
    assert await texts(module, *parts) == ["abc"]


async def test_text_that_comes_after_its_own_fact_is_old(module: Tab) -> None:
    frames = [start("Hel"), fact("model_called", 3, text="Hello"), delta("lo", seq=2)]
    assert await texts(module, *frames) == ["Hello"]
    assert await texts(module, *frames, start("Next", seq=3)) == ["Hello", "Next"]


@pytest.mark.parametrize("reason", ["lost", "trimmed"])
async def test_after_a_gap_text_waits_for_its_fact(module: Tab, reason: str) -> None:
    gap = frame("gap", reason=reason)
    assert await texts(module, start("He"), gap, delta("o")) == ["He"]
    assert await texts(module, start("He"), gap, delta("o"), fact("model_called", 1, text="Hello")) == [
        "Hello"
    ]
    assert await texts(module, gap, start("anew"), delta(" and on")) == ["anew and on"]


@pytest.mark.parametrize(
    "again",
    [frame("attempt"), fact("attempt_closed", 2, text="withdrawn"), fact("model_called", 2, text="")],
    ids=["attempt", "withdrawn", "nothing"],
)
async def test_text_in_progress_is_taken_back(module: Tab, again: Mapping[str, Any]) -> None:
    assert await texts(module, start("half an"), again) == []
    assert await texts(module, start("half an"), again, start("whole", seq=2)) == ["whole"]


async def test_a_first_part_starts_over(module: Tab) -> None:
    assert await texts(module, start("one"), start("two")) == ["two"]


async def test_a_message_says_what_became_of_it(module: Tab) -> None:
    accepted = fact("message_accepted", 1, message="m", by="ada", content="hi", disposition="steered")
    for frames, state in (
        ([], "waiting"),
        ([fact("message_delivered", 2, message="m")], "delivered"),
        ([fact("message_returned", 2, message="m", reason="stopped")], "returned"),
    ):
        assert [item["state"] for item in (await folded(module, accepted, *frames))["items"]] == [state]


async def test_a_call_has_one_place_also_when_it_waited_for_a_person(module: Tab) -> None:
    called = fact("tool_called", 1, call_id="c", tool="pay", args={"amount": 1})
    deferred = fact("tool_returned", 2, call_id="c", tool="pay", outcome="deferred")
    asked = fact("request_opened", 3, request="r", kind="approval", tool="pay", args={"amount": 1})
    answered = fact("request_answered", 4, request="r", by="ada", decision="approve")
    returned = fact("tool_returned", 6, call_id="c", tool="pay", outcome="ok", result="paid")
    paused = await folded(module, called, deferred, asked, fact("paused", 3))
    assert ([item["type"] for item in paused["items"]], paused["state"]) == (["request"], "paused")
    done = await folded(module, called, deferred, asked, answered, called | {"seq": 5}, returned)
    assert [(item["type"], item.get("result")) for item in done["items"]] == [
        ("request", None),
        ("call", "paid"),
    ]
    assert (done["items"][0]["answer"]["decision"], done["state"]) == ("approve", "busy")


async def test_a_call_whose_run_ended_has_an_unknown_outcome(module: Tab) -> None:
    called = fact("tool_called", 1, call_id="c", tool="pay", args={})
    ended = await folded(module, called, fact("run_ended", 2, status="failed", reason="abandoned"))
    assert ended["items"][0]["outcome"] == "unknown"
    assert ended["items"][1]["text"] == "the run failed (abandoned): no details"


async def test_a_second_worker_is_news_but_not_after_an_answer(module: Tab) -> None:
    again = fact("attempt_started", 5)
    assert await texts(module, again) == ["another worker carries on"]
    assert await texts(module, fact("request_answered", 4, request="r"), again) == []


async def test_an_output_that_was_not_said_is_shown(module: Tab) -> None:
    said = fact("model_called", 1, text="four")
    assert await texts(module, said, fact("run_ended", 2, status="completed", output="four")) == ["four"]
    assert await texts(module, fact("run_ended", 2, status="completed", output={"n": 4})) == [
        '{\n  "n": 4\n}'
    ]


GARBAGE: list[Any] = [
    None, 7, "text", [], {}, {"kind": "fact"}, frame("fact") | {"data": None}, frame("fact") | {"seq": "1"},
    frame("nothing"), frame("fact"), fact("constructor", 1), fact("__proto__", 1), fact("unheard_of", 1),
    frame("event"), frame("event", event_kind="part_start", index=0, part=None),
    frame("event", event_kind="part_delta", index="__proto__", delta={"part_delta_kind": "text"}),
    frame("event", event_kind="part_delta", index=0, delta=7), frame("head", state="odd"), frame("head"),
    frame("gap"), frame("draft", tool_call_id=None), fact("message_delivered", 1), fact("run_ended", 1),
    fact("tool_returned", 1), fact("model_called", 1), fact("request_answered", 1), fact("message_accepted", 1),
    fact("request_opened", 1), fact("model_called", 1, text={"no": "text"}), fact("run_replayed", 1),
    fact("run_replayed", 1, checkpoint={"no": "text"}), fact("member_changed", 1),
]  # fmt: skip


async def test_what_is_no_frame_does_no_harm(module: Tab) -> None:
    state = await folded(module, *GARBAGE, start("still", seq=1), delta(" here", seq=1))
    assert state["items"][-1]["text"] == "still here"
    unread = await module.js(
        "import('/page/connection.js').then(({parsed}) => ['', '{', 'null', '7', '\\u0000'].map(parsed))"
    )
    assert unread == [None] * 5


async def test_a_page_survives_what_is_no_frame(tab: Tab, api: Api) -> None:
    thread = api.runner.add_thread()
    odd = [each["data"] for each in GARBAGE if isinstance(each, dict) and isinstance(each.get("data"), dict)]
    bad = [delivery(thread, seq, data=data) for seq, data in enumerate(odd, start=1)]
    good = delivery(thread, 99, data={"fact": "model_called", "text": "still here"})
    await api.runner.publish(thread, *bad, good)
    await tab.js(f"location.hash = '{thread}'")
    await tab.sees("still here", ".answer")


async def test_only_so_much_of_a_long_thread_is_drawn(tab: Tab, api: Api) -> None:
    thread = api.runner.add_thread()
    said = [{"fact": "model_called", "text": f"answer number {n}"} for n in range(1, 2201)]
    await api.runner.publish(
        thread, *(delivery(thread, n, data=data) for n, data in enumerate(said, start=1))
    )
    await tab.js(f"location.hash = '{thread}'")
    await tab.sees("answer number 2200", ".answer")
    await tab.until("document.querySelectorAll('.item').length === 200")
    await tab.press("Show earlier", "#earlier")
    await tab.until("document.querySelectorAll('.item').length === 400")
    assert await tab.text(".item") == "answer number 1801"
    state = await folded(tab, *(fact("model_called", n, text="x") for n in range(1, 2202)))
    assert (len(state["items"]), state["dropped"]) == (2000, True)


async def test_nothing_of_one_thread_is_left_in_another(tab: Tab, api: Api) -> None:
    facts = {"attempt_started": "another worker carries on", "model_called": "an answer"}
    for name, text in facts.items():
        thread = api.runner.add_thread()
        await api.runner.publish(thread, delivery(thread, 1, data={"fact": name, "text": text}))
        await tab.js(f"location.hash = '{thread}'")
        await tab.sees(text, "#log")
    assert await tab.js("document.querySelector('.item').dataset.type") == "answer"
    assert await tab.text("#log") == "an answer"


async def test_a_log_of_another_life_is_shown_from_its_start(tab: Tab, api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, delivery(thread, 1, data={"fact": "model_called", "text": "was lost"}))
    await tab.js(f"location.hash = '{thread}'")
    await tab.sees("was lost", ".answer")
    reset = delivery(thread, 1, kind="gap", data={"reason": "reset"})
    # Of these the first is for the watch from the start only.
    api.runner.frames_of[thread].clear()
    there = delivery(thread, 1, data={"fact": "model_called", "text": "is there"})
    await api.runner.publish(thread, reset, reset, there)
    await tab.sees("is there", ".answer")
    assert "was lost" not in await tab.text("#log")


async def test_a_message_shows_once_whichever_of_frame_and_receipt_comes_first(module: Tab) -> None:
    shown = {"type": "message", "message": "m", "by": "me", "text": "hi", "seq": 5}
    other = shown | {"message": "n", "seq": 6}
    sent = {"text": "hi", "after": 4}
    for sending, items, left in (
        ([sent], [], 1),
        ([sent], [shown], 0),
        ([sent, sent], [shown], 1),
        ([sent, sent], [shown, other], 0),
        ([sent | {"after": 5}], [shown], 1),
        ([sent | {"message": "n"}], [shown], 1),
        ([sent | {"message": "m", "after": 9}], [shown], 0),
        ([sent], [shown | {"by": "you"}], 1),
    ):
        arguments = f"{json.dumps(sending)}, {json.dumps(items)}, 'me'"
        found = await module.js(f"import('/page/folding.js').then(({{unseen}}) => unseen({arguments}))")
        assert len(found) == left


async def test_what_cannot_be_seen_is_spelled_out_where_somebody_decides(module: Tab) -> None:
    value = json.dumps({"file": "\u202etxt.exe\u200b", "to": "a\U000e0041b"})
    shown = await module.js(f"import('/page/json.js').then(({{json}}) => json({value}))")
    assert shown == '{\n  "file": "\\u202etxt.exe\\u200b",\n  "to": "a\\udb40\\udc41b"\n}'


async def test_the_files_may_load_nothing_from_elsewhere(api: Api) -> None:
    for path in PATHS:
        answer = await api.client.get(path)
        assert answer.status_code == 200
        assert answer.headers.items() >= {name.lower(): value for name, value in HEADERS.items()}.items()
    assert "/" in PATHS


async def test_only_whoever_asks_for_the_page_serves_it() -> None:
    async with serving() as plain:
        assert (await plain.client.get("/")).status_code == 404


def by_token(headers: Mapping[str, str]) -> Principal:
    """Know one token."""
    token = headers.get("authorization")
    if token is None:
        raise Unauthenticated("send a token", reason="missing")
    if token != "bearer right" and token != "Bearer right":
        raise Unauthenticated("nobody has this token", reason="unknown")
    return Principal(id="ada", workspace="default")


async def test_a_token_is_asked_for_and_kept_nowhere(chromium: Browser) -> None:
    async with serving(page=True, authenticate=by_token) as guarded, chromium.tab() as tab:
        thread = guarded.runner.add_thread(str(uuid4()), title="for those who may")
        await tab.open(f"{guarded.client.base_url}#{thread}")
        await tab.sees("This server wants a token", "#identity")
        await tab.write("wrong", "#token")
        await tab.press("Go on", "#identity button")
        await tab.sees("nobody has this token", "#identity")
        await tab.write("right", "#token")
        await tab.press("Go on", "#identity button")
        await tab.sees("connected", "#link")
        await tab.sees("for those who may", "#threads")
        assert await tab.js("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        await tab.call("Page.reload")
        await tab.sees("This server wants a token", "#identity")
