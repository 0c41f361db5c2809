"""REST: what each path does when all is well."""

import asyncio

import pytest

from tests.http.records import AGENT, NOW
from tests.http.scripted import Api, serving, until
from tests.http.test_problems import assert_problem
from threadhold.adapters.http.health import Health

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_thread_is_made_once(api: Api) -> None:
    id = "0195f1f0-0000-7000-8000-000000000001"
    body = {"agent": AGENT, "id": id, "title": "Refund", "metadata": {"order": 7}}
    made = await api.client.post("/v1/threads", json=body)
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/threads/{id}"
    assert made.json()["title"] == "Refund"
    assert made.json()["metadata"] == {"order": 7}
    again = await api.client.post("/v1/threads", json=body)
    assert again.status_code == 200
    assert again.json() == made.json()
    read = await api.client.get(made.headers["location"])
    assert read.json() == made.json()


async def test_a_thread_without_an_id_is_made_once_by_its_key(api: Api) -> None:
    making = {"json": {"agent": AGENT}, "headers": {"Idempotency-Key": "k1"}}
    made, again = [await api.client.post("/v1/threads", **making) for _ in range(2)]  # type: ignore[arg-type]
    assert (made.status_code, again.status_code) == (201, 200)
    assert made.json() == again.json()
    assert made.headers["location"] == again.headers["location"] == f"/v1/threads/{made.json()['id']}"
    for body in ({}, {"id": "0195f1f0-0000-7000-8000-000000000001"}):
        refused = await api.client.post(
            "/v1/threads", json={"agent": AGENT, **body}, headers={"Idempotency-Key": ""}
        )
        assert_problem(refused, 422, "invalid_input")


async def test_a_thread_is_changed_only_where_it_is_said(api: Api) -> None:
    thread = api.runner.add_thread(title="Refund", metadata={"order": 7})
    changed = await api.client.patch(f"/v1/threads/{thread}", json={"status": "archived"})
    assert changed.status_code == 200
    assert (changed.json()["status"], changed.json()["title"]) == ("archived", "Refund")
    changed = await api.client.patch(f"/v1/threads/{thread}", json={"title": "Lamp", "metadata": {}})
    assert (changed.json()["title"], changed.json()["metadata"]) == ("Lamp", {})
    assert (await api.client.patch("/v1/threads/nope", json={"title": "x"})).status_code == 404
    for body in ({"status": "gone"}, {"agent": "other"}, {"title": "a\x00"}):
        assert (await api.client.patch(f"/v1/threads/{thread}", json=body)).status_code == 422


