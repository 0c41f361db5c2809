"""For whom a run acts, as an agent's dependencies and the owners of secrets are told."""

from dataclasses import dataclass

from threadhold.runner.memory import MemoryBinding, bindings_of
from threadhold.runner.records import Principal, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """For whom and where a run acts; the same at every attempt, on any machine.

    `memory` is what the thread is bound to by the time of the attempt. Whoever may write to the thread has bound it, so
    whether the principal may use it is for the application to judge.
    """

    principal: Principal
    workspace: str
    thread: str
    run: str
    attempt: int
    fence: int
    memory: tuple[MemoryBinding, ...] = ()


def identity_of(start: Start) -> RunIdentity:
    """Return for whom and where a run acts that a worker was given."""
    return RunIdentity(
        principal=Principal(id=start.principal, workspace=start.workspace, roles=start.roles),
        workspace=start.workspace,
        thread=start.thread,
        run=start.run,
        attempt=start.attempt,
        fence=start.fence,
        memory=bindings_of(start.memory),
    )
