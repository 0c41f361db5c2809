"""The bodies of requests, checked here for their shape only; what they mean is for the Runner to judge.

Answers have no schemas of their own: they are the Runner's records, field by field.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, get_args
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from threadhold.runner.content import TITLE_CHARS_MAX, checked_metadata, checked_title, strings_of
from threadhold.runner.decisions import Decision, DecisionKind
from threadhold.runner.errors import InvalidInput
from threadhold.runner.executions import Execution
from threadhold.runner.grants import Grant
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.principals import ID_CHARS_MAX, ID_PATTERN
from threadhold.runner.records import (
    KEY_CHARS_MAX,
    REFS_MAX,
    OnBusy,
    Request,
    Run,
    StopReceipt,
    Thread,
    ThreadStatus,
    WatchKind,
    WorkerRecord,
)

T = TypeVar("T")


def _as_runner(check: Callable[[T], Any]) -> Callable[[T], T]:
    """Return a check of the Runner as one of a field, so that the refusal names the place in the body."""

    def checked(value: T) -> T:
        try:
            check(value)
        except InvalidInput as error:
            raise ValueError(error.message) from None
        return value

    return checked


def _shallow(value: Any) -> list[str]:
    return strings_of(value, field="value")


AgentName = Annotated[str, Field(min_length=1, max_length=200, description="One of the app's agents.")]
# These patterns are for readers of the OpenAPI document; the Runner refuses what breaks them, in its words.
_NOT_EMPTY: Final = {"minLength": 1, "pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
KEY_SCHEMA: Final[dict[str, Any]] = {"minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": r"^[\x20-\x7e]+$"}
PRINCIPAL_SCHEMA: Final[dict[str, Any]] = {"minLength": 1, "maxLength": ID_CHARS_MAX, "pattern": ID_PATTERN}
CURSOR_SCHEMA: Final[dict[str, Any]] = {"pattern": r"^(start|head|[0-9]{1,15}-[0-9]{1,18}-[0-9]{1,10})$"}
KINDS_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string", "enum": list(get_args(WatchKind))},
    "minItems": 1,
}

PrincipalId = Annotated[str, Field(description="The id of a principal.", json_schema_extra=PRINCIPAL_SCHEMA)]
Name = Annotated[str, Field(description="A name of your own.", json_schema_extra=PRINCIPAL_SCHEMA)]
Content = Annotated[
    str, Field(description="The text, at most 64 KiB as UTF-8.", json_schema_extra={**_NOT_EMPTY})
]
Mission = Annotated[
    str,
    Field(
        description="What the agent is to achieve, at most 64 KiB as UTF-8.", json_schema_extra={**_NOT_EMPTY}
    ),
]
# Longer than any; which one there is, the Runner knows.
CheckpointId = Annotated[str, Field(max_length=80, description="Where to go on; by default, the beginning.")]
Busy = Annotated[OnBusy | None, Field(description="What a message to a busy thread means; default steer.")]
WaitS = Annotated[float, Field(ge=0, le=60, description="Seconds to wait for the run's end.")]
Title = Annotated[
    str,
    Field(max_length=TITLE_CHARS_MAX, json_schema_extra={"pattern": r"^[^\x00]*$"}),
    AfterValidator(_as_runner(checked_title)),
]
Metadata = Annotated[dict[str, Any], AfterValidator(_as_runner(checked_metadata))]
# Ids arrive as text, which strict mode would not take for an id.
Id = Annotated[UUID, Field(strict=False)]


class Body(BaseModel):
    """A request body: unknown fields and wrong types are refused rather than guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


