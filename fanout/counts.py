"""What a hub has done and is doing, in numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from threadhold.fanout.frame import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStats:
    """What the hub is doing.

    Args:
        threads: how many are watched.
        watchers: how many watches are open.
        deliveries: frames that watchers were handed.
        gaps: those of them that told of something missing, by reason.
        overflows: how often a slow watcher's queue was given up.
        healthy: whether Redis and Postgres can be heard.
    """

    threads: int
    watchers: int
    deliveries: int
    gaps: Mapping[str, int]
    overflows: int
    healthy: bool


@dataclass(slots=True)
class Deliveries:
    """Counts the frames that watchers are handed."""

    total: int = 0
    gaps: Counter[str] = field(default_factory=Counter)

    def add(self, frame: Frame) -> None:
        """Count a frame."""
        self.total += 1
        if frame.kind == "gap":
            self.gaps[frame.data["reason"]] += 1
