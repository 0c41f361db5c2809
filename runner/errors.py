"""Everything the Runner refuses or reports, as types with data.

    RunnerError
    ├── InvalidInput          what was sent cannot be accepted as it is
    │   └── MessageTooLarge   a message is longer than may be sent
    ├── NotFound              absent, or somebody else's: never told apart
    ├── Forbidden             visible, but this principal may not do it
    │   ├── OperatorsOnly     only an operator may
    │   ├── OwnersOnly        only the thread's owner, or an operator, may
    │   └── ActsForAnother    only for whom the run acts, or an operator, may
    ├── KeyConflict           the idempotency key was used with other content
    ├── ThreadExists          the id is taken by a thread with another agent
    │   └── ThreadMismatch    the thread that was to be resolved is another one
    ├── ThreadBusy            on_busy is "reject" and a run is in progress
    ├── ThreadArchived        an archived thread takes no messages
    ├── ThreadChanged         the thread is not any more what the change was made for
    ├── AlreadyAnswered       the request has another answer
    ├── RequestClosed         the request's time is over, or its run has ended
    ├── WrongDecision         a request of that kind takes another kind of decision
    ├── OwnRequest            separation of duties: somebody else has to approve
    ├── ArgsChanged           the arguments are not those that were looked at
    ├── DecideFirst           a run that waits for somebody else's decision cannot be stopped
    ├── NotReplayable         the run cannot be run again, or not from there
    ├── InboxFull             too many messages wait in this thread
    ├── MembersFull           the thread has as many members as it may have
    ├── GrantsFull            the workspace has as many usable grants as it may have
    ├── UnknownAgent          the app does not have an agent of that name
    ├── Overloaded            a bound of this process is reached; try again later
    ├── Unavailable           the database cannot be reached or timed out
    └── Closed                this Runner was closed

    ClaimLost                 a write was refused: the claim lapsed or was taken over

Raised by tools and agents of the application:
    Rejection                 tell the model why, and let it try again
    RunFailure                fail the run with a typed reason
    NoCredential              a tool asks for a credential and is bound to none
"""

from typing import Any, ClassVar


class RunnerError(Exception):
    """A refusal with a stable `code`; `retryable` says whether the same call may succeed later."""

    code: ClassVar[str]
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class InvalidInput(RunnerError):
    """What was sent cannot be accepted as it is; `data["field"]` names the part."""

    code = "invalid_input"


class MessageTooLarge(InvalidInput):
    """A message, or what it is in another place, is longer than may be sent."""

    code = "message_too_large"

    def __init__(self, size: int, limit: int, *, field: str = "content") -> None:
        text = f"the {_called(field)} has {size} bytes, {limit} are allowed; send a reference instead"
        super().__init__(text, field=field, size=size, limit=limit)


def _called(field: str) -> str:
    return "message" if field == "content" else field


class NotFound(RunnerError):
    """There is no such thing that this principal may know of."""

    code = "not_found"

    def __init__(self, what: str, id: str) -> None:
        super().__init__(f"there is no {what} {id!r} that you may see", what=what, id=id)


class Forbidden(RunnerError):
    """The principal may see this thread but may not do that."""

    code = "forbidden"

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"you may read this thread but not {verb}; ask its owner for write access", verb=verb
        )


class OperatorsOnly(Forbidden):
    """Only an operator may do that."""

    def __init__(self, verb: str) -> None:
        RunnerError.__init__(self, f"only an operator may {verb}", verb=verb)


class OwnersOnly(Forbidden):
    """Only the owner of the thread, or an operator, may do that."""

    def __init__(self, verb: str) -> None:
        RunnerError.__init__(self, f"only the owner of this thread may {verb}", verb=verb)


class ActsForAnother(Forbidden):
    """Only the principal for whom the run acts, or an operator, may do that."""

    def __init__(self, verb: str) -> None:
        text = f"this run acts for somebody else, so only they or an operator may {verb}; send a message of your own"
        RunnerError.__init__(self, text, verb=verb)


class KeyConflict(RunnerError):
    """The idempotency key was already used with other content."""

    code = "key_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(
            "this key was used before with other content; use a new key for a new message", key=key
        )


class ThreadExists(RunnerError):
    """The thread id is taken by a thread with another agent."""

    code = "thread_exists"

    def __init__(self, thread: str) -> None:
        super().__init__("a thread with this id exists with another agent; choose another id", thread=thread)


class ThreadMismatch(ThreadExists):
    """The thread that was to be resolved is another one; nothing was added to it."""

    code = "thread_mismatch"

    def __init__(self, thread: str) -> None:
        RunnerError.__init__(
            self, "thread identity mismatch: this thread is another agent's; name that one", thread=thread
        )


class ThreadBusy(RunnerError):
    """A run is in progress and `on_busy` is "reject"; nothing was recorded."""

    code = "thread_busy"
    retryable = True

    def __init__(self, run: str | None) -> None:
        super().__init__("a run is in progress; wait for its end or send with on_busy 'steer'", run=run)


class ThreadArchived(RunnerError):
    """An archived thread takes no messages."""

    code = "thread_archived"

    def __init__(self, thread: str) -> None:
        super().__init__("this thread is archived, for good; start a new one", thread=thread)


