"""The example that asks first, on real servers, in a thread of its own, so that a command can run in the test's."""

import asyncio
import runpy
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from pydantic_ai.models.function import FunctionModel, StreamFunctionDef

from tests.http.test_rest_page import answers
from tests.project.sources import ROOT
from tests.support.servers import Stack, TestServers
from threadhold.adapters.bootstrap import make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.server import ApiServer, listen

READY_S: Final = 30.0
WORKER: Final = "desk"


@dataclass
class Desk:
    """A running API: where it listens, and the servers below it."""

    answers: StreamFunctionDef = answers
    url: str = ""
    stack: Stack | None = None
    error: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop | None = None

    def run(self, servers: TestServers) -> None:
        """Serve until `end` is set; `error` is why it could not."""
        try:
            asyncio.run(self._serve(servers))
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()

    async def _serve(self, servers: TestServers) -> None:
        self.loop, self.stack = asyncio.get_running_loop(), await servers.new_stack()
        example = runpy.run_path(str(ROOT / "examples" / "approvals.py"))
        async with AsyncExitStack() as exits:
            exits.push_async_callback(servers.take_back, self.stack)
            exits.enter_context(example["agent"].override(model=FunctionModel(stream_function=self.answers)))
            parts = await exits.enter_async_context(open_parts(self.stack.settings(grace=0)))
            worker = running_worker(example["app"], parts, id=worker_id(WORKER), capacity=10)
            await exits.enter_async_context(worker)
            runner, drain = make_runner(example["app"], parts), asyncio.Event()
            exits.push_async_callback(runner.aclose)
            api = create_api(runner, health=parts.health, drain=drain)
            server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
            serving = asyncio.create_task(server.serve())
            self.url = f"http://127.0.0.1:{server.port}"
            self.ready.set()
            await self.end.wait()
            server.should_exit = True
            await serving


@contextmanager
def open_desk(servers: TestServers, answers: StreamFunctionDef = answers) -> Iterator[Desk]:
    """Serve for the length of a block, with a model that answers so."""
    desk = Desk(answers)
    thread = threading.Thread(target=desk.run, args=(servers,))
    thread.start()
    try:
        assert desk.ready.wait(READY_S), "the desk did not open"
        if desk.error is not None:
            raise desk.error
        yield desk
    finally:
        if desk.loop is not None and thread.is_alive():
            desk.loop.call_soon_threadsafe(desk.end.set)
        thread.join(READY_S)
