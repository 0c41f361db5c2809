"""Watchers who come back by cursor whenever they are cut off, at any replica, over either transport."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from tests.chaos.evidence import GAP, Json, Seen

AGAIN_S: Final = 0.2
# Who hears nothing at all for so long looks for another replica; both transports have signs of life.
SILENCE_S: Final = 20.0
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024


class Watcher:
    """One watcher of one thread.

    Args:
        thread: which.
        urls: of the replicas.
        transport: "ws" or "sse".
        dice: at which replica, and when to leave without a reason.
    """

    def __init__(self, thread: str, urls: Sequence[str], transport: str, dice: random.Random) -> None:
        self.seen = Seen(f"{transport} {thread[:8]}", thread)
        self._urls = urls
        self._transport = transport
        self._dice = dice
        self._cursor = "start"

    async def watch(self) -> None:
        """Watch for ever."""
        while True:
            url = self._dice.choice(self._urls)
            frames = self._socket(url) if self._transport == "ws" else self._events(url)
            stay = self._dice.uniform(2.0, 25.0)
            with suppress(OSError, TimeoutError, WebSocketException, httpx.HTTPError, StopAsyncIteration):
                async with asyncio.timeout(stay):
                    async for frame in frames:
                        self._take(frame)
            await asyncio.sleep(self._dice.uniform(0.0, AGAIN_S))

    def _take(self, frame: Json) -> None:
        if "cursor" not in frame:
            return
        self._cursor = frame["cursor"]
        if frame["kind"] == "fact":
            self.seen.facts.append(frame)
            self.seen.arrived.append(monotonic())
        elif frame["kind"] == "gap":
            self.seen.live.append(GAP)
        elif frame["n"] > 0:
            self.seen.live.append((frame["fence"], frame["n"]))

    async def _socket(self, url: str) -> AsyncIterator[Json]:
        address = url.replace("http", "ws", 1) + "/v1/ws"
        async with connect(
            address,
            subprotocols=[Subprotocol("threadhold.v1")],
            proxy=None,
            max_size=FRAME_BYTES_MAX,
            open_timeout=5,
            ping_interval=2,
            ping_timeout=SILENCE_S,
            close_timeout=0.2,
        ) as socket:
            ask = {"id": 1, "op": "watch", "thread": self.seen.thread, "after": self._cursor}
            await socket.send(json.dumps(ask))
            async for text in socket:
                said: dict[str, Any] = json.loads(text)
                if said.get("op") == "frame":
                    yield said
                elif said.get("op") == "watch_ended" or said.get("ok") is False:
                    return

    async def _events(self, url: str) -> AsyncIterator[Json]:
        timeout = httpx.Timeout(5.0, read=SILENCE_S)
        address = f"{url}/v1/threads/{self.seen.thread}/frames"
        async with (
            httpx.AsyncClient(trust_env=False, timeout=timeout) as http,
            http.stream("GET", address, params={"after": self._cursor}) as response,
        ):
            if response.status_code != 200:
                return
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "data":
                    yield json.loads(value)
