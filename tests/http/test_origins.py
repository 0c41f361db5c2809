"""Which pages may call, by the origin that browsers tell: over REST, streams, the WebSocket, and asked beforehand."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.http.records import AGENT, run_of
from tests.http.scripted import Api, delivery, serving
from tests.http.test_auth import TOKENS
from tests.identity.issuer import secret_token
from threadhold.adapters.http.auth import bearer
from threadhold.adapters.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE: Final = "https://chat.example.com"
LISTED: Final = Settings(origins=f"{PAGE},tauri://localhost").allowed_origins
FRIENDS: Final = [
    PAGE,
    "tauri://localhost",
    "http://localhost:5173",
    "http://127.0.0.1:1",
    "http://[::1]:3000",
]
FOREIGN: Final = [
    "https://evil.example",
    "null",
    "",
    "http://chat.example.com",
    "https://chat.example.com:8443",
    "https://chat.example.com.evil.example",
    "https://evil.example/https://chat.example.com",
    "https://localhost.evil.example",
    "*",
]
SENT: Final = [
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Prefer",
]
READ: Final = {"ETag", "Location", "Preference-Applied", "Retry-After"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_api() -> AsyncIterator[Api]:
    """Serve those who have tokens, and the pages of some origins."""
    async with serving(authenticate=bearer(TOKENS), origins=LISTED) as running:
        running.client.headers["Authorization"] = f"Bearer {secret_token()}"
        yield running


def asking(origin: str | None) -> dict[str, str]:
    """Return the header that a browser adds; none for who is no page."""
    return {} if origin is None else {"Origin": origin}


@pytest.mark.parametrize("origin", FRIENDS)
async def test_a_page_that_may_call_may_read_what_it_gets(api: Api, origin: str) -> None:
    body = {"agent": AGENT, "content": "hi"}
    sent = await api.client.post("/v1/messages", json=body, headers=asking(origin))
    assert sent.status_code == 202
    assert sent.headers["access-control-allow-origin"] == origin
    assert set(sent.headers["access-control-expose-headers"].split(", ")) >= READ
    assert "location" in sent.headers
    assert "access-control-allow-credentials" not in sent.headers
    assert "Origin" in sent.headers["vary"]


@pytest.mark.parametrize(
    "path", ["/v1/runs/run-1", "/v1/runs/nope", "/v1/nothing", "/openapi.json", "/healthz"]
)
async def test_it_may_read_refusals_and_what_needs_no_token_too(api: Api, path: str) -> None:
    api.runner.known_runs["run-1"] = run_of()
    for headers in ({}, {"Authorization": "Bearer nonsense"}):
        answer = await api.client.get(path, headers={**asking(PAGE), **headers})
        assert answer.headers["access-control-allow-origin"] == PAGE
    too_much = await api.client.post("/v1/messages", content=b"x" * 300_000, headers=asking(PAGE))
    assert (too_much.status_code, too_much.headers["access-control-allow-origin"]) == (413, PAGE)


async def test_what_has_not_changed_may_be_read_as_well(api: Api) -> None:
    first = await api.client.get("/v1/runs/run-1", headers=asking(PAGE))
    again = await api.client.get(
        "/v1/runs/run-1", headers={**asking(PAGE), "If-None-Match": first.headers["etag"]}
    )
    assert (again.status_code, again.headers["access-control-allow-origin"]) == (304, PAGE)


@pytest.mark.parametrize("origin", FOREIGN)
async def test_another_page_calls_nothing_and_reads_nothing(api: Api, origin: str) -> None:
    body = {"agent": AGENT, "content": "hi"}
    calls = [
        await api.client.post("/v1/messages", json=body, headers=asking(origin)),
        await api.client.get("/v1/runs/run-1", headers=asking(origin)),
        await api.client.get("/openapi.json", headers=asking(origin)),
        await api.client.options("/v1/messages", headers=preflight(origin)),
    ]
    for answer in calls:
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
        assert [name for name in answer.headers if name.startswith("access-control-")] == []
        assert "Origin" in answer.headers["vary"]
    assert api.runner.calls == []


async def test_who_is_no_page_is_not_asked_and_told_nothing_of_it(api: Api) -> None:
    answer = await api.client.get("/v1/runs/run-1")
    assert answer.status_code == 200
    assert [name for name in answer.headers if name.startswith("access-control-")] == []
    # A cache must not show this answer to a page, which could not read it.
    assert "Origin" in answer.headers["vary"]


def preflight(origin: str, *, method: str = "POST", headers: str = "authorization") -> dict[str, str]:
    """Return what a browser asks beforehand; never with a token."""
    return {
        **asking(origin),
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers,
        "Authorization": "",
    }


@pytest.mark.parametrize("origin", FRIENDS)
@pytest.mark.parametrize("method", ["DELETE", "GET", "PATCH", "POST", "PUT"])
async def test_a_page_that_may_call_is_told_so_beforehand(api: Api, origin: str, method: str) -> None:
    wanted = ",".join(name.lower() for name in SENT)
    asked = preflight(origin, method=method, headers=wanted)
    answer = await api.client.options("/v1/threads/t/messages", headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == origin
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    assert {name.lower() for name in SENT} == set(answer.headers["access-control-allow-headers"].split(","))
    assert 0 < int(answer.headers["access-control-max-age"]) <= 7200
    assert "access-control-allow-credentials" not in answer.headers
    assert "*" not in {value for name, value in answer.headers.items() if name.startswith("access-control-")}
    assert api.runner.calls == []


async def test_options_of_who_is_no_page_are_what_they_were(api: Api) -> None:
    answer = await api.client.options("/v1/messages")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


async def test_a_page_takes_up_a_stream_and_reads_it(api: Api) -> None:
    thread = api.runner.add_thread(seq=2)
    await api.runner.publish(thread, delivery(thread, 1), delivery(thread, 2, kind="end"))
    path = f"/v1/threads/{thread}/frames?until=idle"
    for origin in [*FRIENDS, None]:
        answer = await api.client.get(path, headers={**asking(origin), "Last-Event-ID": "1-1-0"})
        assert answer.headers.get("access-control-allow-origin") == origin
        assert "event: end" in answer.text
        assert "id: 1-1-0" not in answer.text
    for origin in FOREIGN:
        assert (await api.client.get(path, headers=asking(origin))).status_code == 403


@pytest.mark.parametrize("origin", [*FRIENDS, None])
async def test_a_page_that_may_call_gets_a_socket(api: Api, origin: str | None) -> None:
    protocols = ["threadhold.v1", f"threadhold.bearer.{secret_token()}"]
    async with connect(api.ws, origin=origin, subprotocols=protocols) as socket:  # type: ignore[arg-type]
        await socket.send('{"op": "ping"}')
        assert '"ok":true' in str(await socket.recv())


@pytest.mark.parametrize("origin", [each for each in FOREIGN if each])
async def test_another_page_gets_no_socket(api: Api, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(api.ws, origin=origin)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


async def test_without_a_list_the_servers_own_pages_may_call_and_those_of_this_machine() -> None:
    async with serving() as api:
        for origin in ("http://localhost:3000", "http://testing.example"):
            own = {"Host": "testing.example"}
            answer = await api.client.get("/v1/agents", headers={**asking(origin), **own})
            assert answer.headers["access-control-allow-origin"] == origin
        assert (await api.client.get("/v1/agents", headers=asking(PAGE))).status_code == 403
