"""A claim and the time for which its holder may trust it, as values."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one thread.

    `claim_id` is compared by every write; `fence` only grows per thread and orders what claims left behind.
    """

    thread: str
    claim_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTimes:
    """How long claims last and how they are kept, in seconds.

    `margin` is how long it may take to stop an agent: trust ends that much before the claim can lapse.

    Raises:
        ValueError: if a renewal could come too late.
    """

    ttl: float = 15.0
    renew_every: float = 1.5
    margin: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.renew_every < self.ttl - self.margin:
            raise ValueError(f"renew_every must be positive and below ttl - margin: {self}")

    def trusted_until(self, began: float) -> float:
        """Return when trust ends, for a claim or renewal whose request was sent at `began`.

        Counted from before the request was sent: the database's own expiry can then only be later. The idea is the
        "trust window" of leader leases.
        """
        return began + self.ttl - self.margin

    @property
    def attempt_timeout(self) -> float:
        """How long one renewal may take before its connection is given up."""
        return self.ttl / 6

    @property
    def retry_after(self) -> float:
        """How soon a failed renewal is tried again."""
        return min(self.renew_every, self.ttl / 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What the store says of one claim.

    `busy` means that its row was locked just then: neither renewed nor lost. `stop` and `waiting` are news for the
    holder, which ride along so that they arrive without Redis too.
    """

    claim_id: str
    result: Literal["renewed", "lost", "busy"]
    stop: bool = False
    waiting: int = 0
