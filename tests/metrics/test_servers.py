"""Each number about watching, servers and requests moves when that happens."""

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from websockets.asyncio.client import connect

from tests.http.scripted import serving
from tests.http.test_slow_watchers import flood, stalled_socket
from tests.metrics.conftest import Process, read, release
from tests.support.waiting import until
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.quotas import Allowance
from threadhold.adapters.metrics import process as process_module
from threadhold.adapters.metrics.sampling import FRESH_S, Sample, Sampler
from threadhold.adapters.metrics.traffic import NOWHERE, Traffic
from threadhold.storage.pool import Database


async def test_watchers_and_what_they_get_are_counted(process: Process, gate: Path) -> None:
    receipt = await process.send(f"hold {gate} | say hello")
    url = str(process.client.base_url).replace("http", "ws")
    async with connect(f"{url}/v1/ws") as socket:
        await socket.send(json.dumps({"op": "watch", "thread": receipt["thread"], "until": "idle"}))
        await process.shows("watchers", 1)
        await process.shows("watched_threads", 1)
        assert await process.value("open_sockets") == 1
        release(gate)
        frames = 0
        while (message := json.loads(await socket.recv())).get("kind") != "end":
            frames += message["op"] == "frame"
        assert await process.value("deliveries_total") >= frames > 0
    await process.shows("watchers", 0)
    await process.shows("open_sockets", 0)
    assert await process.value("watch_overflows_total") == 0


async def test_gaps_are_counted_by_their_reason(process: Process) -> None:
    receipt = await process.send("say hello")
    await process.rests(receipt["run"])
    redis: Any = Redis.from_url(process.parts.settings.redis_url or "")
    async with redis:
        async for key in redis.scan_iter(f"{process.parts.settings.redis_prefix}*{receipt['thread']}*"):
            await redis.delete(key)
    path = f"/v1/threads/{receipt['thread']}/frames?after=start&until=idle"
    async with process.client.stream("GET", path) as stream:
        text = "".join([line async for line in stream.aiter_lines()])
    told = text.count('"kind":"gap"')
    assert told > 0
    found = read(await process.text())
    assert sum(value for (name, _), value in found.items() if name.endswith("watch_gaps_total")) == told


async def test_a_subscription_that_breaks_is_counted_when_it_is_made_anew(idle: Process) -> None:
    await idle.shows("subscriber_healthy", 1)
    assert await idle.value("subscriber_resubscriptions_total") == 0
    redis: Any = Redis.from_url(idle.parts.settings.redis_url or "")
    async with redis:
        await redis.client_kill_filter(_type="pubsub")
    await idle.shows("subscriber_resubscriptions_total", 1)
    await idle.shows("subscriber_healthy", 1)


async def test_servers_that_answer_are_up(idle: Process) -> None:
    assert await idle.value("postgres_up") == 1
    assert await idle.value("redis_up") == 1
    assert await idle.value("pool_connections_max") == idle.parts.settings.pool_size
    async with idle.parts.database._connection():
        assert await idle.value("pool_connections", state="in_use") == 1
    assert await idle.value("pool_connections", state="in_use") == 0
    await idle.parts.database.close()
    found = read(await idle.text())
    assert found["threadhold_postgres_up", frozenset()] == 0
    assert found["threadhold_redis_up", frozenset()] == 1
    assert [name for name, _ in found if name == "threadhold_pending_runs"] == []


async def test_who_waits_for_a_connection_is_counted(database: Database) -> None:
    async with database._connection(), database._connection(), database._connection():
        async with database._connection():
            waiting = asyncio.create_task(database.run("ping"))
            while not database.stats().waiting:
                await asyncio.sleep(0)
            assert database.stats().in_use == database.stats().size_max == 4
        await waiting
    assert database.stats().waiting == database.stats().in_use == 0


class Asked:
    """Servers that count how often they are asked."""

    def __init__(self) -> None:
        self.pending: dict[str, int] | None = {"a": 2}
        self.times = 0
        self.time = 100.0
        self.sampler = Sampler(pending=self._pending, ping=self._ping, clock=lambda: self.time)

    async def _pending(self) -> dict[str, int]:
        self.times += 1
        if self.pending is None:
            raise OSError("away")
        return self.pending

    async def _ping(self) -> None:
        raise OSError("away")