class ThreadChanged(RunnerError):
    """The thread is not any more what the change was made for; nothing was changed."""

    code = "thread_changed"

    def __init__(self, thread: str) -> None:
        super().__init__("something has changed this thread; read it again, and decide again", thread=thread)


class AlreadyAnswered(RunnerError):
    """The request has another answer; each is answered once."""

    code = "already_answered"

    def __init__(self, request: str, *, by: str, decision: dict[str, Any]) -> None:
        text = f"this request was answered by {by!r} before, with {decision.get('kind')!r}; the first answer counts"
        super().__init__(text, request=request, by=by, decision=decision)


class RequestClosed(RunnerError):
    """The request takes no answer any more: its time is over, or its run has ended."""

    code = "request_closed"

    def __init__(self, request: str, *, why: str) -> None:
        super().__init__(f"this request takes no answer any more: {why}", request=request, why=why)


class WrongDecision(RunnerError):
    """A request of this kind takes another kind of decision."""

    code = "wrong_decision"

    def __init__(self, request: str, *, kind: str, allowed: tuple[str, ...]) -> None:
        text = f"a request of kind {kind!r} takes {', '.join(allowed)}"
        super().__init__(text, request=request, kind=kind, allowed=list(allowed))


class OwnRequest(RunnerError):
    """Separation of duties: whoever caused the request may reject it, but somebody else has to approve."""

    code = "own_request"

    def __init__(self, request: str) -> None:
        super().__init__(
            "you cannot approve your own request; ask another approver, or reject it", request=request
        )


class ArgsChanged(RunnerError):
    """The arguments of the request are not those that the decision was made on."""

    code = "args_changed"

    def __init__(self, request: str) -> None:
        text = "the decision names other arguments than the request has; look at the request again"
        super().__init__(text, request=request)


class DecideFirst(RunnerError):
    """A paused run that waits for somebody else's decision cannot be stopped."""

    code = "decide_first"

    def __init__(self, run: str) -> None:
        text = "this run waits for an approval that somebody else has to decide; approve or reject it instead"
        super().__init__(text, run=run)


class NotReplayable(RunnerError):
    """The run cannot be run again, or not from there; nothing was changed."""

    code = "not_replayable"

    def __init__(self, run: str, why: str) -> None:
        super().__init__(f"this run cannot be replayed: {why}", run=run, why=why)


class InboxFull(RunnerError):
    """Too many messages wait in this thread."""

    code = "inbox_full"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} messages already wait in this thread; let the run take them first", limit=limit
        )


class MembersFull(RunnerError):
    """The thread has as many members as it may have."""

    code = "members_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"this thread has {limit} members already; remove one first", limit=limit)


class GrantsFull(RunnerError):
    """The workspace has as many usable grants as it may have."""

    code = "grants_full"

    def __init__(self, limit: int) -> None:
        text = f"this workspace has {limit} usable grants already; revoke one first"
        super().__init__(text, limit=limit)


class UnknownAgent(RunnerError):
    """The app has no agent of that name."""

    code = "unknown_agent"

    def __init__(self, agent: str, known: tuple[str, ...]) -> None:
        text = f"there is no agent {agent!r}; this app has: {', '.join(known) or 'none'}"
        super().__init__(text, agent=agent, known=list(known))


class Overloaded(RunnerError):
    """A bound of this process is reached."""

    code = "overloaded"
    retryable = True


class Unavailable(RunnerError):
    """The database cannot be reached or did not answer in time.

    The outcome of a call that had begun is unknown: repeat it with the same key.
    """

    code = "unavailable"
    retryable = True


class Closed(RunnerError):
    """This Runner was closed and takes no more calls."""

    code = "closed"
    retryable = True

    def __init__(self) -> None:
        super().__init__("this process is shutting down; ask another replica")


class ClaimLost(Exception):
    """The claim lapsed or was taken over; its holder must stop at once.

    Args:
        thread: the thread.
        fence: of the claim.
        away: True if nobody said so, but the database could not be reached for as long as the claim may be trusted.
    """

    def __init__(self, thread: str, fence: int, *, away: bool = False) -> None:
        why = "could not be kept" if away else "is not the present one"
        super().__init__(f"the claim with fence {fence} on thread {thread} {why}")
        self.thread = thread
        self.fence = fence
        self.away = away


class Rejection(Exception):
    """Raise in a tool to tell the model why a call is refused, and let it try again."""


class Rejected(Exception):
    """People have rejected what the agent wanted to do, and its runs fail by that."""

    def __init__(self) -> None:
        super().__init__("what the agent wanted to do was rejected")


class RunFailure(Exception):
    """Raise in a tool or an agent to fail the run with a typed reason.

    Args:
        message: what went wrong, for people.
        reason: a short word of the application's own, recorded as the error's `type`.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NoCredential(RunFailure):
    """A tool has asked for a credential and is bound to none."""

    def __init__(self) -> None:
        super().__init__(
            "this tool has no credentials; bind it to a family of them: "
            "Hosted(agent, tools={'its_name': Binding(credentials='github')}, credentials={'github': ...})",
            reason="no_credential",
        )
