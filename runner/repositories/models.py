"""The record of a run that a program of one's own keeps, as values: they know no store.

What the protocol knows of any run (its status, its claim, its times) stands in these models beside what only the
program knows (its channels, its steps, its conditions). A store fills in the former and never believes it of a caller.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from threadhold.runner.decisions import RequestKind
from threadhold.runner.machine import RunStatus
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import ThreadStatus

StepStatus = Literal["running", "completed", "failed", "retried", "skipped"]

_TICK: Final = timedelta(microseconds=1)


def _now() -> datetime:
    return datetime.now(UTC)


class _Model(BaseModel):
    """JSON values only, and nothing that is not named."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RunHistoryEntry(_Model):
    """One execution of a node of the program, a repeated one included."""

    node_id: str
    status: StepStatus
    attempt: int = 1
    input_snapshot: JsonValue = None
    output_snapshot: JsonValue = None
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    cost: Decimal | None = None


class RunConditionResult(_Model):
    """What became of one branch of a condition; one that was not taken is recorded as not `matched`."""

    condition_id: str
    matched: bool
    selected_edge_id: str | None = None
    evaluated_at: AwareDatetime = Field(default_factory=_now)
    details: dict[str, JsonValue] = Field(default_factory=dict)


class RunFailureState(_Model):
    """Why a run failed: a short word of the program's own, and what to tell people."""

    reason: str
    message: str = ""
    details: dict[str, JsonValue] = Field(default_factory=dict)


class PendingRequest(_Model):
    """What a paused run waits for somebody to decide; the store makes a request of it."""

    kind: RequestKind = "approval"
    tool: str
    args: dict[str, JsonValue] = Field(default_factory=dict)
    call_id: str | None = None
    approvers: list[str] | None = None
    other_only: bool = False
    expires_in_s: float | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class RunState(_Model):
    """Where a run stands.

    Its thread is one of its own unless one is named. `fence` and `claim_id` are those of the claim that it was read
    under; a write of a running run is refused when that is not the present one any more.
    """

    run_id: str
    thread_id: str = ""
    checkpoint_id: str | None = None
    parent_checkpoint_id: str | None = None
    fence: int = 0
    claim_id: str | None = None
    agent: str
    status: RunStatus = RunStatus.PENDING
    current_step: str | None = None
    completed_steps: list[str] = Field(default_factory=list)
    artifacts: dict[str, JsonValue] = Field(default_factory=dict)
    channels: dict[str, JsonValue] = Field(default_factory=dict)
    pending_request: PendingRequest | None = None
    request_id: str | None = None
    started_at: AwareDatetime | None = None
    updated_at: AwareDatetime = Field(default_factory=_now)
    error: str | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _own_thread(self) -> Self:
        self.thread_id = self.thread_id or self.run_id
        return self

    def touch(self) -> None:
        """Say that this has just changed: `updated_at` is later than it was."""
        self.updated_at = max(_now(), self.updated_at + _TICK)


class Run(RunState):
    """The whole record of a run.

    `completed_steps` follows from `history`, and `error` from `failure_state` where there is one.
    """

    history: list[RunHistoryEntry] = Field(default_factory=list)
    node_visits: dict[str, int] = Field(default_factory=dict)
    condition_results: list[RunConditionResult] = Field(default_factory=list)
    graph_version_ref: str | None = None
    deployment_ref: str | None = None
    workspace: str | None = None
    principal: str | None = None
    parent_run_id: str | None = None
    current_node_ids: list[str] = Field(default_factory=list)
    pending_node_ids: list[str] = Field(default_factory=list)
    audit_refs: list[str] = Field(default_factory=list)
    final_output: JsonValue = None
    failure_state: RunFailureState | None = None
    reason: str | None = None
    attempt: int = 0
    stop_requested: bool = False
    created_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _follows(self) -> Self:
        self.recount()
        if self.failure_state is not None:
            self.error = self.failure_state.message or self.failure_state.reason
        return self

    def recount(self) -> None:
        """Find the completed steps from the history: each node once, in the order in which they first completed."""
        done = (entry.node_id for entry in self.history if entry.status == "completed")
        self.completed_steps = list(dict.fromkeys(done))

    def add(self, entry: RunHistoryEntry) -> None:
        """Append an entry of the history, count the visit of its node, and touch."""
        self.history.append(entry)
        self.node_visits[entry.node_id] = self.node_visits.get(entry.node_id, 0) + 1
        self.recount()
        self.touch()


class ThreadRecord(_Model):
    """A thread as it groups runs. Of each list that only grows, the newest thousand, oldest first."""

    thread_id: str
    workspace: str
    agent: str
    graph_version_ref: str | None = None
    deployment_ref: str | None = None
    status: ThreadStatus = "active"
    participating_agent_refs: list[str] = Field(default_factory=list)
    state_snapshot_refs: list[str] = Field(default_factory=list)
    checkpoint_refs: list[str] = Field(default_factory=list)
    memory_bindings: list[MemoryBinding] = Field(default_factory=list)
    run_ids: list[str] = Field(default_factory=list)
    active_run_id: str | None = None
    last_run_id: str | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime


STORED: Final = frozenset(
    {"run_id", "thread_id", "agent", "status", "fence", "claim_id", "attempt", "reason", "stop_requested"}
    | {"workspace", "principal", "checkpoint_id", "parent_checkpoint_id", "request_id", "parent_run_id"}
    | {"graph_version_ref", "deployment_ref", "created_at", "started_at", "ended_at", "updated_at"}
)
"""The fields that a store knows by itself. The others are the body of a record, which it keeps as it was given."""


def body_of(run: Run) -> dict[str, Any]:
    """Return the part of a record that only its program knows, as JSON values.

    Raises:
        ValueError: if a value was put into it that is none of its fields' types.
    """
    checked = Run.model_validate(run.model_dump(warnings=False))
    return checked.model_dump(mode="json", exclude=set(STORED))


def revised(run: Run, changes: dict[str, Any]) -> Run:
    """Return a record with other values in some fields, checked anew.

    Raises:
        ValueError: a field is not there, or takes no such value.
    """
    return Run.model_validate({**run.model_dump(warnings=False), **changes})
