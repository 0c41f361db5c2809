"""Checkpoints: positions in a thread's history that a run has reached, and may be replayed from."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from threadhold.runner.errors import NotFound
from threadhold.runner.ids import canonical

CHUNK_MAX: Final = 2**63 - 1
ID_CHARS_SHOWN: Final = 80
_CHUNK: Final = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the model had been shown and had said when the run wrote it down; `parent` is the position before it.

    Args:
        messages: how many were written down there, and `ends_in` what the last of them is. Behind a request the run can
            be replayed; behind a response there is nothing to ask.
        requests: those that the run paused with there.
        seq: the thread's log by then.
    """

    id: str
    run: str
    thread: str
    attempt: int
    parent: str | None
    messages: int
    ends_in: Literal["request", "response"]
    requests: tuple[str, ...]
    seq: int
    fence: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay has made: a `run` that goes on from `checkpoint` and names its `origin`.

    `no_worker` is True when no live worker has the agent: the run waits for one.
    """

    thread: str
    run: str
    origin: str
    checkpoint: str
    seq: int
    duplicate: bool
    no_worker: bool


def checkpoint_id(run: object, chunk: int) -> str:
    """Return the public id of the position that a run reached with a chunk of its thread's history."""
    return f"{run}.{chunk}"


def parse_checkpoint(text: str) -> tuple[str, int]:
    """Return the run and the chunk that a checkpoint's id names.

    Raises:
        NotFound: it is no such id, so it names nothing.
    """
    run, dot, chunk = text.partition(".")
    if not dot or _CHUNK.fullmatch(chunk) is None or int(chunk) > CHUNK_MAX:
        raise NotFound("checkpoint", text[:ID_CHARS_SHOWN])
    try:
        return canonical(run, "run"), int(chunk)
    except NotFound:
        raise NotFound("checkpoint", text[:ID_CHARS_SHOWN]) from None
