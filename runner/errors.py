"""Everything the Runner refuses or reports, as types with data.

    RunnerError
    ├── InvalidInput          what was sent cannot be accepted as it is
    │   └── MessageTooLarge   a message is longer than may be sent
    ├── NotFound              absent, or somebody else's: never told apart
    ├── Forbidden             visible, but this principal may not do it
    ├── KeyConflict           the idempotency key was used with other content
    ├── ThreadExists          the id is taken by a thread with another agent
    ├── ThreadBusy            on_busy is "reject" and a run is in progress
    ├── ThreadArchived        an archived thread takes no messages
    ├── InboxFull             too many messages wait in this thread
    ├── UnknownAgent          the app does not have an agent of that name
    ├── Overloaded            a bound of this process is reached; try again later
    ├── Unavailable           the database cannot be reached or timed out
    └── Closed                this Runner was closed

    ClaimLost                 a write was refused: the claim lapsed or was taken over

Raised by tools and agents of the application:
    Rejection                 tell the model why, and let it try again
    RunFailure                fail the run with a typed reason
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
    """A message is longer than may be sent."""

    code = "message_too_large"

    def __init__(self, size: int, limit: int) -> None:
        text = f"the message has {size} bytes, {limit} are allowed; send a reference instead"
        super().__init__(text, field="content", size=size, limit=limit)


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
        super().__init__("this thread is archived; reopen it or start a new one", thread=thread)


class InboxFull(RunnerError):
    """Too many messages wait in this thread."""

    code = "inbox_full"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} messages already wait in this thread; let the run take them first", limit=limit
        )


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
    """A write was refused because its claim lapsed or was taken over; the holder must stop at once."""

    def __init__(self, thread: str, fence: int) -> None:
        super().__init__(f"the claim with fence {fence} on thread {thread} is not the present one")
        self.thread = thread
        self.fence = fence


class Rejection(Exception):
    """Raise in a tool to tell the model why a call is refused, and let it try again."""


class RunFailure(Exception):
    """Raise in a tool or an agent to fail the run with a typed reason.

    Args:
        message: what went wrong, for people.
        reason: a short word of the application's own, recorded as the error's `type`.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
