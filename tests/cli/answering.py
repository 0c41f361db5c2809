"""An API whose Runner answers at once, in a thread of its own, so that a command can run in the test's."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from tests.cli.frames import delta, fact, frame, start
from tests.http.records import NOW, request_of
from tests.http.scripted import ScriptedRunner
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery, Frame
from threadhold.fanout.merge import shows
from threadhold.runner.checkpoints import Replay
from threadhold.runner.decisions import Decision, RequestKind
from threadhold.runner.executions import ExecutionReceipt
from threadhold.runner.records import Fact, Outcome, Page, Receipt, Request, StopReceipt, WatchKind
from threadhold.runner.service import Runner

ASKS: Final[dict[str, tuple[RequestKind, ...]]] = {
    "pay": ("approval",),
    "ask": ("question",),
    "both": ("question", "approval"),
}
TOOLS: Final = {"approval": "refund", "question": "which_size"}


@dataclass
class AnsweringRunner(ScriptedRunner):
    """Answers "echo: TEXT" to every message; "fail" fails its run, and "wait" is answered only by a stop, or
    by "done".

    "pay" pauses for an approval, "ask" for an answer, "both" for the two; any message to a paused thread is a reply.
    """

    seqs: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)

    async def send(self, thread: str | None, content: str, **given: Any) -> Receipt:
        """Accept a message and put its whole run on the log."""
        receipt = await super().send(thread, content, **given)
        seq = self.seqs.get(receipt.thread, 0)
        receipt = replace(receipt, seq=seq + 1)
        if receipt.thread in self.busy and receipt.disposition == "started":
            receipt = replace(receipt, disposition="steered")
        if content == "done":
            self.busy.discard(receipt.thread)
        if asked := self._open(receipt.thread):
            accepted = fact(seq + 1, "message_accepted", message="m", by="local", content=content)
            await self._log(receipt.thread, [accepted])
            self.busy.discard(receipt.thread)
            for each in asked:
                kind: Any = "reply" if each.kind == "question" else "reject"
                await self._settle(
                    each, {"kind": kind, ("value" if kind == "reply" else "reason"): content}, "local"
                )
            return replace(receipt, disposition="replied")
        await self._log(receipt.thread, _run(seq, content))
        for kind in ASKS.get(content, ()):
            id = f"{kind}-{len(self.known_requests) + 1}"
            self.known_requests[id] = request_of(id, kind=kind, thread=receipt.thread, tool=TOOLS[kind])
        if content in ASKS:
            self.busy.discard(receipt.thread)
            await self.publish(receipt.thread, *(_delivery(each) for each in self._pause(receipt.thread)))
        return receipt

    def _open(self, thread: str) -> list[Request]:
        return [
            each for each in self.known_requests.values() if (each.thread, each.status) == (thread, "open")
        ]

    def _pause(self, thread: str) -> list[Frame]:
        asked, seq = self._open(thread), self.seqs[thread]
        self.seqs[thread] += len(asked) + 1
        opened = [
            fact(seq + 1 + n, "request_opened", request=each.id, kind=each.kind, tool=each.tool, args=each.args,
                 args_hash=each.args_hash)
            for n, each in enumerate(asked)
        ]  # fmt: skip
        return [*opened, fact(seq + len(asked) + 1, "paused", requests=len(asked))]

    async def execute(self, agent: str, mission: str, **given: Any) -> ExecutionReceipt:
        """Start a thread whose message is the mission."""
        receipt = await super().execute(agent, mission, **given)
        sent = await self.send(None, mission, agent=agent, by=given["by"])
        return replace(receipt, thread=sent.thread, seq=1)

    async def replay(self, run: str, **given: Any) -> Replay:
        """Put a run that says something else on the log of the newest thread."""
        receipt = await super().replay(run, **given)
        thread = list(self.items)[-1]
        seq = self.seqs.get(thread, 0)
        begun = fact(seq + 1, "run_replayed", origin=run, checkpoint=receipt.checkpoint, by="local")
        said = fact(seq + 3, "model_called", text="echo: again")
        ended = fact(seq + 4, "run_ended", status="completed")
        await self._log(thread, [begun, fact(seq + 2, "run_started", agent="support"), said, ended])
        return replace(receipt, thread=thread, seq=seq + 1)

    async def facts(self, thread: str, *, by: Any, after: int = 0, limit: int = 20) -> Page[Fact]:
        """Return what is on the log."""
        found = [
            Fact(seq=one.seq, run=one.run, fence=one.fence, kind=one.data["fact"], data={}, at=NOW)
            for one in (each.frame for each in self.frames_of[thread])
            if one.kind == "fact" and one.seq > after
        ]
        return Page(items=found[:limit], next=None)

    async def answer(self, request: str, decision: Decision, **given: Any) -> Outcome:
        """Answer, and let the run go on when nothing is open any more."""
        outcome = await super().answer(request, decision, **given)
        asked = self.known_requests[request]
        if not outcome.duplicate:
            await self._settle(asked, outcome.decision, outcome.by)
        return replace(outcome, open=len(self._open(asked.thread)))

    async def _settle(self, asked: Request, decision: dict[str, Any], by: str) -> None:
        thread, said = asked.thread, {name: decision[name] for name in decision if name != "kind"}
        self.known_requests[asked.id] = replace(asked, status="answered", answer=decision, answered_by=by)
        kind, seq = decision["kind"], self.seqs[thread]
        frames = [
            fact(seq + 1, "request_answered", request=asked.id, tool=asked.tool, by=by, decision=kind, **said)
        ]
        if not self._open(thread):
            frames += [fact(seq + 2, "attempt_started"), fact(seq + 3, "model_called", text=f"so: {kind}")]
            frames.append(fact(seq + 4, "run_ended", status="completed"))
            self.busy.discard(thread)
        await self._log(thread, frames)

    async def stop(self, *, thread: str | None = None, **given: Any) -> StopReceipt:
        """Stop a run that waits."""
        if thread in self.busy:
            self.stop_may_end.set()
            self.busy.remove(thread)
            end = fact(self.seqs[thread] + 1, "run_ended", status="stopped", reason="person")
            await self._log(thread, [end])
        return await super().stop(thread=thread, **given)

    async def _log(self, thread: str, frames: list[Frame]) -> None:
        self.seqs[thread] = frames[-1].seq
        if frames[-1].data["fact"] not in ("run_ended", "request_answered"):
            self.busy.add(thread)
        await self.publish(thread, *(_delivery(each) for each in frames))

    async def frames(
        self,
        thread: str,
        begin: Position,
        *,
        until: str | None = None,
        kinds: Collection[WatchKind] | None = None,
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what is new, and an end when there is no more and the watch is until idle."""
        shown = 0
        while True:
            new, shown = self.frames_of[thread][shown:], len(self.frames_of[thread])
            for each in new:
                if each.position > begin and shows(each.frame, kinds):
                    yield each
            if until == "idle" and thread not in self.busy:
                state = "paused" if self._open(thread) else "idle"
                yield _delivery(frame("end", {"state": state}, seq=self.seqs.get(thread, 0)))
                return
            async with self.grown:
                while len(self.frames_of[thread]) == shown:
                    await self.grown.wait()


