"""The part of the Runner that finds a thread or makes it, and adds to what it is about."""

from collections.abc import Sequence
from typing import TypeVar, get_args

from threadhold.runner.app import Threadhold
from threadhold.runner.errors import InvalidInput
from threadhold.runner.ids import canonical
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.principals import checked_id
from threadhold.runner.records import REFS_MAX, Principal, Thread, ThreadStatus
from threadhold.runner.sharing import Sharing

T = TypeVar("T")


class Resolving(Sharing):
    """Resolves threads; each call is checked like any other."""

    app: Threadhold

    async def resolve_thread(
        self,
        thread: str | None = None,
        *,
        agent: str,
        by: Principal,
        participants: Sequence[str] = (),
        memory: Sequence[MemoryBinding] = (),
        state_refs: Sequence[str] = (),
        status: ThreadStatus | None = None,
    ) -> Thread:
        """Return a thread, made if it is not there, with these things added to what it is about.

        What is there already stays where it is, so the same call again changes nothing. What changes is on the log.

        Args:
            thread: which; None makes one with a new id.
            agent: whose thread it is; a thread of another agent is refused.
            by: who asks; to whoever may not see a thread of that id it is not found.
            participants: the names of other agents that take part.
            memory: which memory its runs are given from now on.
            state_refs: names of what other systems keep for it.
            status: what it is to be; None leaves it as it is.

        Raises:
            InvalidInput, NotFound, Forbidden, UnknownAgent, ThreadMismatch, ThreadArchived, ThreadBusy, Unavailable,
            Closed.
        """
        self._check_open()
        self.app.hosted(agent)
        if status is not None and status not in get_args(ThreadStatus):
            raise InvalidInput(f"status is one of {', '.join(get_args(ThreadStatus))}", field="status")
        found, seq = await self._threads.resolve(
            canonical(thread, "thread") if thread else self._threads.new_thread_id(by=by, key=None),
            agent=agent,
            participants=checked_names(participants, "participants"),
            memory=checked_memory(memory),
            state_refs=checked_names(state_refs, "state_refs"),
            status=status,
            by=by,
        )
        self._wires.ring(found.id, seq)
        return found


def checked_memory(memory: Sequence[MemoryBinding]) -> tuple[MemoryBinding, ...]:
    """Return bindings if they may be kept.

    Raises:
        InvalidInput: one of their words is not 1 to 200 printable characters, or there are more than 100.
    """
    for each in _few(memory, "memory"):
        for name in ("connector", "instance", "scope"):
            checked_id(getattr(each, name), f"memory.{name}")
    return tuple(memory)


def checked_names(names: Sequence[str], field: str) -> list[str]:
    """Return names if they may be kept.

    Raises:
        InvalidInput: one of them is not 1 to 200 printable characters, or there are more than 100.
    """
    return [checked_id(name, field) for name in _few(names, field)]


def _few(items: Sequence[T], field: str) -> Sequence[T]:
    if isinstance(items, str) or len(items) > REFS_MAX:
        raise InvalidInput(f"{field} is a list of at most {REFS_MAX}", field=field)
    return items
