"""Many watchers on several hubs over a real Valkey, and a producer in a thread of its own, as in other processes."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from tests.fanout.support import THREAD, FakeFacts, Watching, check_order, fact, in_time, until
from threadhold.fanout.connections import connect
from threadhold.fanout.cursor import Position
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame
from threadhold.fanout.hub import Hub
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LiveLog, Place
from threadhold.fanout.redis import RedisLive
from threadhold.fanout.subscriber import RedisSubscriber

PREFIX: Final = "test:"
START: Final = Position()
FENCE: Final = 7
# Seconds between two readings of the heads, where nothing else is said.
HEAD_EVERY: Final = 0.1
# Larger than what is published, each in its own way: at the border, several, and more than one reading's share.
BIG: Final = (17 * 1024, 64 * 1024, 300 * 1024)
LETTERS: Final = 'abc "\\{}\n\t\x00é߿€\U0001f600'

T = TypeVar("T")


def delta(text: str) -> dict[str, Any]:
    """Return a piece of a response's text."""
    inner = {"part_delta_kind": "text", "content_delta": text}
    return {"event_kind": "part_delta", "index": 0, "delta": inner}


class CountedLive(RedisLive):
    """Keeps what was appended, and counts the looks at the newest frames, and the tries to read the window.

    Of looks there are no more than `looks_max`: the next one hangs.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client, prefix=PREFIX)
        self.appended: dict[Place, Frame] = {}
        self.looks = self.tries = 0
        self.looks_max: int | None = None
        self._read_window, self._window = self._window, self._try

    def _try(self, **arguments: Any) -> Any:
        self.tries += 1
        return self._read_window(**arguments)

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        self.appended |= {(frame.fence, frame.n): frame for frame in frames}
        return await super().append(thread, fence, frames)

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        if self.looks == self.looks_max:
            await asyncio.Event().wait()
        self.looks += 1
        return await super().tops(threads)


class Elsewhere:
    """A thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start something there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done there."""
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Producer:
    """A response of a model on its way through an outbox. Its coroutines run elsewhere."""

    def __init__(self, url: str, *, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._pieces = 0
        self.text = ""

    async def open(self) -> None:
        """Begin the attempt."""
        self._client = connect(self._url)
        self.live = CountedLive(self._client)
        self.outbox = Outbox(self.live, thread=THREAD, run="r1", fence=FENCE)
        self.outbox.start(attempt=1, seq=1)

    async def say(self, pieces: int, *, seq: int) -> None:
        """Put so much more of the text, with large drafts in between."""
        for _ in range(pieces):
            piece = "".join(self._random.choices(LETTERS, k=self._random.randint(1, 40)))
            self.text += piece
            self.outbox.put("event", delta(piece), seq=seq)
            self._pieces += 1
            if self._pieces % 10 == 0:
                self.outbox.put("draft", {"text": "x" * BIG[self._pieces // 10 % len(BIG)]}, seq=seq)
            if self._pieces % 5 == 0:
                await self.flush()

    async def flush(self) -> bool:
        """Flush as a run does before it commits a fact."""
        return await in_time(self.outbox.flush(), within=2.0)

    async def send_all(self) -> None:
        """Wait until all is sent, however often it fails."""
        async with asyncio.timeout(20):
            while not await self.outbox.flush(20.0):
                await asyncio.sleep(0.005)

    async def ring(self, seq: int) -> None:
        """Ring the doorbell, if it can be heard."""
        with suppress(LiveUnavailable):
            await self.live.ring(THREAD, seq)

    async def close(self) -> None:
        """End the attempt."""
        await self.outbox.aclose(10.0)
        await self.live.aclose()
        await self._client.aclose()


class Crowd:
    """The hubs, their watchers, and the run that they watch."""

    def __init__(self, *, url: str, seed: int) -> None:
        self.facts = FakeFacts()
        self.producer = Producer(url, seed=seed)
        self.elsewhere = Elsewhere()
        self.hubs: list[Hub] = []
        self.watchings: list[Watching] = []
        self._submitted: list[Future[None]] = []

    @property
    def seq(self) -> int:
        """The newest fact."""
        return self.facts.log[THREAD][-1].seq

    def join(self, count: int) -> None:
        """Let more watchers come, on the hubs in turn."""
        for _ in range(count):
            hub = self.hubs[len(self.watchings) % len(self.hubs)]
            self.watchings.append(Watching(hub.watch(THREAD, START, until="idle")))

    async def say(self, pieces: int) -> None:
        """Let the response go on."""
        await self.elsewhere.do(self.producer.say(pieces, seq=self.seq))

    def say_soon(self, pieces: int) -> None:
        """Let the response go on meanwhile."""
        self._submitted.append(self.elsewhere.submit(self.producer.say(pieces, seq=self.seq)))

    async def sent(self) -> None:
        """Wait until all that was said so far is sent."""
        await asyncio.gather(*map(asyncio.wrap_future, self._submitted))
        await self.elsewhere.do(self.producer.send_all())

    def commit(self, name: str, **data: Any) -> None:
        """Commit a fact, and ring without waiting for it."""
        self.facts.commit(fact(self.seq + 1, name, **data))
        self._submitted.append(self.elsewhere.submit(self.producer.ring(self.seq)))

    async def note(self) -> None:
        """Commit a fact in the middle of the run; return when everybody has it."""
        self.commit("tool_returned")
        await until(lambda: all(self._is_at(each, self.seq) for each in self.watchings), within=20)

    def _is_at(self, watching: Watching, seq: int) -> bool:
        return bool(watching.deliveries) and watching.deliveries[-1].position.seq >= seq

    async def reach(self, place: Place) -> None:
        """Wait until everybody has come so far in the live frames."""
        await until(lambda: all(self._has(each, place) for each in self.watchings), within=20)

    def _has(self, watching: Watching, place: Place) -> bool:
        return bool(watching.deliveries) and watching.deliveries[-1].position.live >= place

    async def end(self) -> None:
        """Commit the response and the end of the run; return when every watch has ended."""
        await self.elsewhere.do(self.producer.flush())
        self.commit("model_called", text=self.producer.text)
        self.facts.state = "idle"
        self.commit("run_ended", live=self.producer.outbox.position)
        ends = [watching.task for watching in self.watchings]
        _, late = await asyncio.wait(ends, timeout=20)
        assert not late, f"{len(late)} of {len(ends)} have no end"

    def check(self, *, gaps: bool) -> None:
        """Check what everybody was promised; with `gaps`, live frames may be missing where a gap says so."""
        for watching in self.watchings:
            watching.task.result()
            frames = watching.frames
            assert [watching.marks.count("end:idle"), watching.marks[-1]] == [1, "end:idle"]
            check_order(watching.steps, START)
            facts = [frame for frame in frames if frame.kind == "fact"]
            assert facts == self.facts.log[THREAD]
            assert facts[-2].data["text"] == self.producer.text
            told = [frame for frame in frames if frame.is_live]
            assert told == [self.producer.live.appended[frame.fence, frame.n] for frame in told]
            if any(frame.kind == "gap" for frame in frames):
                assert gaps, watching.marks
            else:
                events = (frame.data["delta"] for frame in told if frame.kind == "event")
                assert "".join(each["content_delta"] for each in events) == self.producer.text


@asynccontextmanager
async def crowd(url: str, *, seed: int = 1, hubs: int = 2) -> AsyncIterator[Crowd]:
    """Open hubs, each with connections of its own, and the run of one response."""
    made = Crowd(seed=seed, url=url)
    made.facts.commit(fact(1, "run_started"))
    async with AsyncExitStack() as stack:
        stack.callback(made.elsewhere.close)
        for _ in range(hubs):
            live = await stack.enter_async_context(live_at(url))
            made.hubs.append(await stack.enter_async_context(hub_at(url, made.facts, live)))
        await made.elsewhere.do(made.producer.open())
        try:
            yield made
        finally:
            for watching in made.watchings:
                await watching.stop()
            await made.elsewhere.do(made.producer.close())


@asynccontextmanager
async def live_at(url: str, kind: type[CountedLive] = CountedLive) -> AsyncIterator[CountedLive]:
    """Open a live log with a client of its own."""
    client = connect(url)
    try:
        yield kind(client)
    finally:
        await client.aclose()


@asynccontextmanager
async def hub_at(
    url: str, facts: FakeFacts, live: LiveLog, *, beat_every: float = 0.1, **settings: Any
) -> AsyncIterator[Hub]:
    """Open a hub with a subscription of its own, which looks about often."""
    subscriber = RedisSubscriber(url, prefix=PREFIX, beat_every=beat_every)
    settings = {"head_every": HEAD_EVERY, "confirm_max": 0.3} | settings
    hub = Hub(facts, live, subscriber, **settings)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.aclose()
        await subscriber.aclose()
