"""The floor of a door: the same server and protocol classes, one redis-py subscription, a queue per peer.

Usage: python -m benchmarks.bare_door

Prints the URL. Nobody is asked who they are, no order is checked, nothing is bounded, and a peer gets the text as it
was published.
"""

import asyncio
import json
import os
from typing import Any

from redis.asyncio import Redis

from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.processes import run
from threadhold.fanout.wire import Names

PREFIX = "th:threadhold:"
HEAD = '{"kind":"head"}'


class Door:
    """The ASGI app."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._names = Names(PREFIX)
        self._queues: dict[str, set[asyncio.Queue[str]]] = {}
        self._listening: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a socket, or a stream of events."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            thread = json.loads((await receive())["text"])["thread"]
            await self._serve(thread, _Socket(send), receive)
        elif scope["type"] == "http":
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
            )
            await self._serve(scope["path"].split("/")[3], _Stream(send), receive)

    async def _serve(self, thread: str, peer: "_Socket | _Stream", receive: Any) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        await self._subscribed(thread)
        self._queues[thread].add(queue)
        writing = asyncio.create_task(self._write(peer, queue))
        try:
            while "disconnect" not in (await receive())["type"]:
                pass
        finally:
            self._queues[thread].discard(queue)
            writing.cancel()

    async def _write(self, peer: "_Socket | _Stream", queue: asyncio.Queue[str]) -> None:
        await peer.write("head", HEAD)
        while True:
            await peer.write("draft", await queue.get())

    async def _subscribed(self, thread: str) -> None:
        if thread in self._queues:
            return
        self._queues[thread] = set()
        pubsub = self._redis.pubsub()
        await pubsub.subscribe(self._names.channel(thread))
        self._listening.add(asyncio.create_task(self._listen(pubsub, self._queues[thread])))

    async def _listen(self, pubsub: Any, queues: set[asyncio.Queue[str]]) -> None:
        async for message in pubsub.listen():
            if message["type"] == "message":
                body = message["data"].partition(b" ")[2]
                json.loads(body)
                text = body.decode()
                for queue in queues:
                    queue.put_nowait(text)


class _Socket:
    def __init__(self, send: Any) -> None:
        self._send = send

    async def write(self, _: str, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})


class _Stream:
    def __init__(self, send: Any) -> None:
        self._send = send

    async def write(self, kind: str, text: str) -> None:
        body = f"event: {kind}\ndata: {text}\n\n".encode()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def main() -> None:
    """Serve until told to end."""
    redis: Any = Redis.from_url(os.environ["THREADHOLD_REDIS_URL"])
    server = ApiServer(Door(redis), listening=listen("127.0.0.1", 0), drain=asyncio.Event(), own_signals=True)
    print(json.dumps({"event": "api_ready", "url": f"http://127.0.0.1:{server.port}"}), flush=True)
    await server.serve()


if __name__ == "__main__":
    run(main())
