"""The nouns of runs and threads, as values. They know no store, no clock and no transport."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from threadhold.runner.decisions import RequestKind, RequestStatus
from threadhold.runner.machine import AttemptOutcome, RunStatus
from threadhold.runner.memory import MemoryBinding

T = TypeVar("T")

Disposition = Literal["started", "steered", "replied", "queued"]
OnBusy = Literal["steer", "reject", "queue", "interrupt"]
MessageState = Literal["waiting", "delivered", "returned"]
Role = Literal["user", "approver", "operator"]
Interface = Literal["rest", "websocket", "mcp", "python", "repository"]
Access = Literal["read", "write"]
ThreadStatus = Literal["active", "completed", "archived"]
Until = Literal["idle"]
WatchKind = Literal["fact", "event", "draft"]

MESSAGE_BYTES_MAX = 64 * 1024
KEY_CHARS_MAX = 128
INBOX_MAX = 100
MEMBERS_MAX = 1000
REFS_MAX = 100
"""How many of each thing a thread may be about: participants, memory, states of other systems."""
DEVELOPMENT = "development"
PAGE_BYTES_MAX = 1024 * 1024
"""A page ends before what would begin beyond this many bytes; it has one thing at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who acts: a person, a service or the system itself; `interface` is where they came in."""

    id: str
    workspace: str
    roles: frozenset[Role] = frozenset({"user"})
    interface: Interface = field(default="python", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation: the unit of exclusion.

    `participants` are the agents that take part, its own first. `memory` is what its runs are given, and `state_refs`
    names what other systems keep for it.
    """

    id: str
    workspace: str
    owner: str
    agent: str
    title: str | None
    metadata: dict[str, Any]
    state: Literal["idle", "busy", "paused"]
    status: ThreadStatus
    current_run: str | None
    seq: int
    created_at: datetime
    updated_at: datetime
    execution: str | None = None
    participants: tuple[str, ...] = ()
    memory: tuple[MemoryBinding, ...] = ()
    state_refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who may see a thread beside its owner, and whether they may do more than read."""

    principal: str
    access: Access
    added_by: str
    added_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One piece of work on a thread, from the message that starts it to its one end.

    `output` is what a completed run returned, where one run is asked for; lists of runs leave it out. `replay_of` and
    `replay_from` name the run that this one repeats, and the checkpoint that it went on from.
    """

    id: str
    thread: str
    agent: str
    principal: str
    status: RunStatus
    reason: str | None
    error: dict[str, Any] | None
    attempt: int
    first_seq: int
    stop_requested: bool
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    interface: str = "unknown"
    environment: str = DEVELOPMENT
    budget: str | None = None
    output: Any = None
    replay_of: str | None = None
    replay_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a message at the moment it was accepted.

    `no_worker` is True when no live worker has the agent: the message is kept and waits for one.
    """

    thread: str
    disposition: Disposition
    message: str
    run: str | None
    seq: int
    duplicate: bool
    no_worker: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What somebody sent to a thread, and what has become of it since."""

    id: str
    thread: str
    sender: str
    content: str
    disposition: Disposition
    state: MessageState
    run: str | None
    reason: str | None
    accepted_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReceipt:
    """What a stop did: `settled` is True once the run has ended (or nothing ran at all).

    `tools` lists, per tool call of the run, `finished | never_started | still_running | unknown`.
    """

    thread: str
    run: str | None
    settled: bool
    status: RunStatus | None
    seq: int
    tools: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question, an approval or an outside call that a run waits for.

    `args_hash` binds a decision to exactly these arguments; `answer` is the decision as JSON values.
    """

    id: str
    thread: str
    run: str
    attempt: int
    kind: RequestKind
    call_id: str
    tool: str
    args: dict[str, Any]
    args_hash: str
    requested_by: str
    other_only: bool
    approvers: tuple[str, ...] | None
    metadata: dict[str, Any]
    status: RequestStatus
    answer: dict[str, Any] | None
    answered_by: str | None
    answered_at: datetime | None
    expires_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an answer did: the decision on record, how many requests of the run are still open, and where it stands."""

    request: str
    thread: str
    run: str
    decision: dict[str, Any]
    by: str
    duplicate: bool
    open: int
    status: RunStatus
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One uninterrupted stretch of a run; immutable once it has an outcome."""

    run: str
    attempt: int
    fence: int
    worker: str
    outcome: AttemptOutcome | None
    cause: str | None
    started_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a run stands where it stands: the run, its attempts, what became of its calls, and what it waits for.

    `lost` is what was recorded of each holder that has gone, oldest first. `spent` is what its own calls came to, those
    of agents that it delegated to among them; `charged`, each place in which its budget counts, as it stands now.
    `decisions` are the facts that say why something was allowed or not, oldest first, at most the newest 200: rules of
    its policy, uses of grants, answers of people, limits that were reached.
    """

    run: Run
    attempts: tuple[AttemptRecord, ...]
    tools: dict[str, str]
    requests: tuple[Request, ...]
    stop: dict[str, Any] | None
    lost: tuple[dict[str, Any], ...]
    claim: dict[str, Any] | None
    has_worker: bool
    state: str = ""
    """Where the run stands in the words of those who govern it (`runner.states`)."""
    spent: dict[str, Any] = field(default_factory=dict)
    charged: tuple[dict[str, Any], ...] = ()
    decisions: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker process as it last said it was, and how many runs it holds; or an executor, and how many calls.

    `queue` is whose calls an executor carries out; None for a worker.
    """

    id: str
    agents: tuple[str, ...]
    capacity: int
    running: int
    host: str
    pid: int
    draining: bool
    started_at: datetime
    seen_at: datetime
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage:
    """A waiting message as a worker gets it."""

    id: str
    seq: int
    sender: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A run that this worker was given, with everything it needs to begin.

    `fresh` is True while no earlier attempt has recorded the run's start.
    """

    workspace: str
    thread: str
    run: str
    agent: str
    principal: str
    roles: frozenset[Role]
    attempt: int
    claim_id: str
    fence: int
    history_head: int
    seq: int
    fresh: bool
    inbox: tuple[InboxMessage, ...]
    interface: str = "unknown"
    environment: str = DEVELOPMENT
    budget: str | None = None
    memory: tuple[dict[str, Any], ...] = ()
    failed_tries: int = 0

    @property
    def admission(self) -> dict[str, Any]:
        """What the run was admitted with, as each of its facts and frames tells it."""
        return {
            "principal": self.principal,
            "interface": self.interface,
            "environment": self.environment,
            "budget": self.budget,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """An entry of a thread's log: `seq` counts from 1 without a gap; `fence` is that of the newest claim by then.

    `admission` is what its run was admitted with, None where it is of no run.
    """

    seq: int
    run: str | None
    fence: int
    kind: str
    data: dict[str, Any]
    at: datetime
    admission: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A part of what is on record; `next` is what the page after it begins behind, None if this is the last."""

    items: Sequence[T]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact:
    """A fact that a run wants on its thread's log; the store gives it its `seq`."""

    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The answer to a record: where the log stands, and what the run should look at next."""

    seq: int
    waiting: int
    stop_requested: bool
    refused: str | None = None
    """Why nothing was written, if something was to be spent: "exhausted", "wait" or "no_grant"."""
    limits: tuple[dict[str, Any], ...] = ()
    """Each limit as it stood, if something was to be spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The answer to an end: `continue` means that unseen messages wait and the run goes on."""

    outcome: Literal["ended", "continue"]
    status: RunStatus | None
    seq: int
    next_run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The answer to a hand-over: `stopped` means that a stop was asked for, so that the run has ended instead."""

    outcome: Literal["handed_over", "stopped"]
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """What to tell other processes after a commit: the newest seq, and who should look."""

    thread: str
    seq: int
    agent: str | None = None
    run: str | None = None
    holder: str | None = None
