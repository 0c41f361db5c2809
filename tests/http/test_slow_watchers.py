"""A watcher that takes nothing is cut with a reason that programs can read, and is told so if it reads on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.http.scripted import Api, delivery, serving, until
from threadhold.adapters.http.doors import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAMES = 200
# Nothing here depends on when a watcher that was cut reads on, as long as the test lasts.
LIMITS = Limits(write_s=0.3, outbox_frames=8, goodbye_s=60)


async def flood(api: Api, thread: str) -> None:
    """Publish more than any buffer on the way holds."""
    large = {"text": "x" * 100_000}
    await api.runner.publish(thread, *(delivery(thread, seq, data=large) for seq in range(1, FRAMES + 1)))


@asynccontextmanager
async def stalled_socket(api: Api, thread: str) -> AsyncIterator[ClientConnection]:
    """Watch over a WebSocket that reads nothing, not even the answer."""
    async with connect(api.ws) as socket:
        socket.transport.pause_reading()
        await socket.send(json.dumps({"op": "watch", "thread": thread}))
        await until(lambda: api.runner.watching == 1)
        yield socket


async def test_a_socket_that_is_read_on_is_closed_with_its_reason_and_taken_up_with_its_cursor() -> None:
    async with serving(limits=LIMITS) as api:
        thread = api.runner.add_thread()
        async with stalled_socket(api, thread) as stalled:
            with capture_logs() as logs:
                await flood(api, thread)
                await until(lambda: logs)
                stalled.transport.resume_reading()
                seen = await read_all(stalled)
            assert stalled.protocol.close_rcvd is not None
            close = stalled.protocol.close_rcvd
            assert (close.code, close.reason) == (1013, "slow_consumer")
            assert [entry["event"] for entry in logs] == ["socket_stalled"]
        # All that came is whole and in order; what is missing comes after its cursor.
        assert 0 < len(seen) < FRAMES
        # On a machine that stands still for a moment it may be cut again, and takes it up again.
        while len(seen) < FRAMES:
            async with connect(api.ws) as back:
                await back.send(json.dumps({"op": "watch", "thread": thread, "after": f"{seen[-1]}-1-0"}))
                seen += await read_all(back, most=FRAMES - len(seen))
        assert seen == list(range(1, FRAMES + 1))


async def read_all(socket: ClientConnection, *, most: int = FRAMES) -> list[int]:
    """Return the seqs of all frames until the socket is closed, or of so many."""
    seqs: list[int] = []
    try:
        while len(seqs) < most:
            message = json.loads(await socket.recv())
            if message["op"] == "frame":
                seqs.append(message["seq"])
    except ConnectionClosed:
        pass
    return seqs


async def test_an_event_stream_that_is_read_on_ends_with_its_reason() -> None:
    async with serving(limits=LIMITS) as api:
        thread = api.runner.add_thread()
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, limit=1024)
        writer.write(f"GET /v1/threads/{thread}/frames HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        await until(lambda: api.runner.watching == 1)
        with capture_logs() as logs:
            await flood(api, thread)
            # Its watch has ended before it is read on.
            await until(lambda: api.runner.watching == 0)
            text = (await reader.read()).decode()
        writer.close()
    assert [entry["event"] for entry in logs] == ["stream_stalled"]
    *frames, last = text.rstrip("\n").split("\n\n")
    assert last.startswith("event: error\n")
    told = json.loads(last.partition("data: ")[2])
    assert (told["code"], told["retryable"]) == ("slow_consumer", True)
    seqs = [int(frame.partition("-")[0].removeprefix("id: ")) for frame in frames if frame.startswith("id: ")]
    assert 0 < len(seqs) < FRAMES
    assert seqs == list(range(1, len(seqs) + 1))


async def test_an_event_stream_that_is_never_read_on_holds_up_no_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(limits=LIMITS) as api:
        thread = api.runner.add_thread()
        _, writer = await asyncio.open_connection("127.0.0.1", api.server.port, limit=1024)
        writer.write(f"GET /v1/threads/{thread}/frames HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await until(lambda: api.runner.watching == 1)
        await flood(api, thread)
        await until(lambda: api.runner.watching == 0)
        # A slow reader is no fault of ours, and nothing to alarm anybody.
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        api.server.should_exit = True
        await asyncio.wait_for(api.serving, 30)
        writer.transport.abort()
