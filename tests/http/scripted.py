"""A Runner whose threads live in memory and whose frames a test makes, and a server on it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid4, uuid5

import httpx

from tests.http.records import AGENT, NOW, frame_of, why_of
from tests.http.tries import ScriptedTries
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.fanout.cursor import InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery, Kind
from threadhold.fanout.merge import shows
from threadhold.runner.content import checked_content, checked_key
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import AlreadyAnswered, InvalidInput, NotFound, ThreadExists, ThreadMismatch
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import (
    Message,
    Outcome,
    Principal,
    Receipt,
    Request,
    Run,
    StopReceipt,
    Thread,
    ThreadStatus,
    WatchKind,
    Why,
    WorkerRecord,
)
from threadhold.runner.service import Runner


def delivery(thread: str, seq: int, *, kind: Kind = "fact", data: dict[str, Any] | None = None) -> Delivery:
    """Return a frame that moves a watcher to `seq`."""
    frame = frame_of(thread, seq, kind, **(data or {}))
    return Delivery(frame=frame, body=frame.body(), position=Position(seq=seq, fence=1))


@dataclass
class ScriptedRunner(ScriptedTries):
    """Has the Runner's methods."""

    items: dict[str, Thread] = field(default_factory=dict)
    frames_of: dict[str, list[Delivery]] = field(default_factory=dict)
    watching: int = 0
    stop_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    send_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)
    watch_error: Exception | None = None
    known_requests: dict[str, Request] = field(default_factory=dict)
    known_workers: list[WorkerRecord] = field(default_factory=list)
    stopped: list[StopReceipt] | None = None
    reasons: dict[str, Why] = field(default_factory=dict)

    agents: tuple[str, ...] = (AGENT, "other")

    def __post_init__(self) -> None:
        self.send_may_end.set()

    def reset(self) -> None:
        """Forget everything, as if it were new."""
        vars(self).update(vars(ScriptedRunner()))

    def add_thread(self, id: str | None = None, **changes: Any) -> str:
        """Make a thread and return its id."""
        id = id or str(uuid4())
        thread = Thread(
            id=id, workspace="default", owner="local", agent=AGENT, title=None, metadata={}, state="idle",
            status="active", current_run=None, seq=0, created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        self.items[id] = replace(thread, **changes)
        self.frames_of[id] = []
        return id

    async def publish(self, thread: str, *deliveries: Delivery) -> None:
        """Let watchers of a thread see frames."""
        self.frames_of[thread].extend(deliveries)
        async with self.grown:
            self.grown.notify_all()

    async def break_watches(self, error: Exception) -> None:
        """End all watches with an error."""
        self.watch_error = error
        async with self.grown:
            self.grown.notify_all()

    def thread_of_key(self, key: str, *, by: Principal) -> str:
        return str(uuid5(NAMESPACE_URL, checked_key(key) or ""))

    async def create_thread(
        self, *, agent: str, by: Principal, thread: str | None, execution: str | None = None, **given: Any
    ) -> Thread:
        self._called("create_thread", agent=agent, thread=thread, execution=execution, **given)
        self._hosted(agent)
        if thread in self.items and self.items[thread].agent != agent:
            raise ThreadExists(thread)
        id = thread if thread in self.items else self.add_thread(thread, execution=execution, **given)
        return self.items[id]

    async def thread(self, thread: str, *, by: Principal) -> Thread:
        self._called("thread", thread=thread)
        if thread not in self.items:
            raise NotFound("thread", thread)
        return self.items[thread]

    async def update_thread(
        self,
        thread: str,
        *,
        by: Principal,
        title: str | None,
        metadata: dict[str, Any] | None,
        status: ThreadStatus | None,
        unchanged_since: datetime | None = None,
    ) -> Thread:
        given = {"title": title, "metadata": metadata, "status": status}
        self._called("update_thread", thread=thread, unchanged_since=unchanged_since, **given)
        if thread not in self.items:
            raise NotFound("thread", thread)
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self.items[thread] = replace(self.items[thread], **changes)
        return self.items[thread]

    async def resolve_thread(
        self, thread: str | None = None, *, agent: str, by: Principal, **given: Any
    ) -> Thread:
        self._called("resolve_thread", thread=thread, agent=agent, **given)
        self._hosted(agent)
        if thread not in self.items:
            thread = self.add_thread(thread)
        if self.items[thread].agent != agent:
            raise ThreadMismatch(thread)
        added: dict[str, Any] = {name: tuple(value) for name, value in given.items() if name != "status"}
        self.items[thread] = replace(self.items[thread], **added)
        return self.items[thread]

    async def threads(self, *, by: Principal, before: str | None = None, limit: int = 20) -> list[Thread]:
        self._called("threads", before=before, limit=limit)
        newest_first = sorted(self.items.values(), key=lambda item: item.id, reverse=True)
        return [item for item in newest_first if before is None or item.id < before][:limit]

    async def send(
        self,
        thread: str | None,
        content: str,
        *,
        by: Principal,
        key: str | None = None,
        agent: str | None = None,
        on_busy: str | None = None,
    ) -> Receipt:
        self._called("send", thread=thread, content=content, key=key, agent=agent, on_busy=on_busy)
        checked_content(content)
        checked_key(key)
        if agent is not None:
            self._hosted(agent)
        if thread is None and agent is None:
            raise InvalidInput("name a thread, or an agent to start one with", field="thread")
        if thread is not None and thread not in self.items and agent is None:
            raise NotFound("thread", thread)
        target = thread if thread in self.items else self.add_thread(thread)
        await self.send_may_end.wait()
        run = None if on_busy == "queue" else "run-1"
        return Receipt(
            thread=target or "", disposition="started" if run else "queued", message="message-1", run=run,
            seq=1, duplicate=False, no_worker=False,
        )  # fmt: skip

    async def message(self, message: str, *, by: Principal) -> Message:
        self._called("message", message=message)
        if message != "message-1":
            raise NotFound("message", message)
        return Message(
            id=message, thread="t", sender="local", content="hi", disposition="started", state="delivered",
            run="run-1", reason=None, accepted_at=NOW, settled_at=NOW,
        )  # fmt: skip

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
        chosen = {"status": status, "agent": agent, "principal": principal, "thread": thread}
        self._called("runs", **chosen, before=before, limit=limit)
        newest_first = sorted(self.known_runs.values(), key=lambda run: run.id, reverse=True)
        return [
            run
            for run in newest_first
            if (before is None or run.id < before)
            and (status is None or run.status in status)
            and agent in (None, run.agent)
            and principal in (None, run.principal)
        ][:limit]

    async def why(self, run: str, *, by: Principal) -> Why:
        self._called("why", run=run)
        return self.reasons.get(run) or why_of(self._run(run))

    async def request(self, request: str, *, by: Principal) -> Request:
        self._called("request", request=request)
        if request not in self.known_requests:
            raise NotFound("request", request)
        return self.known_requests[request]

    async def requests(
        self,
        *,
        by: Principal,
        status: str | None = "open",
        thread: str | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> list[Request]:
        self._called("requests", status=status, thread=thread, before=before, limit=limit)
        newest_first = sorted(self.known_requests.values(), key=lambda each: each.id, reverse=True)
        return [
            each
            for each in newest_first
            if (before is None or each.id < before) and status in (None, each.status)
        ][:limit]

    async def answer(
        self, request: str, decision: Decision, *, by: Principal, args_hash: str | None = None
    ) -> Outcome:
        data = decision.data()
        self._called("answer", request=request, decision=data, args_hash=args_hash)
        if request not in self.known_requests:
            raise NotFound("request", request)
        asked = self.known_requests[request]
        if asked.answer not in (None, data):
            raise AlreadyAnswered(request, by=asked.answered_by or "", decision=asked.answer or {})
        status: Any = "denied" if decision.kind == "reject" else "answered"
        self.known_requests[request] = replace(asked, answer=data, answered_by=by.id, status=status)
        return Outcome(
            request=request, thread=asked.thread, run=asked.run, decision=data, by=by.id,
            duplicate=asked.answer is not None, open=0, status=RunStatus.PENDING, seq=9,
        )  # fmt: skip

    async def stop_all(
        self, *, by: Principal, agent: str | None = None, principal: str | None = None
    ) -> list[StopReceipt]:
        self._called("stop_all", agent=agent, principal=principal)
        if self.stopped is not None:
            return self.stopped
        found = [
            run
            for run in self.known_runs.values()
            if agent in (None, run.agent) and principal in (None, run.principal)
        ]
        settled = self.stop_may_end.is_set()
        return [
            StopReceipt(thread=run.thread, run=run.id, settled=settled, status=None, seq=3) for run in found
        ]

    async def workers(self, *, by: Principal) -> list[WorkerRecord]:
        self._called("workers")
        return list(self.known_workers)

    async def drain(self, worker: str, *, by: Principal) -> list[str]:
        self._called("drain", worker=worker)
        asked = [each.id for each in self.known_workers if each.id.startswith(worker)]
        if not asked:
            raise NotFound("worker", worker)
        return asked

    async def stop(
        self, *, by: Principal, run: str | None = None, thread: str | None = None, key: str | None = None,
        wait: float = 5.0,
    ) -> StopReceipt:  # fmt: skip
        self._called("stop", run=run, thread=thread, key=key, wait=wait)
        checked_key(key)
        if (run is None) == (thread is None):
            raise InvalidInput("name either a run or a thread to stop", field="run")
        if run not in {None, "run-1"}:
            raise NotFound("run", run or "")
        try:
            async with asyncio.timeout(wait):
                await self.stop_may_end.wait()
        except TimeoutError:
            return StopReceipt(thread="t", run="run-1", settled=False, status=RunStatus.RUNNING, seq=3)
        return StopReceipt(thread="t", run="run-1", settled=True, status=RunStatus.STOPPED, seq=4)

    async def position(self, thread: str, *, by: Principal, after: str | None = None) -> Position:
        self._called("position", thread=thread, after=after)
        if thread not in self.items:
            raise NotFound("thread", thread)
        if after in {None, "start"}:
            return Position()
        if after == "head":
            return Position(seq=self.items[thread].seq)
        try:
            return parse_cursor(after or "")
        except InvalidCursor as error:
            raise InvalidInput(str(error), field="after") from None

    async def frames(
        self,
        thread: str,
        begin: Position,
        *,
        until: str | None = None,
        kinds: Collection[WatchKind] | None = None,
    ) -> AsyncGenerator[Delivery, None]:
        self.calls.append(("frames", {"thread": thread, "kinds": kinds and set(kinds)}))
        next_one = 0
        self.watching += 1
        try:
            while True:
                async with self.grown:
                    while self.watch_error is None and len(self.frames_of[thread]) <= next_one:
                        await self.grown.wait()
                if self.watch_error is not None:
                    raise self.watch_error
                found = self.frames_of[thread][next_one]
                next_one += 1
                newer = found.position.seq > begin.seq or found.frame.kind == "end"
                if newer and shows(found.frame, kinds):
                    yield found
                if found.frame.kind == "end":
                    return
        finally:
            self.watching -= 1


@dataclass
class Api:
    """A running server with a client for it."""

    runner: ScriptedRunner
    server: ApiServer
    drain: asyncio.Event
    client: httpx.AsyncClient
    serving: asyncio.Task[None]

    @property
    def ws(self) -> str:
        """Where the WebSocket is."""
        return f"ws://127.0.0.1:{self.server.port}/v1/ws"


@asynccontextmanager
async def serving(
    *, health: Health | None = None, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Api]:
    """Serve a scripted Runner on a free port for as long as the block lasts."""
    runner, drain = ScriptedRunner(), asyncio.Event()
    app = create_api(
        cast(Runner, runner), health=lambda: health or Health(), drain=drain, limits=limits, **options
    )
    server = ApiServer(app, listening=listen("127.0.0.1", 0), drain=drain)
    task = asyncio.create_task(server.serve())
    # The socket listens already, so a request that comes too early waits for the server.
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=10) as client:
        try:
            yield Api(runner=runner, server=server, drain=drain, client=client, serving=task)
        finally:
            runner.stop_may_end.set()
            server.should_exit = True
            await task


async def until(condition: Any, *, within: float = 5.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)
