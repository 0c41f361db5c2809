"""An issuer's public keys, fetched from its URL: bounded in time, in size and in how often."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import structlog
from jwt import PyJWK

from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.keyring import Keyring
from threadhold.adapters.replies import shown
from threadhold.adapters.settings import LOCAL_HOSTS
from threadhold.runner.errors import Unavailable

log = structlog.get_logger(__name__)

FETCH_S: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"}
)
"""Only signatures of a private key: with a shared secret, a public key could pass for it."""
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


class UnusableKeys(Exception):
    """What the issuer answered is no set of keys that could be used."""


def keys_of(document: bytes) -> dict[str, PyJWK]:
    """Return the keys of a JWKS document by their ids; those that are of no use here are left out.

    Raises:
        UnusableKeys: it is no JWKS document, or no key is left.
    """
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnusableKeys("the answer is no JWKS document") from None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise UnusableKeys(f"the answer is no list of at most {KEYS_MAX} keys")
    found = {kid: key for kid, key in map(_key, listed) if key is not None}
    if not found:
        raise UnusableKeys("no key in the answer can verify a signature")
    return found


def _key(fields: Any) -> tuple[str, PyJWK | None]:
    """Return a key under its id, or None instead of one that does not verify signatures of this kind."""
    if not isinstance(fields, dict) or fields.get("use", "sig") != "sig" or fields.get("kty") == "oct":
        return "", None
    try:
        key = PyJWK(fields)
    except Exception:  # of whatever kind: one that cannot be read must not spoil the others
        return "", None
    return str(fields.get("kid", "")), key if key.algorithm_name in ALGORITHMS else None


async def fetch(url: str) -> dict[str, PyJWK]:
    """Fetch the keys.

    Raises:
        httpx.HTTPError, TimeoutError, UnusableKeys.
    """
    local = urlsplit(url).hostname in LOCAL_HOSTS
    document = bytearray()
    async with (
        asyncio.timeout(FETCH_S),
        httpx.AsyncClient(timeout=FETCH_S, trust_env=not local) as client,
        client.stream("GET", url, headers=_HEADERS) as answer,
    ):
        # A redirect is not followed: it would be an answer by somebody who was not named.
        answer.raise_for_status()
        # As it comes: what is packed small may be of any size unpacked.
        async for piece in answer.aiter_raw():
            document += piece
            if len(document) > BYTES_MAX:
                raise UnusableKeys(f"the answer has more than {BYTES_MAX} bytes")
    return keys_of(bytes(document))


class RemoteKeys:
    """Looks up keys. Fetches once at a time, in the background where the old ones still do.

    Args:
        url: where the issuer publishes its keys.
        clock: seconds that only grow.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._ring: Keyring[PyJWK] = Keyring()
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, kid: str | None) -> PyJWK:
        """Return the key of this id.

        Raises:
            TokenRefused: the issuer has no such key.
            Unavailable: the keys cannot be had now.
        """
        step = self._ring.step(kid, now=self._clock())
        if step in ("fetch", "use_and_fetch") and (self._fetching is None or self._fetching.done()):
            self._begin()
        if self._fetching is not None and step not in ("use", "use_and_fetch"):
            # Whoever gives up waiting does not end it for the others.
            await asyncio.shield(self._fetching)
        if not self._ring.usable(now=self._clock()):
            raise Unavailable("the keys that tokens are signed with cannot be fetched; try again")
        found = self._ring.key(kid)
        if found is None:
            raise TokenRefused(
                "unknown_key", "the token is signed with a key that its issuer does not publish"
            )
        return found

    def _begin(self) -> None:
        self._ring = replace(self._ring, tried_at=self._clock())
        self._fetching = asyncio.create_task(self._fetch(), name="jwks")

    async def _fetch(self) -> None:
        try:
            keys = await fetch(self._url)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, UnusableKeys) as error:
            log.warning("keys_not_fetched", url=shown(self._url), detail=_detail(error))
            return
        self._ring = replace(self._ring, keys=keys, fetched_at=self._clock())


def _detail(error: Exception) -> str:
    """Return what went wrong, without the URL, which may hold a password."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered {error.response.status_code}"
    return str(error) or type(error).__name__
