"""Wherever a run is cut off, and by whatever: providers accept what comes next, and it knows what came before."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_ai.messages import ModelMessage, TextPart, ToolReturnPart, UserPromptPart

from tests.support.histories import texts
from tests.support.processes import START_S_MAX, Process, Processes, processes
from tests.support.scripted import is_open
from tests.support.servers import TestServers
from tests.support.strict import SHOWN_ENV, STRICT
from tests.support.truth import Truth, truth
from tests.support.waiting import until
from tests.support.watching import People, Watched
from tests.system.conftest import ROOT, TIMES, Gate
from threadhold.runner.history import NOT_EXECUTED, OUTCOME_UNKNOWN, loaded

# Each starts processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

ADD = 'call add {"a": 1, "b": 2}'
# More than a second of text, of which what came before the last second is kept for sure.
TALK = "words 30 0.05"


@dataclass(frozen=True, slots=True)
class Strict:
    """A stack whose model is strict: a replica, what starts workers, and the file of what the model was shown."""

    url: str
    starter: Processes
    shown: Path
    database_url: str
    hired: list[Process] = field(default_factory=list)

    async def hire(self) -> Process:
        """Start a worker and return it once it is ready."""
        self.hired.append(self.starter.start("worker", STRICT))
        for ready in ('"worker_ready"', '"keeper_ready"'):
            await self.hired[-1].says(ready, within=START_S_MAX)
        return self.hired[-1]

    async def worker(self) -> Process:
        """Return the only worker: one that an earlier test has left, or a new one."""
        living = [worker for worker in self.hired if worker.ended() is None]
        for worker in living[:-1]:
            worker.kill()
        return living[-1] if living else await self.hire()

    def requests(self, script: str) -> list[list[ModelMessage]]:
        """Return what the model was shown of the thread that a script started."""
        lines = self.shown.read_text().splitlines() if self.shown.exists() else []
        # Its last line may still be being written.
        whole = [loaded(json.loads(line)) for line in lines if line.endswith("]")]
        return [messages for messages in whole if script in texts(messages, UserPromptPart)]


@pytest.fixture(scope="module")
def strict(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strict]:
    """Start an API replica; workers come with the tests."""
    stack = asyncio.run(servers.new_stack())
    folder = tmp_path_factory.mktemp("strict")
    shown = folder / "shown.jsonl"
    environment = stack.environment(PYTHONPATH=ROOT, **TIMES, **{SHOWN_ENV: str(shown)})
    with processes(environment, folder) as starter:
        _, url = starter.api(app=STRICT)
        yield Strict(url, starter, shown, stack.database_url)


@pytest.fixture
async def record(strict: Strict) -> AsyncIterator[Truth]:
    """Ask the database; after each test no invariant is broken and no process met a fault of ours."""
    async with truth(strict.database_url) as asked:
        yield asked
        assert await asked.broken() == []
    assert strict.starter.errors() == []


@dataclass(slots=True)
class Run:
    """A run that is about to be cut off at a point, and who watches it."""

    name: str
    point: "Point"
    gate: Path
    strict: Strict
    thread: str = ""
    id: str = ""
    watched: Watched = field(default_factory=Watched)

    @property
    def script(self) -> str:
        """What it was told to do."""
        return self.point.script.replace("GATE", str(self.gate))

    async def there(self) -> bool:
        """Tell whether it has come to its point."""
        return await self.point.there(self)

    async def facts(self, kind: str) -> list[dict[str, Any]]:
        """Return the run's facts of a kind."""
        return self.watched.facts(kind, run=self.id)

    async def asked(self, times: int) -> bool:
        """Tell whether the model was asked so often."""
        return len(self.strict.requests(self.script)) >= times

    async def said(self, text: str) -> bool:
        """Tell whether a watcher has seen a text."""
        return text in self.watched.text(self.id)

    async def began_a_call(self) -> bool:
        """Tell whether a watcher has seen the beginning of a call."""
        events = [frame["data"] for frame in self.watched.frames if frame["kind"] == "event"]
        return any("tool-call" in str(event.get("part")) for event in events)

    async def in_tool(self) -> bool:
        """Tell whether the tool that waits at the gate was called, and every other that was called has ended."""
        called = await self.facts("tool_called")
        others = [fact for fact in called if str(self.gate) not in str(fact["args"])]
        return len(called) > len(others) == len(await self.facts("tool_returned"))

    async def entered(self) -> bool:
        """Tell whether a tool has entered its work."""
        return is_open(f"{self.gate}.entered")

    def times_entered(self) -> int:
        """Return how often the tool at the gate began its work."""
        return len(Path(f"{self.gate}.entered").read_text())

    async def opened(self, count: int) -> None:
        """Return when the run waits for so many answers."""
        await self.watched.sees(lambda seen: seen.facts("paused", run=self.id))
        assert len(await self.facts("request_opened")) == count

    async def answer(self, tool: str, **decision: Any) -> None:
        """Answer the newest request of a tool."""
        opened = await self.facts("request_opened")
        *_, request = [fact["request"] for fact in opened if fact["tool"] == tool]
        answered = await self.post(request, **decision)
        assert not answered["duplicate"]

    async def post(self, request: str, **decision: Any) -> Any:
        """Answer a request and return what that did."""
        async with httpx.AsyncClient(base_url=self.strict.url, trust_env=False) as http:
            answered = await http.post(f"/v1/requests/{request}/answer", json=decision)
        assert answered.is_success, answered.text
        return answered.json()


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run is cut off: what it does until then, how one sees that it is there, and what is known afterwards.

    `kept` is text that is not lost even by a kill; `unwritten` says that a kill loses a call that was being written.
    """

    script: str
    there: Callable[[Run], Awaitable[bool]]
    known: Sequence[object] = ()
    kept: str = ""
    agent: str = "scripted"
    unwritten: bool = False


HOLD = 'call hold {"gate": "GATE"}'
POINTS = {
    "before the first word": Point("hold GATE | say never", lambda run: run.asked(1)),
    "in its text": Point(f"{TALK} | hold GATE", lambda run: run.said("w30"), kept="w1 w2 w3 "),
    "in a call": Point(
        f"say adding | {ADD} | hold GATE", Run.began_a_call, known=[NOT_EXECUTED], unwritten=True
    ),
    "in its tool": Point(HOLD, Run.in_tool, known=[OUTCOME_UNKNOWN]),
    "in one of two tools": Point(f"{ADD} | {HOLD}", Run.in_tool, known=[3, OUTCOME_UNKNOWN]),
    "beside an approval": Point(
        f'call pay {{"amount": 5}} | {HOLD} | {ADD}', Run.in_tool, known=[NOT_EXECUTED, OUTCOME_UNKNOWN, 3]
    ),
    "between a tool and the answer": Point(
        f"{ADD} ;; hold GATE | say so", lambda run: run.asked(2), known=[3]
    ),
    "in the text after a tool": Point(
        f"{ADD} ;; {TALK} | hold GATE", lambda run: run.said("w30"), known=[3], kept="w1 w2 w3 "
    ),
    "in its output tool": Point(
        'call report {"gate": "GATE"}', Run.entered, known=[OUTCOME_UNKNOWN], agent="reporter"
    ),
}


async def start(strict: Strict, public: People, gate: Gate, point: Point, name: str = "gate") -> Run:
    """Start a run that is to come to a point."""
    run = Run(name, point, gate(name.replace(" ", "-")), strict)
    sent = await public.client(strict.url).send(None, run.script, agent=point.agent)
    run.thread, run.id = sent.thread, sent.run or ""
    run.watched = await public.listen(strict.url, sent.thread)
    return run


async def begin(strict: Strict, public: People, gate: Gate) -> list[Run]:
    """Start a run for every point, and return when each is there."""
    runs = [await start(strict, public, gate, point, name) for name, point in POINTS.items()]
    await asyncio.gather(*(until(run.there, within=60.0, what=run.name) for run in runs))
    return runs


async def go_on(run: Run, public: People) -> list[ModelMessage]:
    """Send the next message to a run's thread, and return what the model was shown for it."""
    sent = await public.client(run.strict.url).send(run.thread, "say and now")
    end = await run.watched.sees_end(sent.run or "", within=60.0)
    assert (end["status"], end.get("output")) == ("completed", "and now"), (run.name, end)
    shown = run.strict.requests(run.script)[-1]
    assert texts(shown, UserPromptPart)[-1] == "say and now"
    return shown