def _run(seq: int, content: str) -> list[Frame]:
    begun = [
        fact(seq + 1, "message_accepted", message="m", by="local", content=content),
        fact(seq + 2, "run_started", agent="support"),
    ]
    if content == "wait" or content in ASKS:
        return begun
    if content == "fail":
        error = {"type": "ValueError", "message": "no luck"}
        return [*begun, fact(seq + 3, "run_ended", status="failed", reason="error", error=error)]
    live = [start(seq + 1, "echo: ", seq=seq + 2), delta(seq + 2, content, seq=seq + 2)]
    said = fact(seq + 3, "model_called", text=f"echo: {content}")
    return [*begun, *live, said, fact(seq + 4, "run_ended", status="completed")]


def _delivery(each: Frame) -> Delivery:
    return Delivery(frame=each, body=each.body(), position=Position(seq=each.seq, fence=1, n=each.n))


@contextmanager
def answering() -> Iterator[tuple[str, AnsweringRunner]]:
    """Serve an answering Runner and yield its URL."""
    runner, drain = AnsweringRunner(), asyncio.Event()
    app = create_api(cast(Runner, runner), health=Health, drain=drain)
    server = ApiServer(app, listening=listen("127.0.0.1", 0), drain=drain)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}", runner
    finally:
        server.should_exit = True
        thread.join(10)
