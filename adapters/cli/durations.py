"""Times as people say them. Pure."""

import re
from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


_GIVEN: Final = re.compile(r"(\d{1,9})\s*(s|m|min|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


class InvalidDuration(ValueError):
    """Text that is no duration."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:40]!r} is no time such as 90s, 30m, 1h or 7d")


def duration(text: str) -> timedelta:
    """Return a duration that somebody typed: `90s`, `30m`, `1h`, `7d`, or as `brief` says it.

    Raises:
        InvalidDuration: it is none.
    """
    given = _GIVEN.fullmatch(text.strip())
    if given is None:
        raise InvalidDuration(text)
    return timedelta(seconds=int(given[1]) * _SECONDS[given[2]])


def brief(seconds: float) -> str:
    """Return a duration in its largest unit: `7 s`, `3 min`, `5 h`, `2 d`."""
    seconds = max(0.0, seconds)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    count = seconds / size
    return f"{count:.0f} {unit}" if count >= 10 else f"{round(count, 1):g} {unit}"


def since(then: datetime, now: datetime) -> str:
    """Return how long ago something was."""
    return brief((now - then).total_seconds())


def moment(then: datetime, now: datetime) -> str:
    """Return a point in time with its date, in UTC as all records have it, and how long ago it was."""
    return f"{str(then)[:19]} UTC, {since(then, now)} ago"


def clock(then: datetime | str) -> str:
    """Return the time of day of a point in time, in UTC as all records have it, to the second."""
    return str(then)[11:19]
