"""The Runner: everything that people and programs can do with threads and runs, on any replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, get_args

from threadhold.fanout.cursor import InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery
from threadhold.fanout.hub import Hub
from threadhold.runner.app import Threadhold
from threadhold.runner.content import checked_content, checked_key
from threadhold.runner.errors import Closed, InvalidInput
from threadhold.runner.ids import canonical
from threadhold.runner.machine import is_final
from threadhold.runner.ports import MessageStore, RunStore, ThreadStore, Wires
from threadhold.runner.records import Message, OnBusy, Principal, Receipt, Run, StopReceipt, Thread, Until
from threadhold.runner.settle import settled

WAIT_MAX_S = 60.0
PAGE_MAX = 100


class Runner:
    """Sends, stops and watches. It holds no state of its own: Postgres decides, Redis hastens.

    Args:
        app: the agents that may be sent to.
        threads, messages, runs: the stores.
        wires: hints to other processes.
        hub: this process's watchers.
    """

    def __init__(
        self,
        app: Threadhold,
        *,
        threads: ThreadStore,
        messages: MessageStore,
        runs: RunStore,
        wires: Wires,
        hub: Hub,
    ) -> None:
        self.app = app
        self._threads = threads
        self._messages = messages
        self._runs = runs
        self._wires = wires
        self._hub = hub
        self._closed = False

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents that may be sent to, sorted."""
        return self.app.names

    async def create_thread(
        self,
        *,
        agent: str,
        by: Principal,
        thread: str | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Thread:
        """Make a thread, or return the one that the same call made before.

        Raises:
            UnknownAgent, ThreadExists, Unavailable, Closed.
        """
        self._check_open()
        self.app.hosted(agent)
        id = canonical(thread, "thread") if thread else self._threads.new_thread_id(by=by, key=None)
        return await self._threads.create(id, agent=agent, title=title, metadata=metadata or {}, by=by)

    async def thread(self, thread: str, *, by: Principal) -> Thread:
        """Return a thread.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._threads.get(canonical(thread, "thread"), by=by)

    async def threads(self, *, by: Principal, before: str | None = None, limit: int = 20) -> list[Thread]:
        """Return the principal's threads, newest first, at most `limit` (1 to 100), older than `before`."""
        self._check_open()
        return await self._threads.list(by=by, before=before, limit=max(1, min(limit, PAGE_MAX)))

    async def send(
        self,
        thread: str | None,
        content: str,
        *,
        by: Principal,
        key: str | None = None,
        agent: str | None = None,
        on_busy: OnBusy | None = None,
    ) -> Receipt:
        """Send a message: it starts a run, steers the running one, replies to a paused one, or waits for the next.

        Durable when it returns. With a `key` it may be repeated: the same call gets the same receipt.

        Args:
            thread: where to; None makes a thread for `agent`, the same one for the same key.
            content: the text, at most 64 KiB.
            by: who sends.
            key: at most 128 printable characters, unique per principal and thread.
            agent: whose thread to make if there is none of that id yet.
            on_busy: what a message to a busy thread means; default "steer".

        Raises:
            InvalidInput, NotFound, Forbidden, KeyConflict, ThreadExists, ThreadBusy, ThreadArchived, InboxFull,
            UnknownAgent, Unavailable, Closed.
        """
        self._check_open()
        content, key, busy = checked_content(content), checked_key(key), _checked_on_busy(on_busy)
        if thread is None and agent is None:
            raise InvalidInput("name a thread, or an agent to start one with", field="thread")
        if agent is not None:
            self.app.hosted(agent)
        target = canonical(thread, "thread") if thread else self._threads.new_thread_id(by=by, key=key)
        receipt, nudge = await self._messages.send(
            target, content, by=by, key=key, on_busy=busy, create_with=agent
        )
        self._wires.announce(nudge)
        return receipt

    async def message(self, message: str, *, by: Principal) -> Message:
        """Return a message and what has become of it: waiting, delivered to a run, or returned with a reason."""
        self._check_open()
        return await self._messages.get(message, by=by)

    async def run(self, run: str, *, by: Principal) -> Run:
        """Return a run."""
        self._check_open()
        return await self._runs.get(run, by=by)

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
        receipt, nudge = await self._runs.stop(run=run, thread=thread, by=by, key=checked_key(key))
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

    async def position(self, thread: str, *, by: Principal, after: str | None = None) -> Position:
        """Return where a watch begins, after checking that the principal may watch.

        Args:
            thread: the thread.
            by: who watches.
            after: a cursor, "start", "head", or None for the start of the current or last run.

        Raises:
            NotFound, InvalidInput, Unavailable, Closed.
        """
        self._check_open()
        id = canonical(thread, "thread")
        begin = await self._threads.start_of_watch(id, by=by, after="head" if after == "head" else None)
        if after is None or after == "head":
            return begin
        try:
            return Position() if after == "start" else parse_cursor(after)
        except InvalidCursor as error:
            raise InvalidInput(str(error), field="after") from None

    async def watch(
        self, thread: str, *, by: Principal, after: str | None = None, until: Until | None = None
    ) -> AsyncIterator[Delivery]:
        """Yield a thread's frames across its runs: each once, in order, without an unmarked gap.

        Args:
            thread: the thread.
            by: who watches; checked before the first frame.
            after: a cursor, "start", "head", or None for the start of the current or last run.
            until: "idle" ends the watch when the thread is idle or paused; None never ends by itself.

        Raises:
            NotFound, InvalidInput, Unavailable, Closed.
        """
        begin = await self.position(thread, by=by, after=after)
        async for delivery in self.frames(thread, begin, until=until):
            yield delivery

    async def frames(
        self, thread: str, begin: Position, *, until: Until | None = None
    ) -> AsyncIterator[Delivery]:
        """Yield frames after a position that `position` gave out. Access was checked there."""
        id = canonical(thread, "thread")
        async with aclosing(self._hub.watch(id, begin, until=until)) as deliveries:
            async for delivery in deliveries:
                yield delivery

    async def aclose(self) -> None:
        """Take no more calls. Watches end; runs elsewhere go on."""
        self._closed = True
        await asyncio.sleep(0)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed


def _checked_on_busy(on_busy: OnBusy | None) -> OnBusy:
    chosen: Literal["steer", "reject", "queue", "interrupt"] = on_busy or "steer"
    if chosen not in get_args(OnBusy):
        raise InvalidInput(f"on_busy is one of {', '.join(get_args(OnBusy))}", field="on_busy")
    return chosen