async def test_servers_are_asked_once_in_a_while_however_often_somebody_scrapes() -> None:
    asked = Asked()
    await asyncio.gather(*(asked.sampler.look() for _ in range(10)))
    assert asked.times == 1
    assert (asked.sampler.last.postgres, asked.sampler.last.redis) == (True, False)
    assert asked.sampler.last.pending == {"a": 2}
    asked.time += FRESH_S
    asked.pending = {}
    await asked.sampler.look()
    # An agent whose runs have all been taken has none, and is not gone.
    assert (asked.times, asked.sampler.last.pending) == (2, {"a": 0})
    asked.time += FRESH_S
    asked.pending = None
    await asked.sampler.look()
    assert asked.sampler.last == Sample(postgres=False, redis=False, pending=None)


async def test_requests_are_counted_by_route_and_never_by_what_somebody_made_up(idle: Process) -> None:
    for name in ("one", "two"):
        await idle.client.get(f"/v1/threads/{name}")
        await idle.client.get(f"/{name}")
        await idle.client.request(name.upper(), "/healthz")
    await idle.client.get("/healthz")
    await idle.client.get("/v1/agents", headers={"Origin": "https://elsewhere.example"})
    value = idle.value
    assert await value("http_requests_total", route="/v1/threads/{thread}", method="GET", status="404") == 2
    assert await value("http_request_seconds_count", route="/v1/threads/{thread}", method="GET") == 2
    assert await value("http_requests_total", route=NOWHERE, method="GET", status="404") == 2
    assert await value("http_requests_total", route="/healthz", method="other", status="405") == 2
    assert await value("http_requests_total", route="/healthz", method="GET", status="200") == 1
    assert await value("http_requests_total", route=NOWHERE, method="GET", status="403") == 1
    await idle.client.post("/mcp", json={})
    found = read(await idle.text())
    routes = {dict(labels)["route"] for name, labels in found if name.endswith("http_requests_total")}
    assert routes == {"/v1/threads/{thread}", "/healthz", "/metrics", "/mcp", NOWHERE}


async def test_an_event_stream_is_counted_when_it_begins(process: Process, gate: Path) -> None:
    receipt = await process.send(f"hold {gate}")
    async with process.client.stream("GET", f"/v1/threads/{receipt['thread']}/frames") as stream:
        assert stream.status_code == 200
        route = "/v1/threads/{thread}/frames"
        assert await process.value("http_requests_total", route=route, method="GET", status="200") == 1
    release(gate)
    await process.rests(receipt["run"])


async def test_refusals_by_rate_are_counted_by_kind(idle: Process) -> None:
    allowance = Allowance(messages_per_minute=1)
    async with serving(metrics=idle.parts.metrics, show_metrics=True, allowance=allowance) as api:
        for expected in (404, 429):
            answer = await api.client.post("/v1/messages", json={"agent": "nobody", "content": "x"})
            assert answer.status_code == expected
        found = read((await api.client.get("/metrics")).text)
    assert found["threadhold_rate_limited_total", frozenset({("kind", "messages")})] == 1


@pytest.mark.parametrize("door", ["websocket", "sse"])
async def test_peers_that_are_cut_off_are_counted_by_door(idle: Process, door: str) -> None:
    limits = Limits(write_s=0.2, outbox_frames=8, goodbye_s=0.4)
    async with serving(metrics=idle.parts.metrics, show_metrics=True, limits=limits) as api:
        thread = api.runner.add_thread()
        _, writer = await asyncio.open_connection("127.0.0.1", api.server.port, limit=1024)
        if door == "sse":
            writer.write(f"GET /v1/threads/{thread}/frames HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        async with stalled_socket(api, thread) if door == "websocket" else nullcontext():
            while not api.runner.watching:
                await asyncio.sleep(0)
            await flood(api, thread)

            async def cut() -> bool:
                found = read((await api.client.get("/metrics")).text)
                return found.get(("threadhold_consumers_cut_total", frozenset({("door", door)}))) == 1

            await until(cut)
        writer.close()


async def test_the_lag_of_the_loop_is_measured(idle: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LAG_EVERY_S", 0.01)
    await idle.shows("loop_lag_seconds_count", lambda count: count > 1)


def test_children_are_looked_up_once(idle: Process) -> None:
    traffic: Traffic = idle.parts.metrics.traffic
    for _ in range(3):
        traffic.note("/a", "GET", 200, 0.1)
    assert traffic._counters["/a", "GET", 200]._value.get() == 3
    assert len(traffic._histograms) == 1
