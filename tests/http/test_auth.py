"""Who calls over REST: nobody gets anywhere without a token that is good, and nothing of one is ever told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.http.records import AGENT
from tests.http.scripted import Api, serving
from tests.http.test_problems import assert_problem
from tests.identity.issuer import AUDIENCE, ISSUER, SECRET, secret_token
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.auth import bearer
from threadhold.adapters.http.gate import OPEN_PATHS
from threadhold.adapters.http.health import Health
from threadhold.adapters.identity.signed import SignedTokens
from threadhold.runner.errors import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = SignedTokens(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)


def shown(token: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"authorization": f"Bearer {token}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_api() -> AsyncIterator[Api]:
    """Serve those who have tokens, for all tests of this file."""
    async with serving(authenticate=bearer(TOKENS)) as running:
        yield running


async def test_a_token_says_who_calls(api: Api) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = await api.client.get("/v1/agents", headers={"authorization": f"{scheme} {secret_token()}"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("headers", "reason", "challenge"),
    [
        ({}, "missing", "Bearer"),
        ({"authorization": "Basic YWRhOmh1bnRlcjI="}, "malformed", 'Bearer error="invalid_token"'),
        ({"authorization": "Bearer"}, "malformed", 'Bearer error="invalid_token"'),
        ({"authorization": ""}, "malformed", 'Bearer error="invalid_token"'),
        (shown("x.y.z"), "malformed", 'Bearer error="invalid_token"'),
        (shown(secret_token(exp=1)), "expired", 'Bearer error="invalid_token"'),
        (shown(secret_token(secret=SECRET[::-1])), "bad_signature", 'Bearer error="invalid_token"'),
    ],
    ids=range(7),
)
async def test_without_a_good_one_it_is_401_and_says_how(
    api: Api, headers: dict[str, str], reason: str, challenge: str
) -> None:
    answer = await api.client.get("/v1/threads", headers=headers)
    problem = assert_problem(answer, 401, "unauthenticated")
    assert problem["data"] == {"reason": reason}
    assert answer.headers["www-authenticate"] == challenge
    assert api.runner.calls == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/threads"),
        ("GET", "/v1/threads/x/frames"),
        ("POST", "/v1/stop"),
        ("GET", "/v1/workers"),
        ("GET", "/v1/ws"),
        ("GET", "/v1/nothing"),
        ("GET", "/nothing"),
        ("GET", "/healthz/"),
        ("GET", "//healthz"),
        ("DELETE", "/v1/threads"),
        ("OPTIONS", "/v1/threads"),
    ],
)
async def test_it_is_asked_everywhere_and_before_anything_else(api: Api, method: str, path: str) -> None:
    assert_problem(await api.client.request(method, path), 401, "unauthenticated")


@pytest.mark.parametrize("body", [b"{", b"nonsense", b'{"nope": 1}', b"x" * 200_000], ids=range(4))
async def test_a_strangers_body_is_not_looked_at(api: Api, body: bytes) -> None:
    answer = await api.client.post("/v1/messages", content=body, headers={"content-type": "application/json"})
    assert_problem(answer, 401, "unauthenticated")


async def test_health_and_the_description_are_for_everybody(api: Api) -> None:
    for path in OPEN_PATHS:
        assert (await api.client.get(path)).status_code == 200


async def test_the_description_says_where_a_token_is_needed(api: Api) -> None:
    document = (await api.client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in document["paths"]["/v1/threads"]["get"]
    assert "401" in document["paths"]["/v1/threads"]["get"]["responses"]
    async with serving() as everybodys:
        assert "security" not in (await everybodys.client.get("/openapi.json")).json()


async def test_who_cannot_be_told_now_may_come_again() -> None:
    async def authenticate(headers: Any) -> Any:
        raise Unavailable("no keys")

    async with serving(authenticate=authenticate) as api:
        answer = await api.client.get("/v1/threads")
        assert_problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_fault_in_telling_lets_nobody_in() -> None:
    def authenticate(headers: Any) -> Any:
        raise RuntimeError(headers["authorization"])

    async with serving(authenticate=authenticate) as api:
        answer = await api.client.get("/v1/threads", headers=shown("t0ken"))
        assert_problem(answer, 500, "internal")
        assert "t0ken" not in answer.text


async def test_tokens_are_in_no_answer_and_in_no_log(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    token = secret_token()
    spoilt = [
        token,
        token[:-4] + "AAAA",
        secret_token(exp=1),
        secret_token(workspace=5),
        secret_token(aud="x"),
    ]
    with capture_logs() as logs:
        for one in spoilt:
            told = (await api.client.get("/v1/agents", headers=shown(one))).text
            # Neither whole nor the part that says who it is of.
            assert not any(part in told for part in one.split("."))
    said = str(logs) + "".join(capfd.readouterr())
    assert not any(part in said for one in spoilt for part in one.split("."))


async def test_whoever_is_served_is_not_the_local_principal(api: Api) -> None:
    """A route reads who calls from where the gate has put it, and from nowhere else."""
    seen: list[Any] = []
    thread = api.runner.add_thread()
    api.runner.send = _noting(api.runner.send, seen)  # type: ignore[method-assign]
    try:
        body = {"content": "hi", "agent": AGENT}
        headers = shown(secret_token(sub="bob", roles=["approver"]))
        await api.client.post(f"/v1/threads/{thread}/messages", json=body, headers=headers)
    finally:
        del api.runner.send
    assert [(by.id, by.workspace, sorted(by.roles)) for by in seen] == [("bob", "acme", ["approver", "user"])]


def _noting(method: Any, seen: list[Any]) -> Any:
    async def noting(*args: Any, by: Any, **options: Any) -> Any:
        seen.append(by)
        return await method(*args, by=by, **options)

    return noting


async def test_every_path_but_the_open_ones_needs_a_principal(api: Api) -> None:
    """Whatever doors are added: one that forgot to ask would be found here."""
    app = create_api(api.runner, health=lambda: Health(), drain=api.drain)  # type: ignore[arg-type]
    paths = {path for path in app.openapi()["paths"] if path not in OPEN_PATHS}
    assert paths
    for path in paths:
        answer = await api.client.get(path.replace("{", "").replace("}", ""))
        assert answer.status_code == 401, path
