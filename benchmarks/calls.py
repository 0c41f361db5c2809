"""What a call through each door takes, beside a bare server of the same stack that is asked the same."""

import json
from asyncio import gather
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.bounds import bounded
from benchmarks.errors import BenchError
from benchmarks.feed import Feed, open_feed
from benchmarks.peers import HttpPeer, SocketPeer, message, request
from benchmarks.remote import cpu_of
from benchmarks.rows import Row, cost_row, latency_row, rate_row
from benchmarks.stack import TARGET, Bench, process, ready
from benchmarks.stamps import now

PEERS: Final = 16
ROUNDS: Final = 3
CALLS: Final = 800
# Each connection of a pool learns each statement and its types once, which takes longer than a call.
WARM_UP: Final = 400
ROUND_WITHIN_S: Final = 2.0
# So many that no inbox fills up, and that no two calls at once are for the same one.
THREADS: Final = 128
CONTENT: Final = "x" * 200
# How the client is told to speak: as in the era in which every request stands alone, and in the one with a handshake.
ERAS: Final = {"": "auto", "-old": "legacy"}
SERVERS: Final = {"bare": ["benchmarks.bare_calls"], "ours": ["threadhold", "serve", TARGET, "--port", "0"]}

Ask = Callable[[int], bytes]
"""Returns the bytes of the call with a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A server that is asked."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    Args:
        name: of the rows.
        what: the call in words, and what both servers ask Postgres for it.
        peer: how it is asked.
        right: what stands in every right answer.
        prepare: returns how to ask the server at a URL, about any of these threads.
    """

    name: str
    what: str
    peer: type[HttpPeer] | type[SocketPeer]
    right: bytes
    prepare: Callable[[str, list[str]], Awaitable[Ask]]


@dataclass(slots=True)
class Taken:
    """What all rounds of one question at one door took: seconds of each call, of all, and of processor time."""

    lags: list[float] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.lags) / self.wall


async def measure(bench: Bench) -> list[Row]:
    """Ask both servers the same, by turns."""
    bench.meter.begin("doors", len(QUESTIONS) * ROUNDS)
    rows: list[Row] = []
    async with open_feed(bench) as feed:
        with ExitStack() as stack:
            doors = {name: await _started(bench, stack, name) for name in SERVERS}
            for question in QUESTIONS:
                rows += _rows(question, await _asked(bench, feed, question, doors))
    return rows


async def _started(bench: Bench, stack: ExitStack, name: str) -> Door:
    started = stack.enter_context(process(f"doors-{name}", SERVERS[name], env=bench.env, logs=bench.logs))
    url = json.loads(await ready(started.log, '"api_ready"'))["url"]
    return Door(url=url, pid=started.pid)


async def _asked(bench: Bench, feed: Feed, question: Question, doors: dict[str, Door]) -> dict[str, Taken]:
    """Ask each door in turn, round by round; before the first, so often that nothing is cold any more."""
    taken = {name: Taken() for name in doors}
    asks = {
        name: await question.prepare(door.url, await feed.threads(THREADS)) for name, door in doors.items()
    }
    for name, door in doors.items():
        await _round(door, question, asks[name], Taken(), calls=WARM_UP)
    for _ in range(ROUNDS):
        for name, door in doors.items():
            await _round(door, question, asks[name], taken[name], calls=CALLS)
        bench.meter.tick()
    return taken


async def _round(door: Door, question: Question, ask: Ask, taken: Taken, *, calls: int) -> None:
    """Let peers ask at once, each one call after the other.

    Raises:
        BenchError: if an answer is not the right one.
    """
    peers = [await question.peer.open(door.url) for _ in range(PEERS)]
    left = iter(bounded(calls, ROUND_WITHIN_S))
    before, began = cpu_of(door.pid), now()

    async def asking(peer: HttpPeer | SocketPeer) -> None:
        for number in left:
            at = now()
            answer = await peer.ask(ask(number))
            if question.right not in answer:
                raise BenchError(f"{question.name}: {door.url} answered {answer[:600].decode()}")
            taken.lags.append(now() - at)

    await gather(*(asking(peer) for peer in peers))
    taken.wall += now() - began
    taken.cpu += cpu_of(door.pid) - before
    for peer in peers:
        peer.close()


