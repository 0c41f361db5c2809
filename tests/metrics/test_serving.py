"""Who may read metrics, and where: operators at the API, or whoever reaches a port of their own."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics import parser

from tests.http.scripted import serving
from tests.metrics.conftest import read
from tests.support.processes import AGENTS, Processes
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold.adapters.bootstrap import open_parts
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.metrics.serving import MetricsPortError, metrics_port, serving_metrics
from threadhold.runner.records import Principal

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

PEOPLE = {
    "ops": Principal(id="ops", workspace="w", roles=frozenset({"operator"})),
    "ada": Principal(id="ada", workspace="w", roles=frozenset({"user", "approver"})),
}


def by_header(headers: Mapping[str, str]) -> Principal:
    """Return who the header says it is."""
    name = headers.get("x-name")
    if name is None:
        raise Unauthenticated("who are you?", reason="missing")
    return PEOPLE[name]


async def test_only_operators_read_them_at_the_api(stack: Stack) -> None:
    async with (
        open_parts(stack.settings()) as parts,
        serving(metrics=parts.metrics, show_metrics=True, authenticate=by_header) as api,
    ):
        seen = {name: await api.client.get("/metrics", headers={"x-name": name}) for name in PEOPLE}
        assert (await api.client.get("/metrics")).status_code == 401
        assert (await api.client.post("/metrics", headers={"x-name": "ops"})).status_code == 405
    assert seen["ada"].status_code == 403
    assert seen["ada"].json()["code"] == "forbidden"
    assert "threadhold_" not in seen["ada"].text
    assert seen["ops"].status_code == 200
    assert seen["ops"].headers["cache-control"] == "no-store"
    assert ("threadhold_postgres_up", frozenset()) in read(seen["ops"].text)


async def test_there_are_none_at_the_api_where_they_have_a_port(stack: Stack) -> None:
    with metrics_port("127.0.0.1", 0) as listening:
        assert listening is not None
        async with (
            open_parts(stack.settings()) as parts,
            serving(metrics=parts.metrics) as api,
            serving_metrics(parts.metrics, listening, host="127.0.0.1"),
        ):
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            assert (await api.client.get("/metrics")).status_code == 404
            async with httpx.AsyncClient() as client:
                shown = await client.get(f"{url}/metrics")
                assert (await client.get(f"{url}/v1/agents")).status_code == 404
                # A page elsewhere cannot read them by giving this machine a name of its own.
                stolen = await client.get(f"{url}/metrics", headers={"Host": "evil.example"})
                counted = 'route="none",method="GET",status="404"'
                openmetrics = await client.get(
                    f"{url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
                )
    assert shown.headers["content-type"].startswith("text/plain")
    assert ("threadhold_postgres_up", frozenset()) in read(shown.text)
    assert stolen.status_code == 403
    assert counted in shown.text or 'method="GET",route="none",status="404"' in shown.text
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    families = parser.text_string_to_metric_families(openmetrics.text)  # type: ignore[no-untyped-call]
    assert {family.name for family in families} >= {
        "threadhold_info",
        "threadhold_deliveries",
        "threadhold_run_wait_seconds",
    }


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(MetricsPortError) as refused, metrics_port("127.0.0.1", port):
            pass
    assert refused.value.code == "cannot_serve_metrics"
    assert f"127.0.0.1 port {port}" in str(refused.value)
    assert "THREADHOLD_METRICS_PORT" in str(refused.value)


async def test_a_worker_shows_them_on_its_port_until_it_ends(spawn: Processes) -> None:
    worker = spawn.worker(env={"THREADHOLD_METRICS_PORT": "0"})
    url = json.loads(worker.wait_for('"metrics_ready"'))["url"]
    api, api_url = spawn.api()
    async with httpx.AsyncClient() as client:
        found = read((await client.get(url)).text)
        assert found["threadhold_worker_capacity", frozenset()] > 0
        assert ("threadhold_open_sockets", frozenset()) not in found
        script = 'call block {"seconds": 3} ;; say done'
        await client.post(f"{api_url}/v1/messages", json={"agent": "scripted", "content": script})

        async def seen() -> bool:
            # While it is blocked it does not answer.
            answer = await client.get(url, timeout=20)
            return read(answer.text)[("threadhold_loop_blocked_total", frozenset())] == 1

        await until(seen)
        # It has no port of its own, and nobody needs a token on this machine.
        assert ("threadhold_open_sockets", frozenset()) in read((await client.get(f"{api_url}/metrics")).text)
        assert worker.terminate() == 0
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
    assert api.terminate() == 0
    assert spawn.errors() == []


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ("70000", "THREADHOLD_METRICS_PORT: Input should be less than or equal to 65535"),
        ("many", "THREADHOLD_METRICS_PORT: Input should be a valid integer"),
        ("taken", "cannot serve metrics on 127.0.0.1 port"),
    ],
)
def test_a_bad_port_is_one_clear_line(spawn: Processes, tmp_path: Path, port: str, told: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        given = str(other.getsockname()[1]) if port == "taken" else port
        process = spawn.start("worker", AGENTS, env={"THREADHOLD_METRICS_PORT": given})
        assert process.wait(within=60) != 0
    assert told in " ".join(process.text().split())
    assert "Traceback" not in process.text()
