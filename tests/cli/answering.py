"""An API whose Runner answers at once, in a thread of its own, so that a command can run in the test's."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from tests.cli.frames import delta, fact, frame, start
from tests.http.scripted import ScriptedRunner
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery, Frame
from threadhold.runner.records import Receipt, StopReceipt
from threadhold.runner.service import Runner


@dataclass
class AnsweringRunner(ScriptedRunner):
    """Answers "echo: TEXT" to every message; "fail" fails its run, and "wait" is answered only by a stop."""

    seqs: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)

    async def send(self, thread: str | None, content: str, **given: Any) -> Receipt:
        """Accept a message and put its whole run on the log."""
        receipt = await super().send(thread, content, **given)
        await self._log(receipt.thread, _run(self.seqs.get(receipt.thread, 0), content))
        return receipt

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
        if frames[-1].data["fact"] != "run_ended":
            self.busy.add(thread)
        await self.publish(thread, *(_delivery(each) for each in frames))

    async def frames(
        self, thread: str, begin: Position, *, until: str | None = None
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what is new, and an end when there is no more and the watch is until idle."""
        shown = 0
        while True:
            new, shown = self.frames_of[thread][shown:], len(self.frames_of[thread])
            for each in new:
                if each.position > begin:
                    yield each
            if until == "idle" and thread not in self.busy:
                yield _delivery(frame("end", {"state": "idle"}, seq=self.seqs.get(thread, 0)))
                return
            async with self.grown:
                while len(self.frames_of[thread]) == shown:
                    await self.grown.wait()


def _run(seq: int, content: str) -> list[Frame]:
    begun = [
        fact(seq + 1, "message_accepted", message="m", by="local", content=content),
        fact(seq + 2, "run_started", agent="support"),
    ]
    if content == "wait":
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
