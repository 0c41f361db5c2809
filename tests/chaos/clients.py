"""Clients that write down every call and every answer; an unknown outcome is asked again with the same key."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.chaos.evidence import Asked, Json
from tests.chaos.script import drawn, written

ANSWER_S_MAX: Final = 4.0
AGAIN_S: Final = 0.2
# Between two operations of a client.
PAUSE_S_MAX: Final = 0.8
# What a server says whose database is away, or who is ending.
UNAVAILABLE: Final = 503
AGENTS: Final = ("chaos", "stubborn")
# Whose messages are sent when all is over, and show nothing of what was done under faults.
LAST_SPEAKER: Final = 0
# What each step of a script does, how often.
STEPS: Final[Mapping[str, int]] = {"nap": 10, "block": 1, "ask": 2, "sign_off": 2}
OPERATIONS: Final[Mapping[str, int]] = {
    "steer": 40,
    "queue": 8,
    "reject": 8,
    "interrupt": 8,
    "twice": 5,
    "chase": 12,
    "stop run": 8,
    "stop thread": 6,
    "answer": 12,
    "replay": 6,
    "look": 5,
}


@dataclass(slots=True)
class Desk:
    """Where all clients of a world meet: what they share, and how they call.

    Args:
        urls: of the replicas.
        threads: the ids of the threads they talk in.
        seed: of all dice.
    """

    urls: Sequence[str]
    threads: Sequence[str]
    seed: int
    asked: list[Asked] = field(default_factory=list, init=False)
    failures: list[str] = field(default_factory=list, init=False)
    runs: dict[str, str] = field(default_factory=dict, init=False)
    earlier: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list), init=False)
    closing: bool = field(default=False, init=False)

    def agent(self, thread: str) -> str:
        """Return the agent of a thread."""
        return AGENTS[self.threads.index(thread) % len(AGENTS)]

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        """Open a client of one's own."""
        limits = httpx.Limits(max_keepalive_connections=4)
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S_MAX, limits=limits) as http:
            yield http

    async def ask(
        self, http: httpx.AsyncClient, dice: random.Random, asked: Asked, path: str, body: Json, key: str
    ) -> Asked:
        """Call until the outcome is known, each time at any replica, with the same key."""
        self.asked.append(asked)
        while True:
            asked.tries += 1
            try:
                answer = await http.post(
                    dice.choice(self.urls) + path, json=body, headers={"Idempotency-Key": key}
                )
            except httpx.TransportError:
                await asyncio.sleep(AGAIN_S)
                continue
            if self._outcome_known(answer):
                break
            await asyncio.sleep(AGAIN_S)
        asked.ended = monotonic()
        asked.status, asked.answer = answer.status_code, answer.json()
        if asked.accepted and asked.answer.get("run"):
            self.runs[asked.thread] = asked.answer["run"]
            self.earlier[asked.thread].append(asked.answer["run"])
        return asked

    async def get(self, http: httpx.AsyncClient, dice: random.Random, path: str) -> Json:
        """Read until there is an answer."""
        while True:
            try:
                answer = await http.get(dice.choice(self.urls) + path)
            except httpx.TransportError:
                await asyncio.sleep(AGAIN_S)
                continue
            if self._outcome_known(answer):
                data: Json = answer.json()
                return data
            await asyncio.sleep(AGAIN_S)

    def _outcome_known(self, answer: httpx.Response) -> bool:
        """Tell whether an answer is a yes or a no; one that a fault does not excuse is written down."""
        if answer.status_code >= 500 and answer.status_code != UNAVAILABLE:
            asked = f"{answer.request.method} {answer.request.url.path}"
            self.failures.append(f"{asked} was answered with {answer.status_code}: {answer.text[:2000]}")
        return answer.status_code < 500


