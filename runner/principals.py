"""What an id of a principal or a workspace may look like. Pure."""

import re
from typing import Final

from threadhold.runner.errors import InvalidInput

ID_CHARS_MAX: Final = 200
# Facts name these where the system itself has acted; nobody else may be taken for it.
RESERVED: Final = frozenset({"system", "runner"})
# Controls, what cannot be seen, and every space but the plain one. Spelled out, and not asked of Unicode's tables,
# since these grow: an id must not be good on one machine and bad on another.
_HIDDEN: Final = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e01ef"
)
ID_PATTERN: Final = rf"^[^{_HIDDEN} ]([^{_HIDDEN}]*[^{_HIDDEN} ])?$"
"""What an id looks like, as a regular expression that all languages read alike."""
_ID: Final = re.compile(ID_PATTERN)


def checked_id(value: object, field: str) -> str:
    """Return the id of a principal or of a workspace.

    Args:
        value: what was given, of any type.
        field: what to call it in the refusal.

    Raises:
        InvalidInput: it is no text of 1 to 200 printable characters, or is surrounded by spaces.
    """
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{field} is a text that is not empty", field=field)
    if len(value) > ID_CHARS_MAX:
        raise InvalidInput(f"{field} has at most {ID_CHARS_MAX} characters", field=field)
    if _ID.fullmatch(value) is None or not _is_unicode(value):
        raise InvalidInput(f"{field} has only printable characters, and no space around them", field=field)
    return value


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def checked_principal(value: object, field: str) -> str:
    """Return the id of a principal who is not the system itself.

    Raises:
        InvalidInput: it is not one.
    """
    id = checked_id(value, field)
    if id in RESERVED:
        raise InvalidInput(f"{id!r} is what the system itself is called; use another {field}", field=field)
    return id
