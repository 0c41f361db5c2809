"""Who asks: turns the headers of a request into a principal, once for a call and again and again for a stream."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.verifying import Verifier
from threadhold.runner.records import Principal

Authenticate = Callable[[Mapping[str, str]], Principal | Awaitable[Principal]]
"""Returns who sent these headers (the keys are looked up in lower case), or raises a typed error; may be async.

It raises `Unauthenticated`, with the reason "missing" where nothing was shown at all: a WebSocket may do so later.
"""

_LOCAL: Final = Principal(id="local", workspace="default", roles=frozenset({"user", "approver", "operator"}))
_BEARER: Final = "bearer"


def local_principal(headers: Mapping[str, str] | None = None) -> Principal:
    """Return the one principal of a private server, whoever asks.

    Args:
        headers: not looked at: whoever reaches the server is its user.
    """
    return _LOCAL


def bearer(verifier: Verifier) -> Authenticate:
    """Return what takes the token of `Authorization: Bearer ...` and asks whose it is."""

    async def authenticate(headers: Mapping[str, str]) -> Principal:
        token = _token(headers.get("authorization"))
        try:
            return await verifier.principal(token)
        except TokenRefused as refused:
            raise Unauthenticated(refused.message, reason=refused.reason) from None

    return authenticate


def with_token(headers: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the headers with a token that came another way, where it would have stood."""
    return {**headers, "authorization": f"{_BEARER} {token}"}


def _token(header: str | None) -> str:
    """Return the token of a header.

    Raises:
        Unauthenticated: there is none.
    """
    if header is None:
        raise Unauthenticated("send a token: 'Authorization: Bearer ...'", reason="missing")
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != _BEARER or not token:
        raise Unauthenticated("the header is not of the form 'Authorization: Bearer ...'", reason="malformed")
    return token.strip()


async def asked(authenticate: Authenticate, headers: Mapping[str, str]) -> Principal:
    """Return who sent these headers, whether it takes a while to find out or not."""
    found = authenticate(headers)
    return await found if inspect.isawaitable(found) else found


def through(principal: Principal, path: str) -> Principal:
    """Return a principal as somebody who came in by a path of the API."""
    return replace(principal, interface="mcp" if path.startswith("/mcp") else "rest")


class Caller:
    """Whoever keeps a stream or a socket open, with what they showed, so that it can be looked at again.

    A token may expire, be withdrawn, or mean other roles by then.

    Args:
        authenticate: tells who sent these headers.
        headers: what was shown.
        principal: who that was when it was looked at first.
    """

    def __init__(self, authenticate: Authenticate, headers: Mapping[str, str], principal: Principal) -> None:
        self._authenticate = authenticate
        self._headers = headers
        self._principal = principal

    @property
    def principal(self) -> Principal:
        """Who it was when it was last looked at."""
        return self._principal

    async def look_again(self) -> Principal:
        """Return who it is now.

        Raises:
            Unauthenticated: what was shown is not good any more.
            Unavailable: it cannot be told now.
        """
        return await self._see(self._headers)

    async def show(self, token: str) -> Principal:
        """Take a newer token of the same principal, and return who that is.

        Raises:
            Unauthenticated: it is nobody's, or somebody else's; what was shown before still counts.
            Unavailable: it cannot be told now.
        """
        headers = with_token(self._headers, token)
        found = await self._see(headers)
        self._headers = headers
        return found

    async def _see(self, headers: Mapping[str, str]) -> Principal:
        found = await asked(self._authenticate, headers)
        if (found.id, found.workspace) != (self._principal.id, self._principal.workspace):
            raise Unauthenticated("this is somebody else's; connect anew with it", reason="other_principal")
        self._principal = replace(found, interface=self._principal.interface)
        return self._principal
