"""Filters by kind, through both doors that show frames."""

import json
from typing import Any

import pytest

from tests.http.scripted import Api, delivery
from tests.http.test_sse import events
from tests.http.test_websocket import peer
from threadhold.fanout.frame import Delivery

pytestmark = pytest.mark.asyncio(loop_scope="module")

KNOWN = "fact, event, draft"


def of_each_kind(thread: str) -> list[Delivery]:
    """Return a frame of each kind, an end as the last one."""
    lost, reset = {"reason": "lost"}, {"reason": "reset"}
    return [
        delivery(thread, 1),
        delivery(thread, 2, kind="attempt"),
        delivery(thread, 3, kind="event"),
        delivery(thread, 4, kind="draft"),
        delivery(thread, 5, kind="gap", data=lost),
        delivery(thread, 6, kind="gap", data=reset),
        delivery(thread, 7, kind="head"),
        delivery(thread, 8, kind="end", data={"state": "idle"}),
    ]


SHOWN = [
    (None, [1, 2, 3, 4, 5, 6, 7, 8]),
    (["fact"], [1, 6, 7, 8]),
    (["draft", "fact"], [1, 2, 4, 5, 6, 7, 8]),
    (["event"], [2, 3, 5, 6, 7, 8]),
    (["fact", "event", "draft"], [1, 2, 3, 4, 5, 6, 7, 8]),
]


@pytest.mark.parametrize(("kinds", "shown"), SHOWN)
async def test_a_socket_shows_the_kinds_that_were_asked_for(
    api: Api, kinds: list[str] | None, shown: list[int]
) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, *of_each_kind(thread))
    async with peer(api) as client:
        assert (await client.ask(id=1, op="watch", thread=thread, until="idle", kinds=kinds))["ok"]
        seen = [await client.next() for _ in shown]
        assert (await client.ask(id=2, op="ping"))["ok"]
    assert [frame["seq"] for frame in [*seen, *client.seen]] == shown


@pytest.mark.parametrize(("kinds", "shown"), SHOWN)
@pytest.mark.parametrize("separator", [",", "&kinds="])
async def test_an_event_stream_shows_the_kinds_that_were_asked_for(
    api: Api, kinds: list[str] | None, shown: list[int], separator: str
) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, *of_each_kind(thread))
    query = "?until=idle" + (f"&kinds={separator.join(kinds)}" if kinds else "")
    async with events(api, thread, query) as stream:
        rest = await stream.rest()
    assert [
        int(line.split()[1].split("-")[0]) for line in rest.splitlines() if line.startswith("id")
    ] == shown


async def test_a_browser_that_comes_back_by_itself_keeps_its_filter(api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, *of_each_kind(thread))
    query = "?kinds=draft"
    async with events(api, thread, query) as stream:
        seen = [await stream.next(), await stream.next()]
    # An EventSource has the URL and the id of the last event, and nothing else.
    async with events(api, thread, query, **{"Last-Event-ID": seen[-1]["id"]}) as stream:
        seen += [await stream.next() for _ in range(4)]
    assert [event["event"] for event in seen] == ["attempt", "draft", "gap", "gap", "head", "end"]


@pytest.mark.parametrize("kinds", [[], ["facts"], ["fact", "gap"], ["head"], "fact", [1], {}])
async def test_a_socket_refuses_kinds_that_cannot_be_chosen(api: Api, kinds: Any) -> None:
    thread = api.runner.add_thread()
    async with peer(api) as client:
        answer = await client.ask(id=1, op="watch", thread=thread, kinds=kinds)
        assert (answer["ok"], answer["error"]["code"]) == (False, "invalid_input")
        assert answer["error"]["data"]["field"].startswith("kinds")
        if isinstance(kinds, list) and kinds:
            assert "'fact', 'event' or 'draft'" in answer["error"]["message"]
        assert (await client.ask(id=2, op="ping"))["ok"]
    assert not api.runner.watching


@pytest.mark.parametrize("query", ["", "facts", "fact,gap", "fact,", "head", "fact&kinds=", "fact, draft"])
async def test_an_event_stream_refuses_kinds_that_cannot_be_chosen(api: Api, query: str) -> None:
    thread = api.runner.add_thread()
    answer = await api.client.get(f"/v1/threads/{thread}/frames?kinds={query}")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["data"]["field"]) == (422, "invalid_input", "kinds")
    assert KNOWN in problem["detail"]
    assert problem["data"]["known"] == KNOWN.split(", ")
    assert api.runner.calls == []


async def test_the_openapi_document_names_the_kinds(api: Api) -> None:
    document = (await api.client.get("/openapi.json")).json()
    parameters = document["paths"]["/v1/threads/{thread}/frames"]["get"]["parameters"]
    [kinds] = [each for each in parameters if each["name"] == "kinds"]
    assert json.dumps(kinds["schema"]).count('"enum": ["fact", "event", "draft"]') == 1
    assert not kinds["required"]
    assert "fact,draft" in kinds["description"]
