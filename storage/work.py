"""Runs as workers handle them: claim, record, end, give up, sweep."""

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import structlog

from threadhold.runner.admitting import PLAIN, Admitting
from threadhold.runner.decisions import NewRequest
from threadhold.runner.errors import ClaimLost, Unavailable
from threadhold.runner.machine import RunStatus, StopReason
from threadhold.runner.records import (
    Ended,
    HandedOver,
    InboxMessage,
    NewFact,
    Nudge,
    Principal,
    Recorded,
    Start,
)
from threadhold.runner.tally import UNTOLD, Tally, tell_model_calls
from threadhold.storage.encoding import (
    asked_of,
    facts_of,
    history_of,
    inbox_of,
    json_of,
    nudge_of,
    refusal_of,
    start_of,
)
from threadhold.storage.ids import new_id
from threadhold.storage.membership import Membership
from threadhold.storage.pool import Database

log = structlog.get_logger(__name__)

# Whoever has just taken a thread must not wait long for what is only counted.
TELL_S: Final = 0.5
SOON: Final = timedelta(seconds=1)


class PostgresWork(Membership):
    """The `WorkStore` on Postgres, for one worker.

    Args:
        database: the pool.
        worker: this worker's id, unique to this incarnation of the process.
        ttl: how long a claim lasts without a renewal.
        tally: hears what was committed here.
        admitting: what a thread that code of one's own holds is admitted with.
    """

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        ttl: timedelta,
        tally: Tally = UNTOLD,
        admitting: Admitting = PLAIN,
    ) -> None:
        super().__init__(database, worker=worker)
        self._admitting = admitting
        self._ttl = ttl
        self._tally = tally

    async def claim(
        self, thread: str, *, agents: Mapping[str, int], start_key: str, hinted: bool = False
    ) -> tuple[Start | None, Nudge | None]:
        """Take a thread and start its pending run."""
        row = await self._database.row(
            "claim",
            UUID(thread),
            list(agents),
            list(agents.values()),
            self._worker,
            UUID(start_key),
            self._ttl,
            hinted,
            new_id(),
        )
        start = start_of(thread, row) if row["outcome"] == "started" else None
        if start is not None and start.attempt == 1:
            self._tally.run_started(start.agent, waited_s=row["waited_s"] or 0.0)
        if not row["lapsed"]:
            return start, None
        await self._tell_left({UUID(thread): row["lapsed"]})
        return start, Nudge(thread=thread, seq=row["seq"])

    async def hold(self, thread: str, *, by: Principal, start_key: str) -> tuple[Start, Nudge]:
        """Take an idle thread for code of one's own."""
        row = await self._database.row(
            "hold",
            by.workspace,
            by.id,
            sorted(by.roles),
            UUID(thread),
            self._worker,
            UUID(start_key),
            self._ttl,
            new_id(),
            new_id(),
            json_of(self._admitting.of(by)),
        )
        if row["outcome"] != "held":
            raise refusal_of(thread, row["outcome"])
        self._tally.run_started(row["agent"], waited_s=0.0)
        start = Start(
            workspace=by.workspace,
            thread=thread,
            run=str(row["run"]),
            agent=row["agent"],
            principal=by.id,
            roles=by.roles,
            attempt=1,
            claim_id=str(row["claim_id"]),
            fence=row["fence"],
            history_head=row["history_head"],
            seq=row["seq"],
            fresh=True,
            inbox=(),
            interface=by.interface,
            environment=self._admitting.environment,
        )
        return start, Nudge(thread=thread, seq=row["seq"])

    async def history(self, thread: str, *, head: int) -> list[Any]:
        """Return the thread's messages as JSON values."""
        if head == 0:
            return []
        rows = await self._database.rows("history", UUID(thread), head)
        return [message for row in rows for message in json.loads(row["messages"])]

    async def record(
        self,
        start: Start,
        *,
        rec_no: int,
        facts: Sequence[NewFact],
        history: Sequence[Any] = (),
        delivered: Sequence[int] = (),
        shown: Sequence[Any] = (),
        spend: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """Record what the run did, under its claim."""
        row = await self._database.row(
            "record",
            UUID(start.thread),
            UUID(start.claim_id),
            rec_no,
            facts_of(facts),
            history_of(history),
            list(delivered),
            history_of(shown),
            None if spend is None else json_of(spend),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)
        if row["outcome"] == "ok":
            tell_model_calls(self._tally, start.agent, facts)
        return Recorded(
            seq=row["seq"],
            waiting=row["waiting"],
            stop_requested=row["stop"],
            refused=None if row["outcome"] == "ok" else row["outcome"],
            limits=tuple(json.loads(row["limits"] or "[]")),
        )

    async def settle(self, call: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None) -> None:
        """Say what a model's call came to."""
        await self._database.row("settle", UUID(call), input_tokens, output_tokens, cost)

    async def inbox(self, start: Start) -> list[InboxMessage]:
        """Return the messages that wait for this run."""
        row = await self._database.row("inbox", UUID(start.thread), UUID(start.claim_id))
        if row[0] is None:
            raise ClaimLost(start.thread, start.fence)
        return list(inbox_of(row[0]))

    async def end(
        self,
        start: Start,
        *,
        status: RunStatus,
        reason: str | None = None,
        error: dict[str, Any] | None = None,
        cause: str | None = None,
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
        data: dict[str, Any],
    ) -> tuple[Ended, Nudge]:
        """End the run, or learn that it goes on."""
        row = await self._database.row(
            "end_run",
            UUID(start.thread),
            UUID(start.run),
            UUID(start.claim_id),
            status,
            reason,
            json_of(error) if error else None,
            cause,
            facts_of(facts),
            history_of(history),
            json_of(data),
            new_id(),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)
        if row["outcome"] == "ended":
            tell_model_calls(self._tally, start.agent, facts)
            await self._tell_end(start, row, status=row["status"], reason=reason)
        nudge = nudge_of(start.thread, row, run=row["next_run"])
        ended = Ended(
            outcome=row["outcome"],
            status=RunStatus(row["status"]) if row["status"] else None,
            seq=row["seq"],
            next_run=nudge.run,
        )
        return ended, nudge

    async def pause(
        self,
        start: Start,
        *,
        requests: Sequence[NewRequest],
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
    ) -> Nudge | None:
        """Close the attempt with requests to people; None when a stop came first."""
        row = await self._database.row(
            "pause",
            UUID(start.thread),
            UUID(start.run),
            UUID(start.claim_id),
            json_of([asked_of(request) for request in requests]),
            facts_of(facts),
            history_of(history),
        )
        if row["outcome"] == "fenced":
            raise ClaimLost(start.thread, start.fence)
        if row["outcome"] == "stop":
            return None
        tell_model_calls(self._tally, start.agent, facts)
        return Nudge(thread=start.thread, seq=row["seq"])

    async def hand_over(
        self,
        start: Start,
        *,
        facts: Sequence[NewFact] = (),
        history: Sequence[Any] = (),
        failed: Mapping[str, Any] | None = None,
        after: timedelta = SOON,
    ) -> tuple[HandedOver, Nudge]:
        """Give the run to another worker, or end it when it was asked to stop."""
        row = await self._database.row(
            "hand_over",
            UUID(start.thread),
            UUID(start.run),
            UUID(start.claim_id),
            facts_of(facts),
            history_of(history),
            new_id(),
            None if failed is None else json_of(failed),
            after,
        )
        if row["outcome"] not in ("handed_over", "stopped"):
            raise ClaimLost(start.thread, start.fence)
        tell_model_calls(self._tally, start.agent, facts)
        if row["outcome"] == "stopped":
            await self._tell_end(start, row, status=RunStatus.STOPPED, reason=None)
        # One that is to wait is found by those who look for what nobody took.
        waits = failed is not None and row["outcome"] == "handed_over"
        nudge = nudge_of(start.thread, row, run=None if waits else row["next_run"])
        return HandedOver(outcome=row["outcome"], seq=row["seq"]), nudge

    async def partial(self, start: Start, message: Any) -> None:
        """Keep the response in progress, in case this process dies."""
        row = await self._database.row("partial", UUID(start.thread), UUID(start.claim_id), json_of(message))
        if not row[0]:
            raise ClaimLost(start.thread, start.fence)

    async def holds(self, start: Start) -> bool:
        """Tell whether this claim is the thread's present one."""
        row = await self._database.row("holds", UUID(start.thread), UUID(start.claim_id))
        return bool(row[0])

    async def call_facts(self, thread: str, *, calls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the thread's facts about these tool calls."""
        rows = await self._database.rows("call_facts", UUID(thread), list(calls))
        return [{"fact": row["kind"], **json.loads(row["data"])} for row in rows]

    async def release(self, start: Start, *, cause: str) -> Nudge | None:
        """Give the claim up early."""
        row = await self._database.row("release", UUID(start.thread), UUID(start.claim_id), cause, new_id())
        if row["outcome"] == "fenced":
            return None
        await self._tell_left({UUID(start.thread): row["outcome"]})
        return Nudge(thread=start.thread, seq=row["seq"], agent=start.agent, run=start.run)

    async def pending(self, *, agents: Sequence[str], limit: int) -> list[str]:
        """Return threads whose pending run nobody took yet."""
        rows = await self._database.rows("pending", list(agents), limit)
        return [str(row[0]) for row in rows]

    async def sweep(self, *, limit: int, dead: Sequence[str] = ()) -> list[Nudge]:
        """Take lapsed threads and answer expired requests, one short transaction each.

        A thread that cannot be taken does not keep the others.
        """
        left: dict[UUID, str] = {}
        nudges = await self._each("lapsed", functools.partial(self._lapse, left=left), limit)
        for holder in dead:
            act = functools.partial(self._lapse, left=left, dead=holder)
            nudges += await self._each("claims_of", act, holder, limit)
        self._tally.swept(lapsed=len(left))
        await self._tell_left(left)
        return nudges + await self._each("expired", self._expire, limit)

    async def _tell_end(self, start: Start, row: Any, *, status: str, reason: str | None) -> None:
        """Count an end that a worker has recorded.

        Why a run was stopped is read after the end: the statement that ends it may have waited for the stop, and still
        sees what was there before.
        """
        if status == RunStatus.STOPPED:
            reason = reason or StopReason.PERSON
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(TELL_S):
                    reason = (await self._database.row("how_ended", UUID(start.run)))["reason"]
        told = None if status == RunStatus.COMPLETED else reason
        self._tally.run_ended(start.agent, status=str(status), reason=told, lasted_s=row["lasted_s"])

    async def _tell_left(self, left: Mapping[UUID, str]) -> None:
        """Count what the holders of these threads left; that the rows cannot be read now is no reason to fail."""
        if not left:
            return
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(TELL_S):
                rows = await self._database.rows("left_behind", list(left))
            for row in rows:
                self._tally.attempt_abandoned(row["cause"])
                # A run that goes on may have ended elsewhere by now, where it was counted.
                if left[row["thread_id"]] != RunStatus.PENDING:
                    self._tally.run_ended(
                        row["agent"], status=row["status"], reason=row["reason"], lasted_s=row["lasted_s"]
                    )

    async def _each(
        self, listing: str, act: Callable[[UUID], Awaitable[Nudge | None]], *args: Any
    ) -> list[Nudge]:
        nudges = []
        for (thread,) in await self._database.rows(listing, *args):
            try:
                nudge = await act(thread)
            except asyncpg.PostgresError as error:
                kind, detail = type(error).__name__, str(error)[:200]
                log.error("sweep_step_failed", step=listing, thread=str(thread), error=kind, detail=detail)
                continue
            if nudge is not None:
                nudges.append(nudge)
        return nudges

    async def _lapse(
        self, thread: UUID, *, dead: str | None = None, left: dict[UUID, str] | None = None
    ) -> Nudge | None:
        """Take a lapsed thread, or one of a dead holder, and note what was left in `left`."""
        row = await self._database.row("lapse", thread, new_id(), dead)
        if row["result"] is None:
            return None
        if left is not None:
            left[thread] = row["result"]
        log.warning("claim_lapsed", thread=str(thread), outcome=row["result"])
        return nudge_of(str(thread), row, run=row["run"])

    async def _expire(self, thread: UUID) -> Nudge | None:
        row = await self._database.row("expire", thread)
        if not row["expired"]:
            return None
        for _ in range(row["expired"]):
            self._tally.request_answered("expired")
        log.info("requests_expired", thread=str(thread), count=row["expired"])
        return nudge_of(str(thread), row, run=row["run"])