def shown(*examples: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a body with examples for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class NewThread(Body):
    """Make a thread."""

    model_config = shown(
        {"agent": "support", "title": "A lamp that flickers", "metadata": {"order": "A-1003"}}
    )

    agent: AgentName
    id: Id | None = Field(None, description="An id of your own; the same call again returns the same thread.")
    title: Title | None = None
    metadata: Metadata = {}
    execution: Id | None = Field(None, description="The execution that it belongs to, one that you may see.")


class ThreadChange(Body):
    """Change a thread."""

    model_config = shown({"title": "A lamp that works"}, {"status": "archived"})

    title: Title | None = None
    metadata: Metadata | None = Field(None, description="Takes the place of what was there.")
    status: ThreadStatus | None = None


class Memory(Body):
    """Where memory is kept."""

    model_config = shown({"connector": "notes", "instance": "eu", "scope": "customer-7"})

    connector: Name
    instance: Name
    scope: Name


class ThreadWanted(Body):
    """Find a thread or make it, and add to what it is about."""

    model_config = shown(
        {
            "agent": "support",
            "participants": ["billing"],
            "memory": [{"connector": "notes", "instance": "eu", "scope": "customer-7"}],
        }
    )

    agent: AgentName
    participants: Annotated[list[Name], Field(max_length=REFS_MAX)] = []
    memory: Annotated[list[Memory], Field(max_length=REFS_MAX)] = []
    state_refs: Annotated[list[Name], Field(max_length=REFS_MAX)] = []
    status: ThreadStatus | None = None

    def bindings(self) -> list[MemoryBinding]:
        """Return the memory as the Runner takes it."""
        return [MemoryBinding(each.connector, each.instance, each.scope) for each in self.memory]


class NewMessage(Body):
    """Send to a thread."""

    model_config = shown({"content": "My lamp flickers."}, {"content": "And later?", "on_busy": "queue"})

    content: Content
    on_busy: Busy = None
    agent: AgentName | None = Field(None, description="Makes the thread for this agent if there is none yet.")


class FirstMessage(Body):
    """Make a thread from its first message."""

    model_config = shown({"agent": "support", "content": "My lamp flickers."})

    agent: AgentName
    content: Content
    on_busy: Busy = None


class NewExecution(Body):
    """Start an execution."""

    model_config = shown({"agent": "support", "mission": "Find out why the lamp of order A-1003 flickers."})

    agent: AgentName
    mission: Mission


class NewReplay(Body):
    """Run a run again."""

    model_config = shown({}, {"checkpoint": "01a22a5d-c3a2-71d7-84be-ed86bb0a1c49.3"})

    checkpoint: CheckpointId | None = None


class Stop(Body):
    """Stop a run."""

    model_config = shown({"wait": 5})

    wait: WaitS = 5.0


class StopAll(Body):
    """Stop many runs."""

    model_config = shown({"agent": "support"}, {"principal": "ada"})

    agent: AgentName | None = Field(None, description="Only the runs of this agent.")
    principal: PrincipalId | None = Field(
        None, description="Only the runs that act for this principal; somebody else is for operators to name."
    )


class Answer(Body):
    """Answer a request: approve, edit or reject an approval, reply to anything else or reject it."""

    kind: DecisionKind
    args: Annotated[dict[str, Any] | None, AfterValidator(_as_runner(_shallow))] = Field(
        None, description="Of an edit: the arguments to call with instead."
    )
    reason: str | None = Field(None, description="Of a rejection: what the agent is told.")
    value: Annotated[Any, AfterValidator(_as_runner(_shallow))] = Field(
        None, description="Of a reply: any JSON value."
    )
    args_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="The request's own, to decide on these arguments and no others."
    )

    def decision(self) -> Decision:
        """Return the decision; whether its fields fit its kind is for the Runner to judge."""
        return Decision(kind=self.kind, args=self.args, reason=self.reason, value=self.value)


def next_cursor(items: Sequence[Execution | Thread | Run | Request | Grant], limit: int) -> str | None:
    """Return where the next page begins, which may turn out to be empty; None after a page that is not full."""
    return items[-1].id if len(items) == limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList:
    """The names of the agents that may be sent to."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPage:
    """Threads by id, as the list says; `next_cursor` is None after a page that is not full."""

    items: Sequence[Thread]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPage:
    """Executions by id, the highest first; `next_cursor` is None after a page that is not full."""

    items: Sequence[Execution]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Runs, newest first; `next_cursor` is None after a page that is not full."""

    items: Sequence[Run]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPage:
    """Requests, newest first; `next_cursor` is None after a page that is not full."""

    items: Sequence[Request]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopList:
    """What became of each run that was asked to stop."""

    items: Sequence[StopReceipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """The workers that were seen lately."""

    items: Sequence[WorkerRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainList:
    """The ids of the workers that were asked to leave."""

    items: Sequence[str]
