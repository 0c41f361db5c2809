"""What is refused over REST, and how: always problem+json with a stable code, never a traceback."""

import re
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.http.records import AGENT
from tests.http.scripted import Api, serving
from threadhold.runner import errors

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROBLEM = "application/problem+json"


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is this problem, and return it."""
    assert answer.headers["content-type"] == PROBLEM
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"], problem["status"]) == (status, code, status)
    assert problem["detail"]
    assert problem["title"]
    assert "Traceback" not in answer.text
    return problem


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (errors.NotFound("run", "r"), 404, None),
        (errors.Forbidden("stop"), 403, None),
        (errors.KeyConflict("k"), 409, None),
        (errors.ThreadBusy("r"), 409, None),
        (errors.OperatorsOnly("list workers"), 403, None),
        (errors.AlreadyAnswered("q", by="ada", decision={"kind": "approve"}), 409, None),
        (errors.RequestClosed("q", why="its run has ended"), 409, None),
        (errors.WrongDecision("q", kind="question", allowed=("reply", "reject")), 409, None),
        (errors.OwnRequest("q"), 403, None),
        (errors.ArgsChanged("q"), 409, None),
        (errors.DecideFirst("r"), 409, None),
        (errors.InboxFull(100), 429, "2"),
        (errors.Unavailable("the database does not answer"), 503, "1"),
        (errors.Closed(), 503, "1"),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_a_refusal_keeps_its_code_and_data(
    api: Api, error: errors.RunnerError, status: int, retry_after: str | None
) -> None:
    api.runner.raising["send"] = error
    answer = await api.client.post("/v1/threads/t/messages", json={"content": "hi"})
    problem = assert_problem(answer, status, error.code)
    assert problem["retryable"] is error.retryable
    assert problem.get("data", {}) == error.data
    assert answer.headers.get("retry-after") == retry_after


async def test_unknown_things_are_not_found(api: Api) -> None:
    things = (
        "threads/nope",
        "runs/nope",
        "runs/nope/why",
        "messages/nope",
        "requests/nope",
    )
    for path in (*things, "threads/nope/frames"):
        assert_problem(await api.client.get(f"/v1/{path}"), 404, "not_found")
    answer = await api.client.post("/v1/threads/nope/messages", json={"content": "hi"})
    assert_problem(answer, 404, "not_found")


async def test_an_unknown_agent_is_told_with_the_known_ones(api: Api) -> None:
    for path, body in (("/v1/threads", {}), ("/v1/messages", {"content": "hi"})):
        answer = await api.client.post(path, json={"agent": "nobody", **body})
        assert assert_problem(answer, 404, "unknown_agent")["data"]["known"] == [AGENT, "other"]


async def test_a_taken_id_conflicts(api: Api) -> None:
    id = api.runner.add_thread()
    answer = await api.client.post("/v1/threads", json={"agent": "other", "id": id})
    assert_problem(answer, 409, "thread_exists")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"content": ""}', "invalid_input"),
        (b'{"content": " \\n"}', "invalid_input"),
        (b'{"content": "a\\u0000b"}', "invalid_input"),
        (b'{"content": "\\ud800"}', "invalid_input"),
        (b'{"content": 5}', "invalid_input"),
        (b'{"content": null}', "invalid_input"),
        (b'{"content": "hi", "on_busy": "maybe"}', "invalid_input"),
        (b'{"content": "hi", "extra\\ud800": 1}', "invalid_input"),
        (b"[]", "invalid_input"),
        (b"5", "invalid_input"),
        (b"", "invalid_input"),
    ],
)
async def test_bodies_of_the_wrong_shape(api: Api, body: bytes, code: str) -> None:
    path = f"/v1/threads/{api.runner.add_thread()}/messages"
    answer = await api.client.post(path, content=body, headers={"content-type": "application/json"})
    assert_problem(answer, 422, code)


@pytest.mark.parametrize(
    "body", [b"{", b"{'a': 1}", b'{"content": "\xff"}', b"[" * 100_000, b"nonsense"], ids=range(5)
)
async def test_malformed_json(api: Api, body: bytes) -> None:
    answer = await api.client.post(
        "/v1/threads/t/messages", content=body, headers={"content-type": "application/json"}
    )
    assert_problem(answer, 400, "malformed_json")
    assert api.runner.calls == []


async def test_each_wrong_field_is_named(api: Api) -> None:
    answer = await api.client.post("/v1/threads", json={"agent": 5, "id": "x", "nope": 1})
    problem = assert_problem(answer, 422, "invalid_input")
    assert {tuple(error["loc"]) for error in problem["errors"]} == {
        ("body", "agent"),
        ("body", "id"),
        ("body", "nope"),
    }


@pytest.mark.parametrize(
    "thread",
    [
        {"title": "a\x00b"},
        {"title": "x" * 201},
        {"metadata": {"a": {"b": ["\x00"]}}},
        {"metadata": {"\x00": 1}},
        {"metadata": {"a": "x" * 20_000}},
        {"metadata": []},
    ],
    ids=range(6),
)
async def test_what_the_database_could_not_keep_is_refused(api: Api, thread: dict[str, Any]) -> None:
    answer = await api.client.post("/v1/threads", json={"agent": AGENT, **thread})
    assert assert_problem(answer, 422, "invalid_input")["detail"].startswith("body.")
    assert api.runner.items == {}


@pytest.mark.parametrize(
    ("levels", "statuses"),
    # Where the interpreter gives up reading it depends on how deep its own stack is by then: 400 comes first there.
    [(31, {201}), (32, {422}), (900, {400, 422}), (50_000, {400, 422})],
)
async def test_metadata_must_not_be_nested_without_end(api: Api, levels: int, statuses: set[int]) -> None:
    deep = b'{"agent":"support","metadata":{"a":' + b"[" * levels + b"]" * levels + b"}}"
    answer = await api.client.post("/v1/threads", content=deep, headers={"content-type": "application/json"})
    assert answer.status_code in statuses


async def test_metadata_must_be_numbers_for_everybody(api: Api) -> None:
    nan = b'{"agent":"support","metadata":{"a":NaN}}'
    answer = await api.client.post("/v1/threads", content=nan, headers={"content-type": "application/json"})
    assert_problem(answer, 422, "invalid_input")


async def test_a_huge_message_and_a_huge_body(api: Api) -> None:
    path = f"/v1/threads/{api.runner.add_thread()}/messages"
    answer = await api.client.post(path, json={"content": "x" * 65_537})
    assert assert_problem(answer, 413, "message_too_large")["data"]["limit"] == 65_536
    answer = await api.client.post(path, json={"content": "x" * 2_000_000})
    assert_problem(answer, 413, "body_too_large")

    async def endless() -> Any:
        for _ in range(64):
            yield b"x" * 16_384

    answer = await api.client.post(path, content=endless(), headers={"content-type": "application/json"})
    assert_problem(answer, 413, "body_too_large")


async def test_a_body_must_say_that_it_is_json(api: Api) -> None:
    answer = await api.client.post("/v1/threads/t/messages", content=b'{"content": "hi"}')
    assert_problem(answer, 415, "unsupported_media_type")
    answer = await api.client.post("/v1/threads", data={"agent": AGENT})
    assert_problem(answer, 415, "unsupported_media_type")


async def test_a_bad_key_limit_or_cursor(api: Api) -> None:
    thread = api.runner.add_thread()
    sending = {"json": {"content": "hi"}, "headers": {"Idempotency-Key": "k" * 129}}
    answer = await api.client.post(f"/v1/threads/{thread}/messages", **sending)  # type: ignore[arg-type]
    assert assert_problem(answer, 422, "invalid_input")["data"]["field"] == "key"
    for query in ("limit=0", "limit=101", "limit=x", "cursor=x"):
        for pages in ("threads", "runs", "requests"):
            assert_problem(await api.client.get(f"/v1/{pages}?{query}"), 422, "invalid_input")
    for query in ("after=x", "until=never"):
        assert_problem(await api.client.get(f"/v1/threads/{thread}/frames?{query}"), 422, "invalid_input")
    answer = await api.client.post("/v1/runs/run-1/stop", json={"wait": 61})
    assert_problem(answer, 422, "invalid_input")


async def test_unknown_paths(api: Api) -> None:
    for path in ("/", "/v1", "/v1/threads/", "/docs", "/v1/threads/%00/x"):
        assert_problem(await api.client.get(path), 404, "unknown_path")
    assert_problem(await api.client.get("/v1/threads/%00"), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/threads", {"GET", "POST"}),
        ("POST", "/v1/threads/x", {"GET", "PATCH", "PUT"}),
        ("GET", "/v1/threads/x/messages", {"POST"}),
        ("POST", "/v1/runs/x", {"GET"}),
        ("POST", "/healthz", {"GET"}),
    ],
)
async def test_a_wrong_method_is_told_all_right_ones(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    answer = await api.client.request(method, path)
    assert_problem(answer, 405, "method_not_allowed")
    assert set(re.split(", ", answer.headers["allow"])) == allowed


async def test_a_bug_is_told_as_an_id(api: Api) -> None:
    api.runner.raising["send"] = RuntimeError("secret detail")
    with capture_logs() as logs:
        answer = await api.client.post("/v1/threads/t/messages", json={"content": "hi"})
    problem = assert_problem(answer, 500, "internal")
    assert problem["data"]["error_id"] in problem["detail"]
    assert [(entry["event"], entry["error_id"]) for entry in logs] == [
        ("internal_error", problem["data"]["error_id"])
    ]
    assert "secret" not in answer.text


async def test_pages_of_other_sites_may_not_call() -> None:
    async with serving(origins=frozenset({"https://chat.example.com"})) as api:
        port = api.server.port
        answer = await api.client.get("/v1/threads", headers={"Origin": "https://evil.example"})
        assert_problem(answer, 403, "origin_refused")
        for origin in ("https://chat.example.com", "http://localhost:3000", f"http://127.0.0.1:{port}"):
            answer = await api.client.get("/v1/threads", headers={"Origin": origin})
            assert answer.status_code == 200, origin
        for origin in ("null", "", "http://[", "https://chat.example.com.evil.example"):
            answer = await api.client.get("/v1/threads", headers={"Origin": origin})
            assert_problem(answer, 403, "origin_refused")
        same = {"Origin": "http://api.example:80", "Host": "api.example:80"}
        assert (await api.client.get("/v1/threads", headers=same)).status_code == 200


async def test_a_private_server_answers_for_its_own_names_only() -> None:
    async with serving(hosts=frozenset({"127.0.0.1", "localhost"})) as api:
        assert (await api.client.get("/v1/threads")).status_code == 200
        rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
        assert_problem(await api.client.get("/v1/threads", headers=rebound), 403, "host_refused")


async def test_plain_http_at_the_websocket_is_told_so(api: Api) -> None:
    answer = await api.client.get("/v1/ws")
    assert (answer.status_code, answer.json()["code"]) == (426, "upgrade_required")
