"""Tools that other processes carry out: this process asks, waits, and tells the agent what it would have got here.

The database is the truth about each call; what is published only makes it quick. Nobody carries a call out again: where
it cannot be known what became of one, the model is told so.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import uuid4

import structlog
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import DurableRunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from threadhold.claims.clock import Clock, now
from threadhold.runner.bindings import Binding
from threadhold.runner.credentials import present_secrets
from threadhold.runner.errors import Unavailable
from threadhold.runner.records import Start
from threadhold.runner.remote_records import TIMEOUT, RemoteAsk, RemoteEnd, nobody_took, result_of

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
ASK_AGAIN_S: Final = 0.25
# An executor says once a second that it lives. Who has been silent for so long is dead, or as good as that.
SILENT: Final = timedelta(seconds=10)
# After an outage of the database of so many seconds, executors get some time to show that they live.
OUTAGE_S: Final = 4.0
COMEBACK_S: Final = 5.0
# An executor ends a call when its time is over, and may take so much longer to say so.
SAYING_S: Final = 5.0
CLOSE_WAIT_S: Final = 1.0


class RemoteStore(Protocol):
    """Where calls are asked for."""

    async def ask(self, start: Start, ask: RemoteAsk) -> None:
        """Ask for a call, repeatably by its id.

        Raises:
            ClaimLost: the claim is not the present one.
        """
        ...

    async def ended(self, ids: Sequence[str], *, silent: timedelta | None) -> dict[str, RemoteEnd]:
        """Return how those of these calls came out that have ended.

        A call whose executor was silent for so long is lost; None judges nobody.
        """
        ...

    async def give_up(self, start: Start, id: str, *, running: bool) -> tuple[RemoteEnd | None, str | None]:
        """Give a call up, with `running` also one that was taken.

        Returns how it had come out, if it had, and who has taken it, if anybody has.
        """
        ...


class RemoteWires(Protocol):
    """Hints to executors; they may be lost."""

    def asked(self, queue: str, id: str) -> None:
        """Wake an executor of a queue for a call."""
        ...

    def dropped(self, executor: str, id: str) -> None:
        """Tell an executor that nobody waits for a call any more."""
        ...


class Remote:
    """The calls that this process waits for.

    Args:
        store: where they are asked for.
        wires: hints to executors.
        clock: seconds.
    """

    def __init__(self, store: RemoteStore, wires: RemoteWires, *, clock: Clock = now) -> None:
        self._store = store
        self._wires = wires
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[RemoteEnd]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._looked = clock()
        self._judge_from = clock()
        self._tasks: set[asyncio.Task[None]] = set()

    def tools(self, start: Start, tools: Mapping[str, Binding]) -> "RemoteTools | None":
        """Return what lets executors carry out those of an attempt's tools that are bound to some, if any are."""
        bound = {name: binding for name, binding in tools.items() if binding.executor is not None}
        return RemoteTools(self, start, bound) if bound else None

    def hear(self, id: str) -> None:
        """Look at once: a call is said to have ended."""
        if id in self._waiting:
            self._look_now.set()

    async def carried_out(self, start: Start, ask: RemoteAsk) -> Any:
        """Let an executor carry a call out, and return what the tool has returned.

        Raises:
            ClaimLost: the claim is not the present one; nobody was asked.
            Exception: what `result_of` raises, or that nobody took the call.
        """
        self._waiting[ask.id] = asyncio.get_running_loop().create_future()
        try:
            end = await self._ended(start, ask)
        except asyncio.CancelledError:
            self._spawn(self._drop(start, ask.id))
            raise
        finally:
            del self._waiting[ask.id]
        return result_of(end, timeout=ask.timeout)

    async def _ended(self, start: Start, ask: RemoteAsk) -> RemoteEnd:
        """Return how a call came out, at the latest a little after its time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ask.timeout):
                await self._ask(start, ask)
                return await asyncio.shield(self._waiting[ask.id])
        end, executor = await self._give_up(start, ask.id, running=False)
        if end is None and executor is None:
            raise nobody_took(ask.queue, timeout=ask.timeout)
        if end is None:
            # Its executor is just ending it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAYING_S):
                    return await asyncio.shield(self._waiting[ask.id])
            end, _ = await self._give_up(start, ask.id, running=True)
        return end or TIMEOUT

    async def _ask(self, start: Start, ask: RemoteAsk) -> None:
        while True:
            try:
                await self._store.ask(start, ask)
                break
            except Unavailable:
                # Whoever cancels this when the claim is lost ends it.
                await asyncio.sleep(ASK_AGAIN_S)
        self._wires.asked(ask.queue, ask.id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="remote calls")

    async def _look(self) -> None:
        """See which calls have ended, as long as anybody waits for one."""
        failing = False
        while self._waiting:
            self._look_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look_now.wait()
            try:
                ended = await self._store.ended(list(self._waiting), silent=self._judged())
            except Unavailable as error:
                if not failing:
                    log.warning("remote_calls_unknown", detail=str(error))
                failing = True
                continue
            failing, self._looked = False, self._clock()
            for id, end in ended.items():
                if (waiting := self._waiting.get(id)) is not None and not waiting.done():
                    waiting.set_result(end)

    def _judged(self) -> timedelta | None:
        """Return how long a silence means death; None right after an outage, which executors have had as well."""
        at = self._clock()
        if at - self._looked > OUTAGE_S:
            self._judge_from = at + COMEBACK_S
        return SILENT if at >= self._judge_from else None

    async def _give_up(self, start: Start, id: str, *, running: bool) -> tuple[RemoteEnd | None, str | None]:
        """Give a call up; return how it had come out, if it had, and who has taken it, if anybody has."""
        try:
            end, executor = await self._store.give_up(start, id, running=running)
        except Unavailable:
            # Nobody can tell. If an executor has it, that one sees that the run is stopped, or that the claim is lost.
            return TIMEOUT, None
        if running and end is None and executor is not None:
            self._wires.dropped(executor, id)
        return end, executor

    async def _drop(self, start: Start, id: str) -> None:
        await self._give_up(start, id, running=True)

    def _spawn(self, acting: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(acting)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Let what is under way finish, for at most a second."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_WAIT_S)
        for task in (*self._tasks, *([] if self._looking is None else [self._looking])):
            task.cancel()


class RemoteTools(AbstractCapability[Any]):
    """Lets executors carry out tools of one attempt.

    Args:
        remote: the calls of this process.
        start: the run and its claim.
        tools: those that are bound to an executor, by their names.
    """

    def __init__(self, remote: Remote, start: Start, tools: Mapping[str, Binding]) -> None:
        self._remote = remote
        self._start = start
        self.tools = tools

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Stand between the agent and its tools, within whatever hooks it has around them."""
        return _Elsewhere(toolset, self)

    async def call(self, binding: Binding, name: str, args: dict[str, Any], ctx: RunContext[Any]) -> Any:
        """Let an executor call a tool, with what can be told of the context."""
        assert binding.executor is not None
        told = to_jsonable_python(DurableRunContext.serialize_run_context(ctx), fallback=str)
        ask = RemoteAsk(
            id=str(uuid4()),
            call_id=ctx.tool_call_id or "",
            tool=name,
            queue=binding.executor,
            # They are stored until the call has ended: what is secret in facts is secret there.
            args=present_secrets().known_only.value(to_jsonable_python(args)),
            context={"run": told, "memory": list(self._start.memory)},
            timeout=binding.timeout.total_seconds(),
        )
        return await self._remote.carried_out(self._start, ask)


@dataclass
class _Elsewhere(WrapperToolset[Any]):
    calls: RemoteTools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        binding = self.calls.tools.get(name)
        if binding is None:
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        return await self.calls.call(binding, name, tool_args, ctx)