async def test_threads_come_in_pages(api: Api) -> None:
    ids = sorted((api.runner.add_thread() for _ in range(5)), reverse=True)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await api.client.get(
            "/v1/threads", params={"limit": 2} | ({"cursor": cursor} if cursor else {})
        )
        assert page.status_code == 200
        found += [item["id"] for item in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break
    assert found == ids


async def test_a_message_is_accepted_with_a_receipt(api: Api) -> None:
    thread = api.runner.add_thread()
    answer = await api.client.post(
        f"/v1/threads/{thread}/messages", json={"content": "hi"}, headers={"Idempotency-Key": "k1"}
    )
    assert answer.status_code == 202
    assert answer.headers["location"] == "/v1/runs/run-1"
    assert answer.json() == {
        "thread": thread,
        "disposition": "started",
        "message": "message-1",
        "run": "run-1",
        "seq": 1,
        "duplicate": False,
        "no_worker": False,
    }
    sent = {"thread": thread, "content": "hi", "key": "k1", "agent": None, "on_busy": None}
    assert api.runner.calls == [("send", sent)]


async def test_a_queued_message_is_where_to_look(api: Api) -> None:
    thread = api.runner.add_thread()
    answer = await api.client.post(
        f"/v1/threads/{thread}/messages", json={"content": "hi", "on_busy": "queue", "agent": AGENT}
    )
    assert answer.headers["location"] == "/v1/messages/message-1"
    message = await api.client.get(answer.headers["location"])
    assert message.json()["state"] == "delivered"
    assert message.json()["accepted_at"] == "2026-03-01T12:00:00Z"


async def test_a_first_message_makes_its_thread(api: Api) -> None:
    answer = await api.client.post("/v1/messages", json={"agent": AGENT, "content": "hi"})
    assert answer.status_code == 202
    assert answer.json()["thread"] in api.runner.items


async def test_a_run_can_be_read(api: Api) -> None:
    run = await api.client.get("/v1/runs/run-1")
    assert run.status_code == 200
    assert run.json()["status"] == "running"


async def test_a_stop_tells_whether_it_settled(api: Api) -> None:
    early = await api.client.post("/v1/runs/run-1/stop", json={"wait": 0})
    assert early.status_code == 202
    assert early.json()["settled"] is False
    api.runner.stop_may_end.set()
    settled = await api.client.post("/v1/threads/t/stop", headers={"Idempotency-Key": "s1"})
    assert settled.status_code == 200
    assert settled.json()["status"] == "stopped"
    assert [call[1]["key"] for call in api.runner.calls] == [None, "s1"]
    assert [call[1]["wait"] for call in api.runner.calls] == [0, 5]


async def test_a_waiting_stop_does_not_hold_up_the_end_of_the_process() -> None:
    async with serving() as api:
        waiting = asyncio.create_task(api.client.post("/v1/runs/run-1/stop", json={"wait": 60}))
        await until(lambda: api.runner.calls)
        api.server.should_exit = True
        answer = await waiting
        assert answer.status_code == 503
        assert answer.json()["code"] == "closed"
        await asyncio.wait_for(api.serving, 5)


async def test_a_thread_is_changed_only_as_it_was_seen(api: Api) -> None:
    path = f"/v1/threads/{api.runner.add_thread(title='Refund')}"
    seen = (await api.client.get(path)).headers["etag"]
    changed = await api.client.patch(path, json={"title": "Lamp"}, headers={"If-Match": f'"x", {seen}'})
    assert (changed.status_code, changed.json()["title"]) == (200, "Lamp")
    assert changed.headers["etag"] == (await api.client.get(path)).headers["etag"] != seen
    # A tag that a proxy has made weak says nothing certain, and what is no tag at all names none.
    for tag in (seen, f"W/{changed.headers['etag']}", '"x"', "x", ""):
        refused = await api.client.patch(path, json={"title": "Kettle"}, headers={"If-Match": tag})
        assert_problem(refused, 412, "thread_changed")
    assert (await api.client.get(path)).json()["title"] == "Lamp"
    any_will_do = await api.client.patch(path, json={"title": "Kettle"}, headers={"If-Match": "*"})
    assert any_will_do.status_code == 200
    given = [call["unchanged_since"] for name, call in api.runner.calls if name == "update_thread"]
    assert given == [NOW, None]
    gone = await api.client.patch("/v1/threads/nope", json={"title": "x"}, headers={"If-Match": "*"})
    assert_problem(gone, 404, "not_found")


async def test_health_looks_behind_only_when_asked_to() -> None:
    async with serving(health=Health(postgres="connection refused")) as api:
        assert (await api.client.get("/healthz")).json() == {"status": "ok"}
        ready = await api.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json() == {
            "ready": False,
            "status": "unavailable",
            "postgres": "connection refused",
            "redis": "ok",
        }


async def test_without_redis_it_is_degraded_but_ready() -> None:
    async with serving(health=Health(redis="no subscription")) as api:
        ready = await api.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["status"] == "degraded"
        api.drain.set()
        assert (await api.client.get("/readyz")).json()["status"] == "draining"


async def test_agents_are_listed(api: Api) -> None:
    answer = await api.client.get("/v1/agents")
    assert (answer.status_code, answer.json()) == (200, {"items": ["support", "other"]})
