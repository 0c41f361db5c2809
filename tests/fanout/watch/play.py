"""A thread that is played on the real hub: what happens to it, and what its watchers must have got in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.fanout.bench import START, Bench, FaultyLive
from tests.fanout.support import THREAD, FakeFacts, check_order, fact, live, until
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import Head, LiveArrived, LivePage, Missed

_Result = TypeVar("_Result")

# What may happen, with how often it does.
HAPPENINGS = {
    "send": 8,
    "commit": 4,
    "turn": 6,
    "watch": 3,
    "close": 1,
    "take_over": 1,
    "zombie": 1,
    "number": 1,
    "commit_in_silence": 1,
    "disconnect": 1,
    "connect": 2,
    "lose": 1,
    "repeat": 1,
    "point": 1,
    "flush": 1,
    "trim": 1,
    "go_away": 1,
    "be_back": 2,
    "stall": 1,
    "go_on": 2,
    "come_back": 2,
}

# What only the next look at the stream or at Postgres makes good.
HEALED = {"commit_in_silence", "lose", "go_away"}


class Client:
    """A client that may leave and come back with its cursor."""

    def __init__(self, bench: Bench, *, to_the_end: bool) -> None:
        self._bench = bench
        self._options: dict[str, Any] = {"until": "idle"} if to_the_end else {}
        self._before: list[tuple[Frame, Position]] = []
        self.to_the_end = to_the_end
        self.watching = bench.watch(**self._options)

    @property
    def steps(self) -> list[tuple[Frame, Position]]:
        """All that it ever got."""
        return self._before + self.watching.steps

    @property
    def facts(self) -> list[Frame]:
        """The facts that it got."""
        return [frame for frame, _ in self.steps if frame.kind == "fact"]

    @property
    def has_ended(self) -> bool:
        """Whether an end came."""
        return self.watching.marks[-1:] == ["end:idle"]

    async def come_back(self) -> None:
        """Leave, and come back."""
        if self.has_ended:
            return
        await self.watching.stop()
        deliveries = self.watching.deliveries
        position = deliveries[-1].position if deliveries else self._last()
        self._before += self.watching.steps
        self.watching = self._bench.watch(position, **self._options)

    def _last(self) -> Position:
        return self._before[-1][1] if self._before else START


class Play:
    """One thread and what happens to it; the names of the methods are those of `HAPPENINGS`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.clients: list[Client] = []
        self.log: list[Frame] = []
        # Whether live frames may be missing, so that a gap is right.
        self.loss = False
        self._fence = self._numbered = 0
        self._open = False
        self._pending: list[Frame] = []
        self._former: tuple[int, int] | None = None
        bench.facts.state = "idle"

    async def happen(self, what: str, number: int) -> None:
        """Let something happen; the number picks whom it happens to."""
        await getattr(self, what)(number)

    async def send(self, number: int) -> None:
        """Send what waits, and the next live frame."""
        await self._begin()
        self._number()
        await self._flush()

    async def commit(self, number: int) -> None:
        """Commit a fact."""
        await self._begin()
        await self._commit("model_called")

    async def commit_in_silence(self, number: int) -> None:
        """Commit a fact; the process dies before it rings."""
        await self._begin()
        await self._commit("model_called", rings=False)

    async def close(self, number: int) -> None:
        """End the run, whether or not its frames were sent."""
        await self._begin()
        self.loss = self.loss or bool(self._pending)
        self._open, self._former = False, None
        self._bench.facts.state = "idle"
        await self._commit("run_ended", live=(self._fence, self._numbered))

    async def take_over(self, number: int) -> None:
        """Let another attempt begin, while the former one goes on."""
        await self._begin()
        self._former = (self._fence, self._numbered)
        # What the former one kept back never comes, and no fact names it.
        self._pending.clear()
        await self._start("attempt_closed")

    async def zombie(self, number: int) -> None:
        """Let the former attempt send one more frame."""
        if self._former is not None:
            fence, n = self._former
            self._former = (fence, n + 1)
            await self._bench.live.append(THREAD, fence, [live(fence, n + 1)])

    async def number(self, number: int) -> None:
        """Number a live frame and keep it back."""
        await self._begin()
        self._number()

    async def turn(self, number: int) -> None:
        """Let the others run."""
        for _ in range(number % 8):
            await asyncio.sleep(0)

    async def watch(self, number: int) -> None:
        """Let a client come."""
        if len(self.clients) < 4:
            self.clients.append(Client(self._bench, to_the_end=number % 2 == 0))

    async def come_back(self, number: int) -> None:
        """Let a client leave and come back."""
        if self.clients:
            await self.clients[number % len(self.clients)].come_back()

    async def stall(self, number: int) -> None:
        """Let a client take nothing for a while."""
        if self.clients:
            self.clients[number % len(self.clients)].watching.gate.clear()

    async def go_on(self, number: int) -> None:
        """Let all clients take what there is."""
        for client in self.clients:
            client.watching.gate.set()

    async def disconnect(self, number: int) -> None:
        """Lose the connection."""
        self._bench.subscriber.drop()

    async def connect(self, number: int) -> None:
        """Have it again."""
        self._bench.subscriber.reconnect()

    async def lose(self, number: int) -> None:
        """Send a live frame that nobody hears."""
        was, self._bench.subscriber.away = self._bench.subscriber.away, True
        await self.send(number)
        self._bench.subscriber.away = was

    async def repeat(self, number: int) -> None:
        """Let a live frame come again."""
        stored = (await self._bench.live.live(THREAD, after=(0, 0), limit=99)).frames if self._here else ()
        if stored:
            self._bench.subscriber.push(LiveArrived(frame=stored[number % len(stored)]))

    async def point(self, number: int) -> None:
        """Say that there are frames that were not sent along."""
        self._bench.subscriber.push(Missed(thread=THREAD))

    async def flush(self, number: int) -> None:
        """Empty the stream."""
        self.loss = True
        self._bench.live.flush()

    async def trim(self, number: int) -> None:
        """Cut the oldest frames off."""
        self.loss = True
        stream = self._bench.live._streams.get(THREAD, [])
        del stream[: number % 4]

    async def go_away(self, number: int) -> None:
        """Let readings of the stream fail."""
        self.loss = True
        self._bench.live.away = True

    async def be_back(self, number: int) -> None:
        """Let them succeed again."""
        self._bench.live.away = False

    @property
    def _here(self) -> bool:
        return not self._bench.live.away

    async def finish(self, number: int = 0) -> None:
        """Let everything recover and the thread rest, and wait until each client has what it must get."""
        await self.connect(0)
        await self.be_back(0)
        await self.watch(0)
        if number % 2:
            await self.go_on(0)
            await self._wait_for_all(self._is_up_to_date)
        await self.close(0)
        await self.turn(7)
        await self.go_on(0)
        await self._wait_for_all(self._has_all)

    async def _wait_for_all(self, has: Callable[[Client], bool]) -> None:
        for client in self.clients:
            try:
                await until(lambda client=client: has(client))  # type: ignore[misc]
            except TimeoutError:
                marks = client.watching.marks
                raise AssertionError(f"{len(self.log)} facts, but a client got only {marks}") from None

    def check(self) -> None:
        """Check what each client got."""
        for client in self.clients:
            check_order(client.steps, START)
            check_places(client.steps)
            got = client.facts
            assert got == self.log[: len(got)]
            if client.to_the_end:
                assert not got or got[-1].data["fact"] == "run_ended"
            else:
                assert got == self.log
            gaps = [frame.data["reason"] for frame, _ in client.steps if frame.kind == "gap"]
            assert set(gaps) <= ({"lost", "trimmed"} if self.loss else set()), gaps

    def _is_up_to_date(self, client: Client) -> bool:
        stream = self._bench.live._streams.get(THREAD)
        top = (stream[-1].fence, stream[-1].n) if stream else (0, 0)
        position = client.steps[-1][1] if client.steps else START
        return client.has_ended or (position.seq == len(self.log) and position.live >= top)

    def _has_all(self, client: Client) -> bool:
        return client.has_ended if client.to_the_end else len(client.facts) == len(self.log)

    async def _begin(self) -> None:
        if not self._open:
            self._open = True
            await self._start("run_started")

    async def _start(self, name: str) -> None:
        await self._flush()
        self._fence, self._numbered = self._fence + 1, 0
        self._bench.facts.state = "busy"
        await self._commit(name)
        self._number()
        await self._flush()

    def _number(self) -> None:
        self._numbered += 1
        self._pending.append(live(self._fence, self._numbered, seq=len(self.log)))

    async def _flush(self) -> None:
        pending, self._pending = self._pending, []
        for frame in pending:
            await self._bench.live.append(THREAD, frame.fence, [frame])

    async def _commit(self, name: str, *, live: tuple[int, int] | None = None, rings: bool = True) -> None:
        made = fact(len(self.log) + 1, name, live=live)
        self.log.append(made)
        self._bench.facts.fence = self._fence
        self._bench.facts.commit(made)
        if rings:
            await self._bench.live.ring(THREAD, made.seq)