class Client:
    """One client, who does one thing after the other until the desk closes.

    Args:
        number: which one.
        desk: where it works.
    """

    def __init__(self, number: int, desk: Desk) -> None:
        self._name = f"c{number}"
        self._desk = desk
        self._dice = random.Random(f"client {number} of {desk.seed}")
        self._numbers = itertools.count(1)

    async def work(self) -> None:
        """Do one operation after the other."""
        operations, shares = list(OPERATIONS), list(OPERATIONS.values())
        async with self._desk.http() as http:
            while not self._desk.closing:
                await self._do(http, self._dice.choices(operations, shares)[0])
                await asyncio.sleep(self._dice.uniform(0.0, PAUSE_S_MAX))

    async def _do(self, http: httpx.AsyncClient, operation: str) -> None:
        thread = self._dice.choice(self._desk.threads)
        match operation:
            case "stop run":
                await self._stop_run(http, thread)
            case "stop thread":
                body = {"wait": self._dice.choice((0.0, 0.5))}
                await self._ask(http, "stop thread", thread, f"/v1/threads/{thread}/stop", body)
            case "look":
                await self._desk.get(http, self._dice, f"/v1/threads/{thread}")
            case "answer":
                await self.answer(http)
            case "chase":
                await self._chase(http, thread)
            case "twice":
                await self._twice(http, thread)
            case "replay":
                await self._replay(http, thread)
            case _:
                script = drawn(self._dice, STEPS)
                await self.send(http, thread, script, on_busy=operation)

    async def send(
        self, http: httpx.AsyncClient, thread: str, script: str, *, on_busy: str = "steer"
    ) -> Asked:
        """Send a message."""
        tag = f"{self._name}-{next(self._numbers)}"
        return await self._send_as(http, thread, tag, script, on_busy, uuid4().hex)

    async def _send_as(
        self, http: httpx.AsyncClient, thread: str, tag: str, script: str, on_busy: str, key: str
    ) -> Asked:
        asked = Asked(op=f"send {on_busy}", thread=thread, tag=tag, began=monotonic())
        body = {"content": written(tag, script), "agent": self._desk.agent(thread), "on_busy": on_busy}
        path = f"/v1/threads/{thread}/messages"
        return await self._desk.ask(http, self._dice, asked, path, body, key)

    async def _chase(self, http: httpx.AsyncClient, thread: str) -> None:
        """Send messages to a run that is about to end: some of them meet its very end."""
        for _ in range(self._dice.randint(4, 8)):
            await self.send(
                http, thread, f"say {self._dice.randint(1, 3)} {self._dice.uniform(0.0, 0.1):.2f}"
            )
            await asyncio.sleep(self._dice.uniform(0.0, 0.15))

    async def _twice(self, http: httpx.AsyncClient, thread: str) -> None:
        """Send the same message twice at once, as an impatient program would."""
        tag, key = f"{self._name}-{next(self._numbers)}", uuid4().hex
        script = drawn(self._dice, STEPS)
        both = [self._send_as(http, thread, tag, script, "steer", key) for _ in range(2)]
        await asyncio.gather(*both)

    async def answer(self, http: httpx.AsyncClient, thread: str | None = None) -> None:
        """Answer one of the open requests, sometimes twice at once and in different ways."""
        where = f"&thread={thread}" if thread else ""
        page = await self._desk.get(http, self._dice, f"/v1/requests?status=open&limit=100{where}")
        if page["items"]:
            request = self._dice.choice(page["items"])
            times = self._dice.choice((1, 1, 1, 2))
            await asyncio.gather(*(self._answer(http, request) for _ in range(times)))

    async def _answer(self, http: httpx.AsyncClient, request: Json) -> None:
        rejection = {"kind": "reject", "reason": f"no, says {self._name}"}
        if request["kind"] == "approval":
            edit = {"kind": "edit", "args": {"seconds": 0.01}}
            decision = self._dice.choice(({"kind": "approve"}, {"kind": "approve"}, edit, rejection))
        else:
            decision = self._dice.choice(({"kind": "reply", "value": f"yes, says {self._name}"}, rejection))
        path = f"/v1/requests/{request['id']}/answer"
        asked = Asked(op="answer", thread=request["thread"], tag="", run=request["run"], began=monotonic())
        await self._desk.ask(http, self._dice, asked, path, decision, uuid4().hex)

    async def _stop_run(self, http: httpx.AsyncClient, thread: str) -> None:
        run = self._desk.runs.get(thread)
        if run is None:
            return
        body = {"wait": self._dice.choice((0.0, 0.5, 1.0))}
        await self._ask(http, "stop run", thread, f"/v1/runs/{run}/stop", body, run=run)

    async def _replay(self, http: httpx.AsyncClient, thread: str) -> None:
        """Run the newest run again, or one of those before it."""
        if known := self._desk.earlier[thread]:
            run = self._dice.choice((known[-1], known[-1], self._dice.choice(known)))
            await self._ask(http, "replay", thread, f"/v1/runs/{run}/replay", {}, run=run)

    async def _ask(
        self, http: httpx.AsyncClient, op: str, thread: str, path: str, body: Any, run: str | None = None
    ) -> Asked:
        asked = Asked(op=op, thread=thread, run=run, began=monotonic())
        return await self._desk.ask(http, self._dice, asked, path, body, uuid4().hex)
