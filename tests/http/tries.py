"""The part of the scripted Runner that is about intents and second tries: executions, runs, checkpoints and replays."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.http.records import AGENT, NOW, checkpoint_of, execution_of, run_of
from threadhold.runner.checkpoints import Checkpoint, Replay
from threadhold.runner.content import checked_content, checked_key
from threadhold.runner.errors import NotFound, UnknownAgent
from threadhold.runner.executions import Execution, ExecutionReceipt, ExecutionTree, RunTree, ThreadTree
from threadhold.runner.records import Page, Principal, Run, Thread
from threadhold.runner.settle import rests

HISTORY: list[Any] = [{"kind": "request", "parts": []}, {"kind": "response", "parts": []}]


def thread_of(id: str) -> Thread:
    """Return a thread of the execution."""
    return Thread(
        id=id, workspace="default", owner="local", agent=AGENT, title=None, metadata={}, state="busy", status="active",
        current_run="run-1", seq=3, created_at=NOW, updated_at=NOW, execution="execution-1",
    )  # fmt: skip


@dataclass
class ScriptedTries:
    """Has these methods; `calls` lists what it was asked, `raising` what a method raises instead."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    raising: dict[str, Exception] = field(default_factory=dict)
    known_runs: dict[str, Run] = field(default_factory=lambda: {"run-1": run_of()})
    known_executions: dict[str, Execution] = field(default_factory=lambda: {"execution-1": execution_of()})
    known_checkpoints: dict[str, Checkpoint] = field(default_factory=lambda: {"run-1.1": checkpoint_of()})
    threads_in: list[str] = field(default_factory=lambda: ["t"])

    def _called(self, method: str, **arguments: Any) -> None:
        self.calls.append((method, arguments))
        if method in self.raising:
            raise self.raising[method]

    def _hosted(self, agent: str) -> None:
        if agent not in {AGENT, "other"}:
            raise UnknownAgent(agent, (AGENT, "other"))

    async def run(self, run: str, *, by: Principal) -> Run:
        self._called("run", run=run)
        return self._run(run)

    def _run(self, run: str) -> Run:
        if run not in self.known_runs:
            raise NotFound("run", run)
        return self.known_runs[run]

    async def rested(self, run: str, *, by: Principal, wait: float) -> Run:
        self._called("rested", run=run, wait=wait)
        while not rests(self._run(run).status):
            await asyncio.sleep(0.005)
        return self._run(run)

    async def execute(
        self, agent: str, mission: str, *, by: Principal, key: str | None = None
    ) -> ExecutionReceipt:
        self._called("execute", agent=agent, mission=mission, key=key)
        checked_content(mission, field="mission")
        checked_key(key)
        self._hosted(agent)
        return ExecutionReceipt(
            execution="execution-1", thread="t", run="run-1", message="message-1", seq=1, duplicate=False,
            no_worker=False,
        )  # fmt: skip

    def _execution(self, execution: str) -> Execution:
        if execution not in self.known_executions:
            raise NotFound("execution", execution)
        return self.known_executions[execution]

    async def execution(self, execution: str, *, by: Principal) -> ExecutionTree:
        self._called("execution", execution=execution)
        runs = tuple(RunTree(run=run, attempts=(), requests=()) for run in self.known_runs.values())
        return ExecutionTree(
            execution=self._execution(execution),
            threads=(ThreadTree(thread=thread_of("t"), runs=runs),),
            cut_short=False,
        )

    async def executions(
        self, *, by: Principal, before: str | None = None, limit: int = 20
    ) -> list[Execution]:
        self._called("executions", before=before, limit=limit)
        highest_first = sorted(self.known_executions.values(), key=lambda each: each.id, reverse=True)
        return [each for each in highest_first if before is None or each.id < before][:limit]

    async def threads_of(
        self, execution: str, *, by: Principal, after: str | None = None, limit: int = 20
    ) -> list[Thread]:
        self._called("threads_of", execution=execution, after=after, limit=limit)
        self._execution(execution)
        return [thread_of(id) for id in sorted(self.threads_in) if after is None or id > after][:limit]

    async def checkpoints(
        self, run: str, *, by: Principal, after: int = 0, limit: int = 20
    ) -> Page[Checkpoint]:
        self._called("checkpoints", run=run, after=after, limit=limit)
        self._run(run)
        found = list(self.known_checkpoints.values())
        behind = after + limit
        return Page(items=found[after:behind], next=behind if behind < len(found) else None)

    def _checkpoint(self, checkpoint: str) -> Checkpoint:
        if checkpoint not in self.known_checkpoints:
            raise NotFound("checkpoint", checkpoint)
        return self.known_checkpoints[checkpoint]

    async def checkpoint(self, checkpoint: str, *, by: Principal) -> Checkpoint:
        self._called("checkpoint", checkpoint=checkpoint)
        return self._checkpoint(checkpoint)

    async def history_at(
        self, checkpoint: str, *, by: Principal, after: int = 0, limit: int = 20
    ) -> Page[Any]:
        self._called("history_at", checkpoint=checkpoint, after=after, limit=limit)
        self._checkpoint(checkpoint)
        behind = after + limit
        return Page(items=HISTORY[after:behind], next=behind if behind < len(HISTORY) else None)

    async def replay(
        self, run: str, *, by: Principal, checkpoint: str | None = None, key: str | None = None
    ) -> Replay:
        self._called("replay", run=run, checkpoint=checkpoint, key=key)
        checked_key(key)
        begin = "run-1.1" if checkpoint is None else self._checkpoint(checkpoint).id
        self.known_runs["run-2"] = run_of("run-2", replay_of=self._run(run).id, replay_from=begin)
        return Replay(
            thread="t", run="run-2", origin=run, checkpoint=begin, seq=9, duplicate=False, no_worker=False
        )
