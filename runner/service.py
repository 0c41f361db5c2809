"""The Runner: everything that people and programs can do with threads and runs, on any replica."""

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, get_args

from threadhold.fanout.cursor import InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery
from threadhold.fanout.hub import Hub
from threadhold.runner.accounting import Accounting
from threadhold.runner.app import Threadhold
from threadhold.runner.content import (
    checked_content,
    checked_key,
    checked_kinds,
    checked_metadata,
    checked_title,
)
from threadhold.runner.decisions import Decision, RequestStatus
from threadhold.runner.errors import InvalidInput, RequestClosed
from threadhold.runner.grant_ports import GrantStore
from threadhold.runner.holding import Holding, ThreadClaim
from threadhold.runner.ids import canonical
from threadhold.runner.ports import (
    ExecutionStore,
    LogStore,
    MessageStore,
    RequestStore,
    RunStore,
    ThreadStore,
    Wires,
)
from threadhold.runner.records import (
    Message,
    OnBusy,
    Outcome,
    Principal,
    Receipt,
    Request,
    Thread,
    ThreadStatus,
    Until,
    WatchKind,
)
from threadhold.runner.reviewing import PAGE_MAX
from threadhold.runner.spans import span
from threadhold.runner.spend import SpendStore


class Runner(Accounting):
    """Sends, stops and watches. It holds no state of its own: Postgres decides, Redis hastens.

    Args:
        app: the agents that may be sent to.
        threads, messages, runs, requests, log, executions, grants, spend: the stores.
        holding: takes threads for code of this process.
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
        requests: RequestStore,
        log: LogStore,
        executions: ExecutionStore,
        grants: GrantStore,
        spend: SpendStore,
        holding: Holding,
        wires: Wires,
        hub: Hub,
    ) -> None:
        self.app = app
        self._threads = threads
        self._messages = messages
        self._runs = runs
        self._requests = requests
        self._log = log
        self._executions = executions
        self._grants = grants
        self._spend = spend
        self._holding = holding
        self._wires = wires
        self._hub = hub

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents that may be sent to, sorted."""
        return self.app.names

    def thread_of_key(self, key: str, *, by: Principal) -> str:
        """Return the id of the thread that belongs to a key of this principal's, whether it is there yet or not.

        Raises:
            InvalidInput: it is no key.
        """
        return self._threads.new_thread_id(by=by, key=checked_key(key))

    async def create_thread(
        self,
        *,
        agent: str,
        by: Principal,
        thread: str | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        execution: str | None = None,
    ) -> Thread:
        """Make a thread, or return the one that the same call made before; `execution` says to which it belongs.

        Raises:
            InvalidInput, NotFound, UnknownAgent, ThreadExists, Unavailable, Closed.
        """
        self._check_open()
        title, metadata = checked_title(title), checked_metadata(metadata)
        self.app.hosted(agent)
        id = canonical(thread, "thread") if thread else self._threads.new_thread_id(by=by, key=None)
        if execution is not None:
            execution = (await self._executions.find(canonical(execution, "execution"), by=by)).id
        return await self._threads.create(
            id, agent=agent, title=title, metadata=metadata or {}, execution=execution, by=by
        )

    async def thread(self, thread: str, *, by: Principal) -> Thread:
        """Return a thread.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._threads.get(canonical(thread, "thread"), by=by)

    async def update_thread(
        self,
        thread: str,
        *,
        by: Principal,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        status: ThreadStatus | None = None,
        unchanged_since: datetime | None = None,
    ) -> Thread:
        """Change what people see of a thread; an archived one takes no messages any more, for good.

        Args:
            thread: which.
            by: who changes it.
            title, metadata, status: what it is to be; None leaves a thing as it is.
            unchanged_since: the thread's `updated_at` as the caller saw it; whatever happened since refuses the change.

        Raises:
            InvalidInput, NotFound, Forbidden, ThreadChanged, ThreadBusy, ThreadArchived, Unavailable, Closed.
        """
        self._check_open()
        title, metadata = checked_title(title), checked_metadata(metadata)
        if status is not None and status not in get_args(ThreadStatus):
            raise InvalidInput(f"status is one of {', '.join(get_args(ThreadStatus))}", field="status")
        id = canonical(thread, "thread")
        return await self._threads.update(
            id, title=title, metadata=metadata, status=status, unchanged_since=unchanged_since, by=by
        )

    async def threads(self, *, by: Principal, before: str | None = None, limit: int = 20) -> list[Thread]:
        """Return the principal's threads by id, the highest first, at most `limit` (1 to 100), below `before`."""
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

        Durable when it returns. With a `key` it may be repeated: the same call gets the same receipt, with the run that
        the message stands in by then.

        Args:
            thread: where to; None makes a thread for `agent`, the same one for the same key.
            content: the text, at most 64 KiB.
            by: who sends.
            key: at most 128 printable characters, unique per principal and thread.
            agent: whose thread to make if there is none of that id yet.
            on_busy: what a message to a busy thread means; default as the agent has it, "steer" if it does not say.

        Raises:
            InvalidInput, NotFound, Forbidden, KeyConflict, ThreadExists, ThreadBusy, ThreadArchived, InboxFull,
            UnknownAgent, Unavailable, Closed.
        """
        self._check_open()
        content, key = checked_content(content), checked_key(key)
        if thread is None and agent is None:
            raise InvalidInput("name a thread, or an agent to start one with", field="thread")
        if agent is not None:
            self.app.hosted(agent)
        target = canonical(thread, "thread") if thread else self._threads.new_thread_id(by=by, key=key)
        busy = _checked_on_busy(on_busy or await self._on_busy(target, agent, by))
        with span("send", thread=target) as tell:
            receipt, nudge = await self._messages.send(
                target, content, by=by, key=key, on_busy=busy, create_with=agent
            )
            tell(
                message=receipt.message,
                run=receipt.run,
                disposition=receipt.disposition,
                duplicate=receipt.duplicate,
            )
        self._wires.announce(nudge)
        return receipt

    async def _on_busy(self, thread: str, agent: str | None, by: Principal) -> OnBusy:
        """Return what the thread's agent says; it is looked up only if some agent of this app does not steer."""
        if all(self.app.hosted(name).on_busy == "steer" for name in self.app.names):
            return "steer"
        name = agent or (await self._threads.get(thread, by=by)).agent
        return self.app.hosted(name).on_busy if name in self.app.names else "steer"

    async def message(self, message: str, *, by: Principal) -> Message:
        """Return a message and what has become of it: waiting, delivered to a run, or returned with a reason."""
        self._check_open()
        return await self._messages.get(message, by=by)

    async def request(self, request: str, *, by: Principal) -> Request:
        """Return a request."""
        self._check_open()
        return await self._requests.get(request, by=by)

    async def requests(
        self,
        *,
        by: Principal,
        status: RequestStatus | None = "open",
        thread: str | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> list[Request]:
        """Return requests that the principal may see, newest first, at most `limit` (1 to 100), older than `before`."""
        self._check_open()
        limit = max(1, min(limit, PAGE_MAX))
        return await self._requests.list(by=by, status=status, thread=thread, before=before, limit=limit)

    async def answer(
        self, request: str, decision: Decision, *, by: Principal, args_hash: str | None = None
    ) -> Outcome:
        """Answer a request, once; the run goes on when it was the last open one.

        Durable when it returns. The same person's same answer again returns what was recorded.

        Args:
            request: its id.
            decision: approve, edit or reject for an approval, reply or reject otherwise.
            by: who decides.
            args_hash: of the arguments that were looked at; another one is refused.

        Raises:
            InvalidInput, NotFound, Forbidden, OwnRequest, WrongDecision, ArgsChanged, AlreadyAnswered, RequestClosed,
            Unavailable, Closed.
        """
        self._check_open()
        with span("answer", request=request, decision=decision.kind) as tell:
            outcome, nudge = await self._requests.answer(request, decision, by=by, args_hash=args_hash)
            if isinstance(outcome, RequestClosed):
                self._wires.announce(nudge)
                raise outcome
            tell(thread=outcome.thread, run=outcome.run, open=outcome.open, duplicate=outcome.duplicate)
        self._wires.announce(nudge)
        return outcome

    @asynccontextmanager
    async def claim(self, thread: str, *, by: Principal) -> AsyncIterator[ThreadClaim]:
        """Hold an idle thread for code of one's own: `async with runner.claim(thread, by=me) as claim:`.

        It is a run of kind `direct` on the record, with the same claim as an agent's: nobody else runs the thread, a
        message waits for the run after it, and a stop or a lost claim sets `claim.lost`.

        Raises:
            NotFound, Forbidden, ThreadArchived, ThreadBusy, Unavailable, Closed.
        """
        self._check_open()
        async with self._holding.claim(canonical(thread, "thread"), by=by) as claim:
            yield claim

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
        self,
        thread: str,
        *,
        by: Principal,
        after: str | None = None,
        until: Until | None = None,
        kinds: Collection[WatchKind] | None = None,
    ) -> AsyncIterator[Delivery]:
        """Yield a thread's frames across its runs: each once, in order, without an unmarked gap.

        Args:
            thread: the thread.
            by: who watches; checked before the first frame.
            after: a cursor, "start", "head", or None for the start of the current or last run.
            until: "idle" ends the watch when the thread is idle or paused; None never ends by itself.
            kinds: which frames to yield; None for all. `head`, `end` and the gaps that concern these kinds always
                come, and `attempt` with the live ones.

        Raises:
            NotFound, InvalidInput, Unavailable, Closed.
        """
        chosen = checked_kinds(kinds)
        begin = await self.position(thread, by=by, after=after)
        async for delivery in self.frames(thread, begin, until=until, kinds=chosen):
            yield delivery

    async def frames(
        self,
        thread: str,
        begin: Position,
        *,
        until: Until | None = None,
        kinds: Collection[WatchKind] | None = None,
    ) -> AsyncIterator[Delivery]:
        """Yield frames after a position that `position` gave out. Access was checked there."""
        id, chosen = canonical(thread, "thread"), checked_kinds(kinds)
        async with aclosing(self._hub.watch(id, begin, until=until, kinds=chosen)) as deliveries:
            async for delivery in deliveries:
                yield delivery

    async def aclose(self) -> None:
        """Take no more calls. Watches end; runs elsewhere go on."""
        self._closed = True
        await self._holding.aclose()


def _checked_on_busy(on_busy: OnBusy) -> OnBusy:
    if on_busy not in get_args(OnBusy):
        raise InvalidInput(f"on_busy is one of {', '.join(get_args(OnBusy))}", field="on_busy")
    return on_busy
