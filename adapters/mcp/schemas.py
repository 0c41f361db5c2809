"""What the tools take and give. Input is checked for its shape only; what it means is for the Runner to judge."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from threadhold.adapters.http.schemas import KEY_SCHEMA, AgentName, Busy, Content
from threadhold.adapters.http.schemas import Answer as AnswerBody
from threadhold.runner.decisions import DecisionKind, RequestKind
from threadhold.runner.records import Disposition

WAIT_S: Final = 25.0
# Hosts give up on a call after a minute.
WAIT_MAX_S: Final = 50.0

Status = Literal["idle", "pending", "running", "paused", "completed", "stopped", "failed"]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=WAIT_MAX_S,
        description="Seconds to wait for the end or a pause. After that the result is a handle to go on from with "
        "`watch`; the run goes on in any case.",
    ),
]
Key = Annotated[
    str | None,
    Field(
        json_schema_extra={**KEY_SCHEMA},
        description="Repeat a call with its key and it happens once. Give one whenever you may repeat the call.",
    ),
]
ThreadId = Annotated[str, Field(min_length=1, max_length=200, description="A thread's id.")]
RunId = Annotated[str, Field(min_length=1, max_length=200, description="A run's id.")]


class Given(BaseModel):
    """The arguments of a tool: unknown ones and wrong types are refused rather than guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Send(Given):
    """The arguments of `send`."""

    content: Content
    thread: ThreadId | None = Field(None, description="Where to. Leave it out to start a thread.")
    agent: AgentName | None = Field(
        None, description="Whom to start a thread with. May be left out where there is only one agent."
    )
    on_busy: Busy = None
    key: Key = None
    wait_s: Wait = WAIT_S


class Answer(AnswerBody):
    """The arguments of `answer`."""

    request: Annotated[str, Field(min_length=1, max_length=200, description="The request's id.")]
    wait_s: Wait = WAIT_S


class Stop(Given):
    """The arguments of `stop`."""

    run: RunId | None = Field(None, description="This run and never a later one.")
    thread: ThreadId | None = Field(None, description="Whatever runs on this thread now.")
    key: Key = None
    wait_s: Wait = 5.0


class Watch(Given):
    """The arguments of `watch`."""

    thread: ThreadId
    run: RunId | None = Field(
        None, description="Only this run, until it ends. Otherwise whatever runs there."
    )
    after: str | None = Field(
        None, description="The `cursor` of an earlier result. Default: the start of the current or last run."
    )
    wait_s: Wait = WAIT_S


class ListThreads(Given):
    """The arguments of `list_threads`."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: ThreadId | None = Field(None, description="The `next_cursor` of the page before.")


class GetRun(Given):
    """The arguments of `get_run`."""

    run: RunId


class Asked(BaseModel):
    """An open request: what a paused run waits for."""

    request: str
    kind: RequestKind
    tool: str
    args: dict[str, Any]
    args_hash: str = Field(description="Pass it to `answer` to decide on these arguments and no others.")
    decisions: list[DecisionKind] = Field(description="The kinds of answer that it takes.")
    approvers: list[str] | None = Field(None, description="Who may answer; without it, whoever may write.")
    other_only: bool = Field(False, description="Whoever caused it may not approve it.")


class Event(BaseModel):
    """One fact of a thread's log."""

    seq: int
    fact: str
    run: str | None = None
    at: str
    data: dict[str, Any]


class Standing(BaseModel):
    """Where a thread, or one run on it, stands as of `cursor`."""

    thread: str
    run: str | None = Field(None, description="The run that was followed.")
    status: Status = Field(
        description="`pending` and `running`: call `watch` with `after` set to `cursor`. `paused`: call `answer`."
    )
    cursor: str | None = Field(None, description="Go on from here: the `after` of `watch`, on any replica.")
    text: str = Field(
        "", description="What the agent has said since the cursor that was given, or since the message."
    )
    output: Any = Field(None, description="What a completed run returned.")
    reason: str | None = Field(None, description="Why it was stopped or failed.")
    error: dict[str, Any] | None = Field(None, description="What went wrong in a failed run.")
    requests: list[Asked] = Field(default_factory=list, description="What a paused run waits for.")
    note: str | None = Field(None, description="Something that went wrong beside the call itself.")


class Sent(Standing):
    """What became of a message, and where its run stands."""

    message: str
    disposition: Disposition = Field(description="Whether it started a run, steered one, replied, or waits.")
    duplicate: bool = Field(description="Whether the same key had sent it before.")
    no_worker: bool = Field(
        description="No live worker has the agent: the message is kept and waits for one."
    )


class Answered(Standing):
    """What an answer did, and where its run stands."""

    request: str
    decision: dict[str, Any]
    by: str
    duplicate: bool
    open: int = Field(description="How many requests of the run were still open after this one.")


class Watched(Standing):
    """Where a thread stands, and what happened since the cursor that was given."""

    events: list[Event] = Field(description="Facts, oldest first, at most 100; go on from `cursor` for more.")


class Stopped(BaseModel):
    """What a stop did."""

    thread: str
    run: str | None = Field(None, description="None if nothing ran.")
    settled: bool = Field(description="Whether the run has ended; if not, it will soon.")
    status: Status | None = None
    tools: dict[str, str] = Field(description="What became of each tool call of the run.")


class ThreadInfo(BaseModel):
    """A thread in a list."""

    thread: str
    agent: str
    title: str | None = None
    state: Literal["idle", "busy", "paused"]
    status: str
    owner: str
    current_run: str | None = None
    updated_at: str
    uri: str = Field(description="The thread as a resource.")


class ThreadList(BaseModel):
    """Threads by id, the highest first."""

    threads: list[ThreadInfo]
    next_cursor: str | None = None


class RunInfo(BaseModel):
    """A run with what is known of it."""

    run: str
    thread: str
    agent: str
    principal: str
    status: Status
    reason: str | None = None
    error: dict[str, Any] | None = None
    output: Any = Field(None, description="What a completed run returned.")
    attempts: int = Field(description="How often a worker took it up.")
    stop_requested: bool
    tools: dict[str, str] = Field(description="What became of each tool call.")
    requests: list[Asked] = Field(description="What it waits for.")
    has_worker: bool = Field(description="Whether a live worker has its agent.")
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    uri: str = Field(description="The run as a resource.")
