"""What can go wrong in the fan-out.

FanoutError
    LiveUnavailable    Redis did not do what was asked; nothing durable is lost
    WatchInterrupted   a watch had to end without a terminal frame; it can be taken up again
"""

from typing import ClassVar


class FanoutError(Exception):
    """Base of all errors of the fan-out."""

    code: ClassVar[str] = "fanout"
    retryable: ClassVar[bool] = False


class LiveUnavailable(FanoutError):
    """The live store (Redis) is away, too slow or refuses; what it would have carried is only a hint."""

    code = "live_unavailable"
    retryable = True

    def __init__(self, operation: str, cause: str) -> None:
        self.operation = operation
        self.cause = cause
        super().__init__(f"redis could not {operation}: {cause}; check THREADHOLD_REDIS_URL and the server")


class WatchInterrupted(FanoutError):
    """A watch ended early; watching again after `cursor` loses nothing."""

    code = "unavailable"
    retryable = True

    def __init__(self, *, thread: str, cursor: str, reason: str) -> None:
        self.thread = thread
        self.cursor = cursor
        self.reason = reason
        super().__init__(
            f"the watch of thread {thread} was interrupted: {reason}; watch again after {cursor}"
        )
