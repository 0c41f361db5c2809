"""Claims: the right of one worker to run a thread, kept alive and given up in time. Knows nothing of runs."""

from threadhold.claims.claim import Claim, ClaimTimes, Renewal
from threadhold.claims.keeper import Held, Keeper, News
from threadhold.claims.ports import Renewer

__all__ = ["Claim", "ClaimTimes", "Held", "Keeper", "News", "Renewal", "Renewer"]
