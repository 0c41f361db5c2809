"""Who asks: turns the headers of a request into a principal."""

from collections.abc import Callable, Mapping
from typing import Final

from threadhold.runner.records import Principal

Authenticate = Callable[[Mapping[str, str]], Principal]
"""Returns who sent these headers (the keys are looked up in lower case), or raises a typed error."""

_LOCAL: Final = Principal(id="local", workspace="default", roles=frozenset({"user", "approver", "operator"}))


def local_principal(headers: Mapping[str, str] | None = None) -> Principal:
    """Return the one principal of a private server, whoever asks.

    Args:
        headers: not looked at: whoever reaches the server is its user.
    """
    return _LOCAL
