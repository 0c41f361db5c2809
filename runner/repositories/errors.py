"""What stores of run records refuse, beside what the Runner refuses; each writes nothing.

    UnknownRun          there is no record of that id that the caller may see (also a KeyError)
    RunExists           the id of a new record is taken
    RunChanged          the record is not any more what the write was made for
    OtherProgram        the thread is another agent's, or of another version or deployment

A step that the table of statuses does not have raises `threadhold.runner.machine.InvalidTransition`, and a write under
a claim that is gone raises `threadhold.runner.errors.ClaimLost`.
"""

from threadhold.runner.errors import NotFound, RunnerError, ThreadMismatch
from threadhold.runner.machine import RunStatus


class UnknownRun(NotFound, KeyError):
    """There is no record of that run that the caller may see."""

    def __init__(self, run: str) -> None:
        super().__init__("run record", run)

    def __str__(self) -> str:
        return self.message


class RunExists(RunnerError):
    """The id of a new record is taken; whose it is is not told, and nothing of theirs was touched."""

    code = "run_exists"

    def __init__(self, run: str) -> None:
        super().__init__("a run with this id exists; take another id", run=run)


class RunChanged(RunnerError):
    """The record is not any more what the write was made for; `status` is where it stands."""

    code = "run_changed"

    def __init__(self, run: str, *, status: RunStatus) -> None:
        super().__init__("something has changed this run; read it again, and decide again", run=run)
        self.status = status


class OtherProgram(ThreadMismatch):
    """The thread is another agent's, of another version or deployment, or somebody else's: never told apart."""

    def __init__(self, thread: str) -> None:
        text = "thread identity mismatch: this thread is of another agent, version or deployment"
        RunnerError.__init__(self, text, thread=thread)
