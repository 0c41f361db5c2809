"""The journal of one attempt: what the run did, in order, under its claim, each thing once.

Records are numbered, so that one whose answer was lost may be repeated. A record that has begun is never given up half
way: a stop or a cancellation waits for it, since nobody could tell otherwise whether it counts.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import structlog
from pydantic_ai.messages import ModelMessage

from threadhold.fanout.outbox import Outbox
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.history import dumped
from threadhold.runner.machine import RunStatus
from threadhold.runner.ports import Wires, WorkStore
from threadhold.runner.records import Ended, InboxMessage, NewFact, Recorded, Start

log = structlog.get_logger(__name__)

FLUSH_S: Final = 0.05
RETRY_S: Final = 0.25

T = TypeVar("T")


class Journal:
    """Writes what one attempt does.

    Args:
        work: the store.
        wires: rings the watchers after each commit.
        start: the run and its claim.
        outbox: the live frames, which go out before the fact they belong to.
        trusted: tells whether the claim may still be ours; retries end with it.
    """

    def __init__(
        self, work: WorkStore, wires: Wires, *, start: Start, outbox: Outbox, trusted: Callable[[], bool]
    ) -> None:
        self._work = work
        self._wires = wires
        self._start = start
        self._outbox = outbox
        self._trusted = trusted
        self._lock = asyncio.Lock()
        self._rec_no = 0
        self._base = 0
        self._kept = 0
        self._held: list[NewFact] = []
        self.seq = start.seq
        self.waiting = False

    def begin_segment(self, messages: Sequence[ModelMessage]) -> None:
        """Note where this segment's own messages begin: after those that it was given."""
        self._base = len(messages)
        self._kept = 0

    def hold(self, fact: NewFact) -> None:
        """Keep a fact for the next record or for the end, whichever comes first.

        The final response of a run is committed together with its end.
        """
        self._held.append(fact)

    async def note(
        self,
        *facts: NewFact,
        messages: Sequence[ModelMessage] | None = None,
        delivered: Sequence[InboxMessage] = (),
        shown: Sequence[ModelMessage] = (),
    ) -> None:
        """Record facts, whatever is new in the history so far, and messages that the model is about to be shown.

        Args:
            facts: in their order.
            messages: the whole history so far, or None for "nothing new".
            delivered: messages of the inbox that this record consumes.
            shown: the requests that show them; they follow `messages` in the history.

        Raises:
            ClaimLost: the claim is not the present one any more.
        """
        await asyncio.shield(asyncio.ensure_future(self._note(facts, messages, delivered, shown)))

    async def _note(
        self,
        facts: Sequence[NewFact],
        messages: Sequence[ModelMessage] | None,
        delivered: Sequence[InboxMessage],
        shown: Sequence[ModelMessage],
    ) -> None:
        async with self._lock:
            new = [*self._new(messages), *shown]
            facts = [*self._held, *facts]
            if not facts and not new and not delivered:
                return
            history = dumped(new)
            if self._rec_no:
                # The first record follows no live frame that it could overtake.
                await self._outbox.flush(FLUSH_S)
            self._rec_no += 1
            recorded = await self._repeated(lambda: self._record(facts, delivered, history))
            self._held.clear()
            self._kept += len(new)
            self.seq = recorded.seq
            self.waiting = recorded.waiting > 0
            self._wires.ring(self._start.thread, recorded.seq)

    def _record(
        self, facts: Sequence[NewFact], delivered: Sequence[InboxMessage], history: Sequence[Any]
    ) -> Coroutine[Any, Any, Recorded]:
        seqs = [message.seq for message in delivered]
        return self._work.record(
            self._start, rec_no=self._rec_no, facts=facts, delivered=seqs, history=history
        )

    async def history(self) -> list[Any]:
        """Return the thread's history as it stood when the run was claimed, as JSON values."""
        start = self._start
        return await self._repeated(lambda: self._work.history(start.thread, chunks=start.history_chunks))

    async def inbox(self) -> list[InboxMessage]:
        """Return the messages that wait for this run."""
        return await self._repeated(lambda: self._work.inbox(self._start))

    async def end(
        self,
        status: RunStatus,
        *,
        reason: str | None = None,
        error: dict[str, Any] | None = None,
        messages: Sequence[ModelMessage] | None = None,
        output: Any = None,
    ) -> Ended:
        """End the run, or learn that it goes on because a message waits.

        Raises:
            ClaimLost: the claim is not the present one any more; whoever took it has recorded the end.
        """
        async with self._lock:
            history = dumped(self._new(messages))
            await self._outbox.flush(FLUSH_S)
            fence, n = self._outbox.position
            data = {"live": {"fence": fence, "n": n}} | ({} if output is None else {"output": output})
            ended, nudge = await self._repeated(
                lambda: self._work.end(
                    self._start,
                    status=status,
                    reason=reason,
                    error=error,
                    facts=self._held,
                    history=history,
                    data=data,
                )
            )
        self.seq = ended.seq
        self._wires.announce(nudge)
        return ended

    def _new(self, messages: Sequence[ModelMessage] | None) -> list[ModelMessage]:
        return [] if messages is None else list(messages[self._base + self._kept :])

    async def _repeated(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a call while the database is away and the claim may still be ours; each call is repeatable."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                log.warning(
                    "record_delayed", thread=self._start.thread, run=self._start.run, error=str(error)
                )
                await asyncio.sleep(RETRY_S)
                if not self._trusted():
                    raise ClaimLost(self._start.thread, self._start.fence) from error
