"""A whole process on real servers, an API and a worker, whose numbers a test reads as Prometheus would."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.agents import app
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold.adapters.bootstrap import Parts, make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.metrics import sampling
from threadhold.runner.service import Runner
from threadhold.runner.worker import Worker

Labels = dict[str, str]


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of an exposition, each of which may come once only."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


@dataclass
class Process:
    """The process of a test; its worker comes with `work`."""

    parts: Parts
    runner: Runner
    client: httpx.AsyncClient
    exits: AsyncExitStack
    workers: list[Worker] = field(default_factory=list)

    @property
    def worker(self) -> Worker:
        """Its worker."""
        return self.workers[-1]

    async def work(self) -> None:
        """Run a worker from now on."""
        working = running_worker(app, self.parts, id=worker_id("w"), capacity=4)
        self.workers.append(await self.exits.enter_async_context(working))

    async def text(self) -> str:
        """Return what a scrape shows."""
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text

    async def value(self, name: str, **labels: str) -> float:
        """Return one number; what nobody has counted yet is 0."""
        found = read(await self.text())
        return found.get((f"threadhold_{name}", frozenset(labels.items())), 0.0)

    async def shows(self, name: str, wanted: float | Callable[[float], bool], **labels: str) -> None:
        """Return when a number is what it has to be."""
        seen = -1.0

        async def look() -> bool:
            nonlocal seen
            seen = await self.value(name, **labels)
            return wanted(seen) if callable(wanted) else seen == wanted

        await until(look, what=lambda: f"{name} {labels} is {seen}")

    async def send(self, content: str, thread: str | None = None, **fields: Any) -> dict[str, Any]:
        """Send over REST and return the receipt."""
        path, agent = ("/v1/messages", {"agent": "scripted"})
        if thread is not None:
            path, agent = (f"/v1/threads/{thread}/messages", {})
        answer = await self.client.post(path, json={"content": content, **agent, **fields})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def rests(self, run: str) -> dict[str, Any]:
        """Return a run as it is once it has ended or waits for people."""
        answer = await self.client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=20"})
        return dict(answer.json())


@pytest.fixture
async def idle(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    """A process without a worker; its servers are asked anew at each scrape."""
    monkeypatch.setattr(sampling, "FRESH_S", 0.0)
    async with AsyncExitStack() as exits:
        parts = await exits.enter_async_context(open_parts(stack.settings(grace=0)))
        runner, drain = make_runner(app, parts), asyncio.Event()
        exits.push_async_callback(runner.aclose)
        api = create_api(runner, health=parts.health, drain=drain, metrics=parts.metrics, show_metrics=True)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, AsyncExitStack() as working:
            yield Process(parts, runner, client, working)
        server.should_exit = True
        await serving


@pytest.fixture
async def process(idle: Process) -> Process:
    """The same, with a worker."""
    await idle.work()
    return idle


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What scripts hold at until it is touched."""
    return tmp_path / "gate"


def release(gate: Path) -> None:
    """Let what holds at a gate go on."""
    gate.touch()
