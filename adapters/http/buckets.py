"""How often somebody may do something, as values. Pure: the time is passed in."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

MINUTE_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of an allowance that fills up evenly; full, it holds a minute's worth.

    Args:
        left: how often it may be done at once.
        at: when that was so, in seconds of a clock that only grows.
    """

    left: float
    at: float

    def filled(self, *, now: float, per_minute: int) -> "Bucket":
        """Return what is left now."""
        grown = (now - self.at) * per_minute / MINUTE_S
        return Bucket(min(float(per_minute), self.left + grown), now)

    def taken(self) -> "Bucket":
        """Return it with one less."""
        return Bucket(self.left - 1.0, self.at)

    def wait_s(self, *, per_minute: int) -> float:
        """Return in how many seconds there will be one; 0 where there is one now."""
        return max(0.0, (1.0 - self.left) * MINUTE_S / per_minute)


@dataclass(slots=True)
class Buckets:
    """The buckets of many, each as often per minute as the others.

    Those who were quiet for longest are forgotten first. Within a minute's time that costs nothing: their buckets would
    be full again. Only if more than `remembered_max` have been busy within a minute is somebody given too much.
    """

    per_minute: int
    remembered_max: int = REMEMBERED_MAX
    kept: OrderedDict[Hashable, Bucket] = field(default_factory=OrderedDict)

    def take(self, who: Hashable, *, now: float) -> float:
        """Take one and return 0, or take nothing and return in how many seconds there will be one."""
        full = Bucket(float(self.per_minute), now)
        bucket = self.kept.pop(who, full).filled(now=now, per_minute=self.per_minute)
        wait_s = bucket.wait_s(per_minute=self.per_minute)
        self.kept[who] = bucket if wait_s else bucket.taken()
        while len(self.kept) > self.remembered_max:
            self.kept.popitem(last=False)
        return wait_s
