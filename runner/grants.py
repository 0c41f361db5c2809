"""Grants: how often a capability may be used, by whom and where. Values in, values out."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from threadhold.runner.errors import InvalidInput
from threadhold.runner.ids import canonical
from threadhold.runner.principals import checked_id, checked_principal

GrantStatus = Literal["usable", "used_up", "expired", "revoked"]

USES_MAX: Final = 1_000_000
GRANTS_MAX: Final = 1000
"""How many usable grants a workspace may have; those that are over do not count."""
REASON_CHARS_MAX: Final = 1000
LASTS_MIN: Final = timedelta(seconds=1)
LASTS_MAX: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Leave to use a capability so many times. Each use is taken before the act, and none is ever given back.

    `principal` and `thread` are for whom and where it is; None for whoever and wherever. `status` is what it was when
    it was read, by the database's clock.
    """

    id: str
    workspace: str
    capability: str
    principal: str | None
    thread: str | None
    uses: int
    used: int
    status: GrantStatus
    granted_by: str
    reason: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGrant:
    """What an operator wants to grant."""

    capability: str
    uses: int
    principal: str | None
    thread: str | None
    expires_in: timedelta | None
    reason: str


def checked_grant(
    capability: object,
    *,
    uses: object,
    principal: object,
    thread: str | None,
    expires_in: object,
    reason: object,
) -> NewGrant:
    """Return what is to be granted, if it may be.

    Raises:
        InvalidInput: something is not what it has to be, or is beyond its bounds.
        NotFound: the thread's id is no id.
    """
    return NewGrant(
        capability=checked_id(capability, "capability"),
        uses=_checked_uses(uses),
        principal=None if principal is None else checked_principal(principal, "principal"),
        thread=None if thread is None else canonical(thread, "thread"),
        expires_in=_checked_lasts(expires_in),
        reason=_checked_reason(reason),
    )


def _checked_uses(uses: object) -> int:
    if not isinstance(uses, int) or isinstance(uses, bool) or not 0 < uses <= USES_MAX:
        raise InvalidInput(f"uses is a number from 1 to {USES_MAX}", field="uses")
    return uses


def _checked_lasts(lasts: object) -> timedelta | None:
    if lasts is None:
        return None
    if not isinstance(lasts, timedelta) or not LASTS_MIN <= lasts <= LASTS_MAX:
        raise InvalidInput(
            f"expires_in is one second to {LASTS_MAX.days} days; None is for good", field="expires_in"
        )
    return lasts


def _checked_reason(reason: object) -> str:
    text = reason if isinstance(reason, str) else None
    if text is None or len(text) > REASON_CHARS_MAX:
        raise InvalidInput(f"a reason is text of at most {REASON_CHARS_MAX} characters", field="reason")
    if any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput("a reason is valid Unicode without NUL characters", field="reason")
    return text
