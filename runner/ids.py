"""Ids as text. Each has one form, so that it is the same key everywhere."""

from uuid import UUID

from threadhold.runner.errors import NotFound


def canonical(id: str, what: str) -> str:
    """Return an id in its one form; text that is not an id names nothing.

    Raises:
        NotFound: if the text is not an id.
    """
    try:
        return str(UUID(id))
    except ValueError:
        raise NotFound(what, id[:80]) from None