def check_places(steps: Sequence[tuple[Frame, Position]]) -> None:
    """Check that live frames come after their facts, and facts that close an attempt after all its live frames."""
    position = START
    for frame, after in steps:
        if frame.is_live:
            assert frame.seq <= position.seq, "a live frame before its fact"
        elif last := frame.data.get("live"):
            assert position.live >= (last["fence"], last["n"]), "an end before the last live frame"
        position = after


class Steps:
    """Readings that wait to be let go on, in whatever order somebody wants."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def read(self, read: Callable[[], _Result]) -> _Result:
        """Read when told to, and answer when told to."""
        await self._wait()
        result = read()
        await self._wait()
        return result

    async def _wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future

    def let_go(self, number: int) -> None:
        """Let one of them go on."""
        future = self.waiting.pop(number)
        if not future.done():
            future.set_result(None)


class SteppedFacts(FakeFacts):
    """A log of facts that answers when it is told to."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def facts(self, thread: str, *, after: int, limit: int) -> list[Frame]:
        return await self._steps.read(lambda: [f for f in self.log.get(thread, []) if f.seq > after][:limit])

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        return await self._steps.read(
            lambda: [
                Head(thread=thread, seq=self.log[thread][-1].seq, fence=self.fence, state=self.state)
                for thread in threads
                if self.log.get(thread)
            ]
        )


class SteppedLive(FaultyLive):
    """A live log that answers readings when it is told to."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def live(self, thread: str, *, after: tuple[int, int], limit: int) -> LivePage:
        def read() -> LivePage:
            newer = [f for f in self._streams.get(thread, []) if (f.fence, f.n) > after]
            return LivePage(frames=newer[:limit], more=len(newer) > limit)

        return await self._steps.read(read)


async def settle() -> None:
    """Let the loop run until everybody waits for something. The loop's own queue is the only one who knows."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:
        await asyncio.sleep(0)
