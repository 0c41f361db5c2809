"""The public keys of an issuer, as a value, and when to fetch them again. Pure: the time is passed in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

FRESH_S: Final = 300.0
"""For how long keys are used without looking again. Whose token comes first after that is not kept waiting: until the
new keys are there, the old ones still do."""
STALE_S: Final = 3600.0
"""For how long they are used while the issuer does not answer."""
RETRY_S: Final = 10.0
"""How long lies at least between two fetches, whatever tokens come in."""

Step = Literal["use", "use_and_fetch", "fetch", "unknown_key", "unavailable"]
K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring(Generic[K]):
    """Keys by id; times in seconds of a clock that only grows, None where it has not happened.

    Args:
        keys: as they were last fetched.
        fetched_at: when that was.
        tried_at: when the last fetch began, whatever came of it.
    """

    keys: Mapping[str, K] = field(default_factory=dict)
    fetched_at: float | None = None
    tried_at: float | None = None

    def step(self, kid: str | None, *, now: float) -> Step:
        """Return what to do about a token that names this key."""
        may_fetch = self.tried_at is None or now - self.tried_at >= RETRY_S
        if not self.usable(now=now):
            return "fetch" if may_fetch else "unavailable"
        if self.key(kid) is None:
            return "fetch" if may_fetch else "unknown_key"
        return "use_and_fetch" if may_fetch and now - (self.fetched_at or 0.0) >= FRESH_S else "use"

    def usable(self, *, now: float) -> bool:
        """Tell whether these keys may be used at all."""
        return self.fetched_at is not None and now - self.fetched_at < STALE_S

    def key(self, kid: str | None) -> K | None:
        """Return the key of this id; a token without one means the only key that there is."""
        if kid is None:
            return next(iter(self.keys.values())) if len(self.keys) == 1 else None
        return self.keys.get(kid)
