"""A keeper whose renewals run in the same loop, against a store and a clock that the test commands."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.waiting import until
from threadhold.claims import Claim, ClaimTimes, Held, Keeper, News, Renewal
from threadhold.claims.board import Board
from threadhold.claims.ports import Line
from threadhold.claims.renewals import Renewals

TIMES = ClaimTimes(ttl=15, renew_every=3, margin=2)


@dataclass
class FakeRenewer:
    """A store that answers as the test says, and notes what it was asked."""

    answer: Callable[[Claim], Renewal] = lambda claim: Renewal(claim_id=claim.claim_id, result="renewed")
    before: Callable[[], Any] = lambda: None
    hinted: bool = False
    asked: list[list[str]] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    proofs: int = 0
    resets: int = 0

    async def renew(self, claims: Sequence[Claim], *, blocked_s: float) -> list[Renewal]:
        self.asked.append([claim.claim_id for claim in claims])
        self.blocked.append(blocked_s)
        waiting = self.before()
        if waiting is not None:
            await waiting
        return [self.answer(claim) for claim in claims]

    async def prove(self) -> None:
        self.proofs += 1
        self.before()

    async def reset(self) -> None:
        self.resets += 1


@dataclass
class FakeWatched:
    """A process that is in the state that the test says."""

    stopped: bool = False
    blocked: float = 0.0

    def frozen(self) -> bool:
        return self.stopped

    def blocked_s(self) -> float:
        return self.blocked


@dataclass
class LoopLink:
    """Leads to renewals in the same loop."""

    renewals: Renewals
    deaf: bool = False
    hear: Callable[[Line], None] = lambda line: None
    running: asyncio.Task[None] | None = None

    def start(self, *, hear: Callable[[Line], None], greet: Callable[[], Sequence[Line]]) -> None:
        self.hear = hear
        for line in greet():
            self.send(line)
        self.running = asyncio.create_task(self.renewals.run())

    def send(self, line: Line) -> None:
        self.renewals.take(line)

    async def aclose(self) -> None:
        self.renewals.close()
        if self.running is not None:
            await self.running


class Rig:
    """A keeper with a clock that the test moves."""

    def __init__(self) -> None:
        self.renewer = FakeRenewer()
        self.watched = FakeWatched()
        self.time = 100.0
        self.losses: list[str] = []
        self.news: list[News] = []
        self.told: list[Line] = []
        self.deaf = False
        self.board = Board()
        clock = lambda: self.time  # noqa: E731
        self.renewals = Renewals(
            self.renewer, times=TIMES, board=self.board, watched=self.watched, tell=self._tell, clock=clock
        )
        self.link = LoopLink(self.renewals)
        self.keeper = Keeper(self.link, self.board, times=TIMES, clock=clock)

    def _tell(self, line: Line) -> bool:
        if self.deaf:
            return False
        self.told.append(line)
        asyncio.get_running_loop().call_soon(self.link.hear, line)
        return True

    def hold(self, id: str = "c1") -> Held:
        """Hold a claim that was requested now."""
        claim = Claim(thread=f"thread of {id}", claim_id=id, fence=1)
        return self.keeper.hold(claim, began=self.time, on_lost=self.losses.append, on_news=self.news.append)

    async def renewed(self, held: Held) -> None:
        """Renew once, and wait until the store has been asked and its answer was acted on."""
        before = len(self.renewer.asked)
        self.keeper.look(held)

        async def asked() -> bool:
            return len(self.renewer.asked) > before

        await until(asked)
        await self.settle()

    async def settle(self) -> None:
        """Let everything that is ready run."""
        for _ in range(10):
            await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Run the keeper, and close it in the end."""
        self.keeper.start()

        async def alive() -> bool:
            return bool(self.renewer.asked)

        await until(alive)
        await self.settle()
        yield self
        await self.keeper.aclose()
