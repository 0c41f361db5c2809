"""The tools: each parses its arguments, calls, and tells; none decides anything."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import mcp.types as types
from pydantic import BaseModel

from threadhold.adapters.http.schemas import next_cursor
from threadhold.adapters.mcp import schemas
from threadhold.adapters.mcp.call import Call, Continuation, question, questions, result, to_ask
from threadhold.adapters.mcp.declared import takes_tasks
from threadhold.adapters.mcp.reading import run_info, stopped, thread_info
from threadhold.adapters.mcp.refusals import told
from threadhold.adapters.mcp.standing import as_seen, stand
from threadhold.adapters.mcp.tasks import created
from threadhold.adapters.mcp.telling import run_text, standing_text, stopped_text, threads_text
from threadhold.adapters.mcp.view import View
from threadhold.adapters.mcp.waiting import finished, wait
from threadhold.fanout.cursor import Position

# What the library has no type for, a task, is its JSON.
ToolResult = types.CallToolResult | types.InputRequiredResult | dict[str, Any]
Extra = dict[str, Any]


async def send(call: Call, given: schemas.Send) -> ToolResult:
    """Send a message to an agent and wait for its answer.

    It starts a run, steers the one in progress, or answers a paused one. Leave `thread` out to start a conversation,
    and pass the `thread` of the result to go on with it. If the time is over first, the result says how to go on
    with `watch`.
    """
    if (state := call.continuation()) is not None:
        return await _go_on(call, schemas.Sent, state, seconds=given.wait_s)
    agent = given.agent or (await _only_agent(call) if given.thread is None else None)
    receipt = await finished(
        call.desk.send(given.thread, given.content, agent=agent, key=given.key, on_busy=given.on_busy)
    )
    extra = {
        "message": receipt.message,
        "disposition": receipt.disposition,
        "duplicate": receipt.duplicate,
        "no_worker": receipt.no_worker,
    }
    view = _after(receipt.thread, receipt.run, receipt.seq, message=receipt.message)
    return await _settle(call, schemas.Sent, view, extra, seconds=given.wait_s)


async def _only_agent(call: Call) -> str | None:
    agents = await call.desk.agents()
    return agents[0] if len(agents) == 1 else None


async def answer(call: Call, given: schemas.Answer) -> ToolResult:
    """Answer what a paused run waits for: approve, edit or reject an approval; reply to a question or reject it.

    Then wait for the run as `send` does. The same answer may be repeated.
    """
    if (state := call.continuation()) is not None:
        return await _go_on(call, schemas.Answered, state, seconds=given.wait_s)
    outcome = await finished(call.desk.answer(given.request, given.decision(), args_hash=given.args_hash))
    extra = {
        "request": outcome.request,
        "decision": outcome.decision,
        "by": outcome.by,
        "duplicate": outcome.duplicate,
        "open": outcome.open,
    }
    view = _after(outcome.thread, outcome.run, outcome.seq)
    return await _settle(call, schemas.Answered, view, extra, seconds=given.wait_s)


async def watch(call: Call, given: schemas.Watch) -> ToolResult:
    """See what happens on a thread, from a cursor on, and wait until it rests, or the one `run` has ended."""
    if (state := call.continuation()) is not None:
        return await _go_on(call, schemas.Watched, state, seconds=given.wait_s)
    view = View(given.thread, cursor=given.after, run=given.run, with_events=True)
    return await _settle(call, schemas.Watched, view, {}, seconds=given.wait_s)


async def stop(call: Call, given: schemas.Stop) -> ToolResult:
    """Stop a run, or whatever runs on a thread. It is recorded first, and holds whether or not you wait."""
    receipt = await finished(
        call.desk.stop(run=given.run, thread=given.thread, key=given.key, wait=given.wait_s)
    )
    told_of = stopped(receipt)
    return result(told_of, stopped_text(told_of))


async def list_threads(call: Call, given: schemas.ListThreads) -> ToolResult:
    """List your conversations by id, the highest first: those started without a key are newest first."""
    items = await call.desk.threads(before=given.cursor, limit=given.limit)
    listed = schemas.ThreadList(
        threads=[thread_info(each) for each in items], next_cursor=next_cursor(items, given.limit)
    )
    return result(listed, threads_text(listed))


async def get_run(call: Call, given: schemas.GetRun) -> ToolResult:
    """Look at a run: its status, its output, what became of its tool calls, and what it waits for."""
    run = await run_info(call.desk, given.run)
    return result(run, run_text(run))


def _after(thread: str, run: str | None, seq: int, *, message: str | None = None) -> View:
    """Return a view that begins after a fact which this call has caused."""
    return View(thread, cursor=Position(seq=seq).cursor(), run=run, message=message)


async def _go_on(
    call: Call, kind: type[schemas.Standing], state: Continuation, *, seconds: float
) -> ToolResult:
    """Take up a call whose host brings the answers to what it was asked."""
    decided, note = await finished(call.decide(state.asked, call.given_answers()))
    view = View(state.thread, cursor=state.cursor, run=state.run, with_events=kind is schemas.Watched)
    if not decided:
        # Whoever put the form away, or may not decide, is not asked again at once.
        standing = _standing(kind, view, state.extra, await stand(call.desk, view), note)
        return result(standing, standing_text(standing))
    return await _settle(call, kind, view, state.extra, seconds=seconds, note=note)


async def _settle(
    call: Call,
    kind: type[schemas.Standing],
    view: View,
    extra: Extra,
    *,
    seconds: float,
    note: str | None = None,
) -> ToolResult:
    """Wait, and where the run has paused, ask whoever can be asked and wait on; then tell where things stand."""
    while True:
        try:
            await wait(call.desk, view, seconds=seconds, drain=call.drain, tell=call.tell)
            fields = await stand(call.desk, view)
        except Exception as error:
            if kind is schemas.Watched:
                raise
            # What was accepted stays accepted, and its handle must not get lost.
            refused = told(error)
            fields = as_seen(view, f"{refused['code']}: {refused['message']}")
        standing = _standing(kind, view, extra, fields, note)
        if (task := await _task(call, kind, standing)) is not None:
            return task
        asked = to_ask(standing.requests) if call.can_ask else []
        if not asked:
            return result(standing, standing_text(standing))
        if call.is_modern:
            return questions(asked, view, extra)
        answers = await call.ask(asked)
        decided, note = await finished(call.decide([question(each) for each in asked], answers))
        if not decided:
            told_of = standing.model_copy(update={"note": note})
            return result(told_of, standing_text(told_of))
        earlier = view
        view = View(
            earlier.thread, cursor=earlier.cursor, run=earlier.run, with_events=kind is schemas.Watched
        )
        # Within one call progress only grows.
        view.frames = earlier.frames


async def _task(call: Call, kind: type[schemas.Standing], standing: schemas.Standing) -> Extra | None:
    """Return a task where the host takes one and there is something to wait for; None otherwise.

    A watch tells what there is until now. Who has no forms is told of a pause at once, and can call `answer`.
    """
    waits = standing.status in ("pending", "running") or (standing.status == "paused" and call.can_ask)
    if standing.run is None or not waits or kind is schemas.Watched or not takes_tasks(call.ctx):
        return None
    with suppress(Exception):
        return await created(call.desk, standing)
    # A task that cannot be read just now would be none; the handle is good also then.
    return None


def _standing(
    kind: type[schemas.Standing], view: View, extra: Extra, fields: Extra, note: str | None
) -> schemas.Standing:
    """Return the result of one tool; what was found out now counts, whatever a host brought back."""
    if kind is schemas.Watched:
        extra = {"events": view.events}
    return kind.model_validate({**extra, **fields, "note": note or fields.get("note")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool, and what hosts are told of it."""

    title: str
    given: type[BaseModel]
    told: type[BaseModel]
    call: Callable[[Call, Any], Awaitable[ToolResult]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    def described(self, name: str, agents: list[str]) -> types.Tool:
        """Return the description; `agents` are the names that may be sent to, as far as they are known."""
        schema = self.given.model_json_schema()
        if agents and "agent" in schema["properties"]:
            schema["properties"]["agent"]["description"] += f" One of: {', '.join(agents)}."
        hints = types.ToolAnnotations(
            read_only_hint=self.read_only,
            destructive_hint=self.destructive,
            idempotent_hint=self.idempotent,
            # An agent may have tools that reach anything.
            open_world_hint=not self.read_only,
        )
        return types.Tool(
            name=name,
            title=self.title,
            description=" ".join((self.call.__doc__ or "").split()),
            input_schema=schema,
            output_schema=self.told.model_json_schema(),
            annotations=hints,
        )


TOOLS: Final[dict[str, Tool]] = {
    "send": Tool(title="Send a message", given=schemas.Send, told=schemas.Sent, call=send),
    "answer": Tool(
        title="Answer a request", given=schemas.Answer, told=schemas.Answered, call=answer, idempotent=True
    ),
    "stop": Tool(
        title="Stop a run",
        given=schemas.Stop,
        told=schemas.Stopped,
        call=stop,
        destructive=True,
        idempotent=True,
    ),
    "watch": Tool(
        title="Watch a thread", given=schemas.Watch, told=schemas.Watched, call=watch, read_only=True
    ),
    "list_threads": Tool(
        title="List threads",
        given=schemas.ListThreads,
        told=schemas.ThreadList,
        call=list_threads,
        read_only=True,
    ),
    "get_run": Tool(
        title="Look at a run", given=schemas.GetRun, told=schemas.RunInfo, call=get_run, read_only=True
    ),
}
