"""Tokens that an issuer has signed (JWT): checked against its secret or its published keys."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jwt
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAlgorithmError,
    InvalidAudienceError,
    InvalidIssuedAtError,
    InvalidIssuerError,
    InvalidSignatureError,
    InvalidSubjectError,
    InvalidTokenError,
    MissingRequiredClaimError,
    PyJWTError,
)

from threadhold.adapters.identity.errors import Reason, TokenRefused
from threadhold.adapters.identity.jwks import ALGORITHMS, RemoteKeys
from threadhold.adapters.identity.payload import Naming, principal_of
from threadhold.runner.records import Principal

LEEWAY_S: Final = 30.0
"""How far the issuer's clock and ours may lie apart."""
_SECRET_ALGORITHM: Final = "HS256"
_REFUSALS: Final[tuple[tuple[type[PyJWTError], Reason, str], ...]] = (
    (ExpiredSignatureError, "expired", "the token has expired; get a new one"),
    (ImmatureSignatureError, "not_yet_valid", "the token is not valid yet; is a clock wrong?"),
    (InvalidIssuedAtError, "bad_claim", "the token's time of issue is none"),
    (InvalidSubjectError, "bad_claim", "the token's subject is no text"),
    (InvalidAudienceError, "wrong_audience", "the token is for another service"),
    (InvalidIssuerError, "wrong_issuer", "the token was issued by somebody else than is trusted here"),
    (InvalidSignatureError, "bad_signature", "the token was not signed by whoever is trusted here"),
    (InvalidAlgorithmError, "wrong_algorithm", "the token is signed in a way that is not accepted here"),
)


class SignedTokens:
    """Verifies JWTs.

    Args:
        secret: what signs them (HS256), or
        keys: where the public keys come from.
        issuer, audience: what `iss` and `aud` have to be; a token that has an `aud` is refused without an audience.
        naming: under which names they carry the workspace and the roles.
    """

    def __init__(
        self,
        *,
        secret: str | None = None,
        keys: RemoteKeys | None = None,
        issuer: str | None = None,
        audience: str | None = None,
        naming: Naming | None = None,
    ) -> None:
        assert (secret is None) != (keys is None)
        self._secret = secret
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._naming = naming or Naming()

    async def principal(self, token: str) -> Principal:
        """Return who a token is of.

        Raises:
            TokenRefused: nobody's.
            Unavailable: the keys cannot be had now.
        """
        header = _checked(lambda: jwt.get_unverified_header(token))
        if self._keys is None:
            assert self._secret is not None
            return self._verified(token, self._secret, _SECRET_ALGORITHM)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused("wrong_algorithm", "the token is signed in a way that is not accepted here")
        kid = header.get("kid")
        key = await self._keys.key(kid if isinstance(kid, str) else None)
        return self._verified(token, key, key.algorithm_name)

    def _verified(self, token: str, key: str | PyJWK, algorithm: str) -> Principal:
        payload: Mapping[str, Any] = _checked(
            lambda: jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "sub"]},
            )
        )
        return principal_of(payload, self._naming)


def _checked(check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a check of the library returns; its refusals are told in our words."""
    try:
        return check()
    except MissingRequiredClaimError as error:
        raise TokenRefused(
            "missing_claim", f"the token has no {error.claim!r}; have its issuer add it"
        ) from None
    except InvalidTokenError as error:
        for kind, reason, message in _REFUSALS:
            if isinstance(error, kind):
                raise TokenRefused(reason, message) from None
        raise TokenRefused("malformed", "the token is no JWT that can be read") from None
    except (PyJWTError, ValueError, RecursionError):
        raise TokenRefused("malformed", "the token is no JWT that can be read") from None
