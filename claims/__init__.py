"""Claims: the right of one worker to run a thread, kept alive and given up in time. Knows nothing of runs."""

from threadhold.claims.claim import Claim, ClaimTimes, Renewal
from threadhold.claims.doing import Blocker
from threadhold.claims.keeper import Held, Keeper, KeeperStats, News, TooManyClaims
from threadhold.claims.ports import Link, Renewer

__all__ = [
    "Blocker",
    "Claim",
    "ClaimTimes",
    "Held",
    "Keeper",
    "KeeperStats",
    "Link",
    "News",
    "Renewal",
    "Renewer",
    "TooManyClaims",
]
