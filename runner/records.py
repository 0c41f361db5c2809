"""The nouns of runs and threads, as values. They know no store, no clock and no transport."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from threadhold.runner.machine import RunStatus

Disposition = Literal["started", "steered", "replied", "queued"]
OnBusy = Literal["steer", "reject", "queue", "interrupt"]
MessageState = Literal["waiting", "delivered", "returned"]
Role = Literal["user", "approver", "operator"]
Until = Literal["idle"]

MESSAGE_BYTES_MAX = 64 * 1024
KEY_CHARS_MAX = 128
INBOX_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who acts: a person, a service or the system itself."""

    id: str
    workspace: str
    roles: frozenset[Role] = frozenset({"user"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation: the unit of exclusion."""

    id: str
    workspace: str
    owner: str
    agent: str
    title: str | None
    metadata: dict[str, Any]
    state: Literal["idle", "busy", "paused"]
    status: Literal["active", "completed", "archived"]
    current_run: str | None
    seq: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One piece of work on a thread, from the message that starts it to its one end."""

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
    history_chunks: int
    seq: int
    fresh: bool
    inbox: tuple[InboxMessage, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The answer to an end: `continue` means that unseen messages wait and the run goes on."""

    outcome: Literal["ended", "continue"]
    status: RunStatus | None
    seq: int
    next_run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """What to tell other processes after a commit: the newest seq, and who should look."""

    thread: str
    seq: int
    agent: str | None = None
    run: str | None = None
    holder: str | None = None
