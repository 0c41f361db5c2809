"""Ids: UUIDv7, which sort by the time they were made; those of threads and executions from a key are UUIDv5."""

from typing import Final
from uuid import UUID, uuid5

from uuid_utils.compat import uuid7

from threadhold.runner.ids import canonical

_EXECUTIONS: Final = UUID("0f1d5b8a-93c4-5c0e-8f52-6a7f2d41c6be")
_THREADS: Final = UUID("6b2f4d7e-6f1c-5a51-9d0e-0c6f3b3f9a11")


def new_id() -> UUID:
    """Return a fresh id that is larger than those made before."""
    return uuid7()


def thread_id_for_key(workspace: str, principal: str, key: str) -> UUID:
    """Return the id of the thread that a first message with this key makes, so that a retry finds it."""
    return uuid5(_THREADS, f"{workspace}\x00{principal}\x00{key}")


def execution_ids(workspace: str, principal: str, key: str | None) -> tuple[UUID, UUID]:
    """Return the ids of an execution and of its first thread: fresh ones, or those that belong to a key."""
    if key is None:
        return new_id(), new_id()
    execution = uuid5(_EXECUTIONS, f"{workspace}\x00{principal}\x00{key}")
    return execution, uuid5(execution, "thread")


def as_uuid(text: str, what: str) -> UUID:
    """Return the id; text that is not an id names nothing.

    Raises:
        NotFound: if the text is not an id.
    """
    return UUID(canonical(text, what))
