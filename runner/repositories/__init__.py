"""Records of runs that a program of one's own keeps: the models, and what a store of them does."""

from threadhold.runner.machine import RunStatus
from threadhold.runner.memory import MemoryBinding as ThreadMemoryBinding
from threadhold.runner.records import ThreadStatus
from threadhold.runner.repositories.errors import OtherProgram, RunChanged, RunExists, UnknownRun
from threadhold.runner.repositories.models import (
    PendingRequest,
    Run,
    RunConditionResult,
    RunFailureState,
    RunHistoryEntry,
    RunState,
    ThreadRecord,
)
from threadhold.runner.repositories.ports import (
    CheckpointStore,
    RunLists,
    RunNotes,
    RunReader,
    RunRepository,
    RunWriter,
    ThreadStore,
)
from threadhold.runner.repositories.recorder import ConditionResultRecorder, branches

Thread = ThreadRecord

__all__ = [
    "CheckpointStore",
    "ConditionResultRecorder",
    "OtherProgram",
    "PendingRequest",
    "Run",
    "RunChanged",
    "RunConditionResult",
    "RunExists",
    "RunFailureState",
    "RunHistoryEntry",
    "RunLists",
    "RunNotes",
    "RunReader",
    "RunRepository",
    "RunState",
    "RunStatus",
    "RunWriter",
    "Thread",
    "ThreadMemoryBinding",
    "ThreadRecord",
    "ThreadStatus",
    "ThreadStore",
    "UnknownRun",
    "branches",
]