async def _rest_send(url: str, threads: list[str]) -> Ask:
    def ask(number: int) -> bytes:
        on_busy = {"on_busy": "queue"} if number % 2 else {}
        body = json.dumps({"content": CONTENT, **on_busy}).encode()
        path = f"/v1/threads/{threads[number % THREADS]}/messages"
        return request(url, "POST", path, body=body, headers={"Content-Type": "application/json"})

    return ask


async def _rest_run(url: str, threads: list[str]) -> Ask:
    return lambda number: request(url, "GET", f"/v1/runs/{threads[number % THREADS]}")


async def _ws_send(_: str, threads: list[str]) -> Ask:
    def ask(number: int) -> bytes:
        thread = threads[number % THREADS]
        return message({"id": number, "op": "send", "thread": thread, "content": CONTENT})

    return ask


async def _ws_ping(_: str, __: list[str]) -> Ask:
    return lambda number: message({"id": number, "op": "ping"})


async def _mcp(url: str, threads: list[str], *, tool: str, era: str) -> Ask:
    """Return the call as the official client makes it: of its requests, the one that calls the tool is repeated.

    Raises:
        BenchError: if the tool refuses.
    """
    seen: list[httpx2.Request] = []

    async def note(made: httpx2.Request) -> None:
        seen.append(made)

    given = {"run": threads[0]} if tool == "get_run" else {}
    async with (
        httpx2.AsyncClient(event_hooks={"request": [note]}, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=ERAS[era]) as client,
    ):
        answer = await client.call_tool(tool, given)
    if answer.is_error:
        raise BenchError(f"{tool} was refused: {answer.content}")
    call = next(made for made in seen if b'"tools/call"' in made.content)
    headers = {name: value for name, value in call.headers.items() if name not in ("host", "content-length")}
    repeated = request(url, "POST", "/mcp", body=call.content, headers=headers)
    return lambda _: repeated


QUESTIONS: Final = (
    Question(
        name="doors-rest-send",
        what="POST of a message to a busy thread, every other one with `queue`; 1 statement, committed",
        peer=HttpPeer,
        right=b'"disposition":',
        prepare=_rest_send,
    ),
    Question(
        name="doors-rest-run",
        what="GET of a run; 1 statement",
        peer=HttpPeer,
        right=b'"first_seq":',
        prepare=_rest_run,
    ),
    Question(
        name="doors-ws-send",
        what="`send` to a busy thread over WebSocket; 1 statement, committed",
        peer=SocketPeer,
        right=b'"disposition":',
        prepare=_ws_send,
    ),
    Question(
        name="doors-ws-ping",
        what="`ping` over WebSocket; no statement",
        peer=SocketPeer,
        right=b'"ok":true',
        prepare=_ws_ping,
    ),
    *(
        Question(
            name=f"doors-mcp-{tool.partition('_')[2]}{era}",
            what=f"MCP `{tool}` over HTTP{', in the era of handshakes' if era else ''}; {statements}",
            peer=HttpPeer,
            right=b'"structuredContent":',
            prepare=partial(_mcp, tool=tool, era=era),
        )
        for tool, statements in (("get_run", "1 statement, and 4 at once"), ("list_threads", "1 statement"))
        for era in ERAS
    ),
)


def _rows(question: Question, taken: dict[str, Taken]) -> list[Row]:
    ours, bare = taken["ours"], taken["bare"]
    name, n = question.name, len(ours.lags)
    what = f"{question.what}; {PEERS} peers, each one call after the other"
    cpu = "processor time of the server per call, which no client shares"
    return [
        rate_row(name, f"calls per second: {what}", ours.rate, bare.rate, n=n),
        latency_row(f"{name}-time", f"from a call to its answer: {question.what}", ours.lags, bare.lags),
        cost_row(
            f"{name}-cpu",
            f"{cpu}: {question.what}",
            ours.cpu / n * 1e6,
            bare.cpu / len(bare.lags) * 1e6,
            unit="us",
            n=n,
        ),
    ]
