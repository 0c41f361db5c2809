"""The part of the Runner that is about runs and workers: what is in progress, why, and how to make it stop or move."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from threadhold.fanout.hub import Hub
from threadhold.runner.content import checked_key
from threadhold.runner.errors import DecideFirst, Forbidden, InvalidInput, NotFound, OperatorsOnly
from threadhold.runner.machine import RunStatus, is_active, is_final
from threadhold.runner.ports import RequestStore, RunStore, ThreadStore, Wires
from threadhold.runner.principals import checked_id
from threadhold.runner.records import Principal, Run, StopReceipt, Why, WorkerRecord
from threadhold.runner.reviewing import PAGE_MAX, Reviewing
from threadhold.runner.settle import at_rest, settled
from threadhold.runner.spans import span
from threadhold.runner.states import governance_state

STOP_PAGES_MAX: Final = 100
REQUESTS_MAX: Final = 1000
WAIT_MAX_S: Final = 60.0
ACTIVE: Final = tuple(status for status in RunStatus if is_active(status))


class Operating(Reviewing):
    """Looks at runs, explains them and stops them; each call is checked like any other."""

    _threads: ThreadStore
    _runs: RunStore
    _requests: RequestStore
    _wires: Wires
    _hub: Hub

    async def run(self, run: str, *, by: Principal) -> Run:
        """Return a run."""
        self._check_open()
        return await self._runs.get(run, by=by)

    async def rested(self, run: str, *, by: Principal, wait: float) -> Run:
        """Return a run once it has ended or waits for people, or as it is after `wait` seconds (at most 60).

        Raises:
            NotFound, Unavailable, Closed.
        """
        found = await self.run(run, by=by)
        wait = max(0.0, min(wait, WAIT_MAX_S))
        await at_rest(self._hub, self._runs, self._threads, found, by=by, wait=wait)
        return await self.run(run, by=by)

    async def runs(
        self,
        *,
        by: Principal,
        status: Sequence[RunStatus] | None = None,
        agent: str | None = None,
        principal: str | None = None,
        thread: str | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> list[Run]:
        """Return runs that `by` may see, newest first.

        Args:
            by: who asks.
            status: only those in one of these.
            agent: only those of this agent.
            principal: only those that act for this principal.
            thread: only those on this thread.
            before: only those older than this run.
            limit: how many at most, 1 to 100.

        Raises:
            InvalidInput, Unavailable, Closed.
        """
        self._check_open()
        return await self._runs.list(
            by=by,
            status=status,
            agent=agent,
            principal=None if principal is None else checked_id(principal, "principal"),
            thread=thread,
            before=before,
            limit=max(1, min(limit, PAGE_MAX)),
        )

    async def why(self, run: str, *, by: Principal) -> Why:
        """Explain where a run stands, and what has become of those who held it.

        Raises:
            NotFound, Unavailable, Closed.
        """
        found = await self.run(run, by=by)
        attempts, tools, known, requests = await asyncio.gather(
            self._runs.attempts(found.id),
            self._runs.tools(found.id),
            self._runs.explain(found.id),
            self._requests.list(by=by, status=None, thread=found.thread, before=None, limit=REQUESTS_MAX),
        )
        own = tuple(request for request in requests if request.run == found.id)
        state = governance_state(found, own)
        return Why(run=found, attempts=tuple(attempts), tools=tools, requests=own, state=state, **known)

    async def stop(
        self,
        *,
        by: Principal,
        run: str | None = None,
        thread: str | None = None,
        key: str | None = None,
        wait: float = 5.0,
    ) -> StopReceipt:
        """Stop a run, or whatever runs on a thread now. Recorded first; then waits up to `wait` seconds for the end.

        Repeating it changes nothing. A stop by `run` never hits a later run; one by `thread` needs a `key` for that.

        Raises:
            InvalidInput, NotFound, Forbidden, Unavailable, Closed.
        """
        self._check_open()
        if (run is None) == (thread is None):
            raise InvalidInput("name either a run or a thread to stop", field="run")
        with span("stop", run=run, thread=thread) as tell:
            receipt, nudge = await self._runs.stop(run=run, thread=thread, by=by, key=checked_key(key))
            tell(thread=receipt.thread, run=receipt.run, settled=receipt.settled)
        self._wires.announce(nudge)
        if receipt.run is None:
            return receipt
        if not receipt.settled:
            await settled(self._hub, self._runs, receipt, by=by, wait=max(0.0, min(wait, WAIT_MAX_S)))
        return await self._stop_receipt(receipt, by=by)

    async def _stop_receipt(self, receipt: StopReceipt, *, by: Principal) -> StopReceipt:
        """Return the receipt with how things stand now."""
        assert receipt.run is not None
        run, thread, tools = await asyncio.gather(
            self._runs.get(receipt.run, by=by),
            self._threads.get(receipt.thread, by=by),
            self._runs.tools(receipt.run),
        )
        return replace(receipt, settled=is_final(run.status), status=run.status, seq=thread.seq, tools=tools)

    async def stop_all(
        self, *, by: Principal, agent: str | None = None, principal: str | None = None
    ) -> list[StopReceipt]:
        """Ask every run in progress that `by` may see to stop, newest first, at most 10,000.

        Does not wait for their ends. One that `by` cannot stop is left out.

        Args:
            by: who asks.
            agent: only the runs of this agent.
            principal: only the runs that act for this principal; other people than oneself are for operators.

        Raises:
            OperatorsOnly, InvalidInput, Unavailable, Closed.
        """
        if principal not in (None, by.id):
            self._check_operator(by, "stop all runs of somebody else")
        receipts: list[StopReceipt] = []
        before = None
        for _ in range(STOP_PAGES_MAX):
            page = await self.runs(
                by=by, status=ACTIVE, agent=agent, principal=principal, before=before, limit=PAGE_MAX
            )
            for run in page:
                with suppress(Forbidden, NotFound, DecideFirst):
                    receipts.append(await self.stop(by=by, run=run.id, wait=0.0))
            if len(page) < PAGE_MAX:
                break
            before = page[-1].id
        return receipts

    async def workers(self, *, by: Principal) -> list[WorkerRecord]:
        """Return the workers that were seen in the last minute; for operators.

        Raises:
            OperatorsOnly, Unavailable, Closed.
        """
        self._check_operator(by, "list workers")
        return await self._runs.workers()

    async def drain(self, worker: str, *, by: Principal) -> list[str]:
        """Ask the workers of this id or name to hand their runs over and leave; for operators.

        Raises:
            NotFound, OperatorsOnly, Unavailable, Closed.
        """
        self._check_operator(by, "drain a worker")
        asked = await self._runs.drain(worker)
        if not asked:
            raise NotFound("worker", worker)
        return asked

    def _check_operator(self, by: Principal, verb: str) -> None:
        self._check_open()
        if "operator" not in by.roles:
            raise OperatorsOnly(verb)
