"""The journal of one attempt: what the run did, in order, under its claim, each thing once.

Records are numbered, so that one whose answer was lost may be repeated. A record that has begun is never given up half
way: a stop or a cancellation waits for it, since nobody could tell otherwise whether it counts.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar

import structlog
from pydantic_ai.messages import ModelMessage, ModelResponse

from threadhold.fanout.outbox import Outbox
from threadhold.runner.budget import refusal
from threadhold.runner.clean_records import clean_facts, clean_history, clean_requests
from threadhold.runner.decisions import NewRequest
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.history import open_calls
from threadhold.runner.ledger import EMPTY, Ledger, ledger_of
from threadhold.runner.machine import RunStatus
from threadhold.runner.meter import Meter
from threadhold.runner.ports import Wires
from threadhold.runner.records import Ended, HandedOver, InboxMessage, NewFact, Recorded, Start
from threadhold.runner.scrubbing import Scrubber
from threadhold.runner.work_ports import WorkStore

log = structlog.get_logger(__name__)

FLUSH_S: Final = 0.05
RETRY_S: Final = 0.25
NOW: Final = timedelta(seconds=1)
SETTLE_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

T = TypeVar("T")


class HistoryRewritten(Exception):
    """The agent has replaced its newest messages, so that nobody can tell which of them are new."""

    def __init__(self) -> None:
        super().__init__(
            "the last recorded message is gone from the agent's history; a history processor may drop and add "
            "messages, but must leave the newest ones as they are"
        )


class Journal:
    """Writes what one attempt does.

    Args:
        work: the store.
        wires: rings the watchers after each commit.
        start: the run and its claim.
        outbox: the live frames, which go out before the fact they belong to.
        trusted: tells whether the claim may still be ours; retries end with it.
        on_stop: called when a record says that the run was asked to stop.
    """

    def __init__(
        self,
        work: WorkStore,
        wires: Wires,
        *,
        start: Start,
        outbox: Outbox,
        trusted: Callable[[], bool],
        on_stop: Callable[[], None],
    ) -> None:
        self._work = work
        self._wires = wires
        self._start = start
        self._outbox = outbox
        self._trusted = trusted
        self._on_stop = on_stop
        self._lock = asyncio.Lock()
        self._rec_no = 0
        self._last: ModelMessage | None = None
        self.scrubber = Scrubber(likely=False)
        """Knows what must not be recorded; the attempt says."""
        self.meter = Meter()
        self.seq = start.seq
        self.waiting = False
        self.stopping = False

    def begin_segment(self, messages: Sequence[ModelMessage], *, given: int | None = None) -> None:
        """Note where this segment's own messages begin: after those that it was given.

        Args:
            messages: the history at the first model request.
            given: how many requests of it behind the last response were given; None for all.
        """
        if given is not None:
            behind = max(
                (i for i, each in enumerate(messages) if isinstance(each, ModelResponse)), default=-1
            )
            messages = messages[: behind + 1 + given]
        self._last = messages[-1] if messages else None

    async def note(
        self,
        *facts: NewFact,
        messages: Sequence[ModelMessage] | None = None,
        delivered: Sequence[InboxMessage] = (),
        shown: Sequence[ModelMessage] = (),
        spend: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], ...]:
        """Record facts, whatever is new in the history so far, and messages that the model is about to be shown.

        After a stop was asked for, nothing is delivered any more, and `stopping` is True.

        Args:
            facts: in their order, after those about new responses.
            messages: the whole history so far, or None for "nothing new".
            delivered: messages of the inbox that this record consumes.
            shown: the requests that show them; they follow `messages` in the history.
            spend: what is about to be spent, which is set aside in the same step.

        Returns:
            Each limit of the budget as it stands, if something is to be spent.

        Raises:
            ClaimLost: the claim is not the present one any more.
            HistoryRewritten: nobody can tell what is new in `messages`.
            BudgetExhausted, BudgetHeld, NoGrant: it may not be spent; nothing was written.
        """
        noting = asyncio.ensure_future(self._note(facts, messages, delivered, shown, spend))
        # Whoever waits may be cancelled; what becomes of the record is then seen by the next one.
        noting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(noting)

    async def _note(
        self,
        facts: Sequence[NewFact],
        messages: Sequence[ModelMessage] | None,
        delivered: Sequence[InboxMessage],
        shown: Sequence[ModelMessage],
        spend: Mapping[str, Any] | None,
    ) -> tuple[dict[str, Any], ...]:
        async with self._lock:
            new = self._new(messages)
            if not facts and not new and not delivered and spend is None:
                return ()
            history, shown_history = (clean_history(each, self.scrubber) for each in (new, shown))
            if self._rec_no:
                # The first record follows no live frame that it could overtake.
                await self._outbox.flush(FLUSH_S)
            self._rec_no += 1
            recorded = await self._repeated(
                lambda: self._work.record(
                    self._start,
                    rec_no=self._rec_no,
                    facts=clean_facts([*self.meter.describe(new), *facts], self.scrubber),
                    history=history,
                    delivered=[message.seq for message in delivered],
                    shown=shown_history,
                    spend=spend,
                )
            )
            if recorded.refused is not None:
                self._rec_no -= 1
            if recorded.refused == "stop":
                self._heed(recorded)
                return ()
            if recorded.refused is not None:
                raise refusal(recorded.refused, recorded.limits, capability=(spend or {}).get("grant", ""))
            self._settle(new if recorded.stop_requested else [*new, *shown])
            self._heed(recorded)
            return recorded.limits

    async def settle(self, call: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None) -> None:
        """Say what a model's call came to; tried for a while, since it counts whoever holds the thread by now.

        A record that is under way comes first: it may be the one that sets aside what the call may come to.
        """
        async with self._lock:
            pass
        for pause in (*SETTLE_PAUSES_S, None):
            try:
                await self._work.settle(
                    call, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost
                )
                return
            except Unavailable as error:
                if pause is None:
                    # Then what was set aside counts as spent.
                    log.warning("call_not_settled", run=self._start.run, call=call, error=str(error))
                    return
                await asyncio.sleep(pause)

    def _settle(self, kept: Sequence[ModelMessage]) -> None:
        self.meter.settle(kept)
        if kept:
            self._last = kept[-1]

    def _heed(self, recorded: Recorded) -> None:
        """Take in what the answer to a record says."""
        self.seq = recorded.seq
        self.waiting = recorded.waiting > 0
        self._wires.ring(self._start.thread, recorded.seq)
        if recorded.stop_requested:
            self.stopping = True
            self._on_stop()

    async def history(self) -> list[Any]:
        """Return the thread's history as it stood when the run was claimed, as JSON values."""
        start = self._start
        return await self._repeated(lambda: self._work.history(start.thread, head=start.history_head))

    async def ledger(self, history: Sequence[ModelMessage]) -> Ledger:
        """Return what the log knows of the calls that have no result in this history."""
        calls = open_calls(history)
        if not calls:
            return EMPTY
        start = self._start
        facts = await self._repeated(lambda: self._work.call_facts(start.thread, calls=calls))
        return ledger_of(facts)

    async def partial(self, message: ModelMessage, *, current: Callable[[], bool]) -> None:
        """Keep the response in progress, in case this process dies; best effort.

        Args:
            message: what it says so far.
            current: tells whether it is still in progress once its turn has come.
        """
        async with self._lock:
            if current() and self._rec_no:
                with contextlib.suppress(ClaimLost, Unavailable):
                    await self._work.partial(self._start, clean_history([message], self.scrubber)[0])

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
        """End the run, or learn that it goes on because a message waits; then nothing was recorded.

        The final response is committed together with the end.

        Raises:
            ClaimLost: the claim is not the present one any more; whoever took it has recorded the end.
            HistoryRewritten: nobody can tell what is new in `messages`.
        """
        async with self._lock:
            facts, history = await self._last_words(messages)
            fence, n = self._outbox.position
            data = {"live": {"fence": fence, "n": n}} | ({} if output is None else {"output": output})
            ended, nudge = await self._repeated(
                lambda: self._work.end(
                    self._start,
                    status=status,
                    reason=reason,
                    error=error,
                    facts=facts,
                    history=history,
                    data=data,
                )
            )
        self.seq = ended.seq
        self._wires.announce(nudge)
        return ended

    async def pause(self, requests: Sequence[NewRequest], *, messages: Sequence[ModelMessage]) -> bool:
        """Close the attempt with requests to people; False when a stop came first.

        Raises:
            ClaimLost: the claim is not the present one any more.
            HistoryRewritten: nobody can tell what is new in `messages`.
        """
        async with self._lock:
            facts, history = await self._last_words(messages)
            requests = clean_requests(requests, self.scrubber)
            nudge = await self._repeated(
                lambda: self._work.pause(self._start, requests=requests, facts=facts, history=history)
            )
        if nudge is None:
            return False
        self.seq = nudge.seq
        self._wires.announce(nudge)
        return True

    async def hand_over(
        self,
        *,
        messages: Sequence[ModelMessage] | None,
        failed: Mapping[str, Any] | None = None,
        after: timedelta = NOW,
    ) -> HandedOver:
        """Give the run to another worker; it ends instead when a stop came first.

        Args:
            messages: the whole history so far, or None for "nothing new".
            failed: why it is tried again, if it is by that.
            after: for how long nobody takes it then.

        Raises:
            ClaimLost: the claim is not the present one any more.
            HistoryRewritten: nobody can tell what is new in `messages`.
        """
        async with self._lock:
            facts, history = await self._last_words(messages)
            done, nudge = await self._repeated(
                lambda: self._work.hand_over(
                    self._start, facts=facts, history=history, failed=failed, after=after
                )
            )
        self.seq = done.seq
        self._wires.announce(nudge)
        return done

    async def release(self, *, cause: str) -> None:
        """Give the claim up, so that the run is recorded as abandoned now rather than a ttl later.

        Raises:
            Unavailable: the database cannot be reached.
        """
        nudge = await self._work.release(self._start, cause=cause)
        if nudge is not None:
            self._wires.announce(nudge)

    async def _last_words(self, messages: Sequence[ModelMessage] | None) -> tuple[list[NewFact], list[Any]]:
        """Return what is new in the history, as facts and as JSON values, once the live frames are out."""
        new = self._new(messages)
        await self._outbox.flush(FLUSH_S)
        facts = clean_facts(self.meter.describe(new), self.scrubber)
        return facts, clean_history(new, self.scrubber)

    def _new(self, messages: Sequence[ModelMessage] | None) -> list[ModelMessage]:
        """Return what follows the last recorded message, which is looked for from the end: the agent may have dropped
        or inserted older ones."""
        if messages is None:
            return []
        if self._last is None:
            return list(messages)
        for same in (lambda message: message is self._last, lambda message: message == self._last):
            for index in range(len(messages) - 1, -1, -1):
                if same(messages[index]):
                    return list(messages[index + 1 :])
        raise HistoryRewritten

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
                    raise ClaimLost(self._start.thread, self._start.fence, away=True) from error