async def test_after_a_stop_the_next_message_runs_and_everything_said_and_done_is_known(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    await strict.worker()
    runs = await begin(strict, public, gate)
    stopped = [await public.client(strict.url).stop(thread=run.thread, wait=10.0) for run in runs]
    assert [(stop.settled, stop.status) for stop in stopped] == [(True, "stopped")] * len(runs)
    for run in runs:
        shown = await go_on(run, public)
        assert texts(shown, ToolReturnPart) == list(run.point.known), run.name
        assert "".join(texts(shown, TextPart)) == run.watched.text(run.id), run.name


async def test_after_a_kill_the_next_message_runs_and_what_was_recorded_is_known(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    worker = await strict.worker()
    runs = await begin(strict, public, gate)
    worker.kill()
    await strict.hire()
    await go_on_without_what_was_lost(runs, public)


async def test_after_a_freeze_past_the_ttl_it_is_the_same_and_the_thawed_worker_writes_nothing_more(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    frozen = await strict.worker()
    runs = await begin(strict, public, gate)
    frozen.freeze()
    await strict.hire()
    await go_on_without_what_was_lost(runs, public, cause="lost claim")
    before = {run.name: await left_by(run, record) for run in runs}
    # It wakes up with everything at hand to go on.
    for run in runs:
        run.gate.touch()
    frozen.thaw()
    for run in runs:
        await frozen.says('"claim_lost"', run.thread)
    assert await asyncio.to_thread(frozen.terminate) == 0
    for run in runs:
        # Whatever were still on its way to the watcher would come before this.
        await go_on(run, public)
        assert await left_by(run, record) == before[run.name], run.name


async def left_by(run: Run, record: Truth) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what a run has left: its facts, and all that a watcher was shown of it."""
    shown = [frame for frame in run.watched.frames if frame["run"] == run.id]
    return await record.facts(run.thread, run=run.id), shown


async def go_on_without_what_was_lost(runs: list[Run], public: People, *, cause: str | None = None) -> None:
    """Demand that each run was abandoned, and that the next one knows what was recorded."""
    for run in runs:
        end = await run.watched.sees_end(run.id)
        assert (end["status"], end["reason"]) == ("failed", "abandoned"), run.name
        assert cause in (None, end["error"]["cause"]), (run.name, end)
        shown = await go_on(run, public)
        known = [] if run.point.unwritten else list(run.point.known)
        assert texts(shown, ToolReturnPart) == known, run.name
        text = "".join(texts(shown, TextPart))
        assert run.point.kept in text, run.name
        assert run.watched.text(run.id).startswith(text), run.name


async def test_after_a_hand_over_each_run_goes_on_elsewhere_and_does_nothing_twice(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    worker = await strict.worker()
    runs = await begin(strict, public, gate)
    await strict.hire()
    worker.ask_to_end()
    await worker.says('"draining"')
    for run in runs:
        run.gate.touch()
    assert await asyncio.to_thread(worker.wait) == 0
    for run in runs:
        if run.name == "beside an approval":
            # Its tools ended, so that it waits for people now; what they say instead is the answer.
            await run.opened(1)
            await public.client(strict.url).send(run.thread, "too dear")
        end = await run.watched.sees_end(run.id)
        assert end["status"] == "completed", (run.name, end)
        called = [fact["call_id"] for fact in await run.facts("tool_called")]
        assert len(called) == len(set(called)), run.name
        shown = await go_on(run, public)
        assert OUTCOME_UNKNOWN not in texts(shown, ToolReturnPart), run.name
        assert "too dear" not in texts(shown, UserPromptPart), run.name
        # What was cut off was withdrawn, and said anew.
        assert "".join(texts(shown, TextPart)).count("w1 ") == (1 if run.point.kept else 0), run.name


MIXED = Point(
    f'{ADD} | call ask {{"question": "which?"}} | call careful {{"gate": "GATE"}} ;; say done', Run.entered
)


async def test_a_pause_between_calls_is_resumed_with_every_result_in_its_place(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    await strict.worker()
    run = await start(strict, public, gate, MIXED)
    await run.opened(2)
    run.gate.touch()
    await run.answer("ask", kind="reply", value="blue")
    await run.answer("careful", kind="approve")
    assert (await run.watched.sees_end(run.id))["output"] == "done"
    for shown in (strict.requests(run.script)[-1], await go_on(run, public)):
        assert texts(shown, ToolReturnPart) == [3, "blue", "carefully done"]
    assert run.times_entered() == 1


async def test_a_stop_of_a_paused_run_leaves_what_was_done_and_what_was_not(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    await strict.worker()
    run = await start(strict, public, gate, MIXED)
    await run.opened(2)
    stopped = await public.client(strict.url).stop(thread=run.thread, wait=10.0)
    assert (stopped.settled, stopped.status) == (True, "stopped")
    assert texts(await go_on(run, public), ToolReturnPart) == [3, NOT_EXECUTED, NOT_EXECUTED]


async def killed_in_what_was_approved(strict: Strict, public: People, gate: Gate, point: Point) -> Run:
    """Approve a call, kill its worker once it has done what it does and before that is on record; hire another."""
    worker = await strict.worker()
    run = await start(strict, public, gate, point)
    await run.opened(2)
    await run.answer("careful", kind="approve")
    await run.answer("ask", kind="reply", value="blue")
    await until(run.there)
    worker.kill()
    await strict.hire()
    return run


async def test_an_approved_call_that_a_kill_cut_off_is_never_executed_again(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    run = await killed_in_what_was_approved(strict, public, gate, MIXED)
    assert (await run.watched.sees_end(run.id))["status"] == "failed"
    assert texts(await go_on(run, public), ToolReturnPart) == [3, "blue", OUTCOME_UNKNOWN]
    assert run.times_entered() == 1


async def test_a_call_like_the_one_that_a_kill_cut_off_is_put_to_people_again(
    strict: Strict, record: Truth, public: People, gate: Gate
) -> None:
    # This agent may be tried again: it goes on in the same run, and its model asks for the same thing once more.
    again = MIXED.script.replace(";;", ';; call careful {"gate": "GATE"} ;;')
    run = await killed_in_what_was_approved(
        strict, public, gate, replace(MIXED, script=again, agent="stubborn")
    )
    await run.watched.sees(lambda seen: len(seen.facts("paused", run=run.id)) == 2)
    assert texts(strict.requests(run.script)[-1], ToolReturnPart) == [3, "blue", OUTCOME_UNKNOWN]
    old, new = [fact for fact in await run.facts("request_opened") if fact["tool"] == "careful"]
    assert old["request"] != new["request"]
    assert old["call_id"] != new["call_id"]
    assert old["args_hash"] == new["args_hash"]
    # The old approval stands as it is on record, and is good for nothing more.
    repeated = await run.post(old["request"], kind="approve")
    assert (repeated["duplicate"], repeated["open"], repeated["status"]) == (True, 1, "paused")
    assert run.times_entered() == 1
    run.gate.touch()
    await run.answer("careful", kind="approve")
    assert (await run.watched.sees_end(run.id))["output"] == "done"
    results = [3, "blue", OUTCOME_UNKNOWN, "carefully done"]
    assert texts(await go_on(run, public), ToolReturnPart) == results
    assert run.times_entered() == 2
