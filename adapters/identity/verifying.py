"""How this process tells who has a token: by a file, by signatures, or both; picked from the settings."""

from collections.abc import Sequence
from typing import Final, Protocol

from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.listed import TokensFile
from threadhold.adapters.identity.payload import Naming
from threadhold.adapters.settings import Settings
from threadhold.runner.records import Principal

TOKEN_CHARS_MAX: Final = 8 * 1024


class Verifier(Protocol):
    """Tells whose token it is."""

    async def principal(self, token: str) -> Principal:
        """Return whose token it is.

        Raises:
            TokenRefused: nobody's.
            Unavailable: it cannot be told now.
        """
        ...


class AnyOf:
    """Asks several in turn; what the last one says of a token that nobody knows counts."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        assert verifiers
        self._verifiers = verifiers

    async def principal(self, token: str) -> Principal:
        """Return whose token it is.

        Raises:
            TokenRefused: nobody's.
            Unavailable: it cannot be told now.
        """
        if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii():
            raise TokenRefused("malformed", f"a token has 1 to {TOKEN_CHARS_MAX} ASCII characters")
        refused: TokenRefused | None = None
        for verifier in self._verifiers:
            try:
                return await verifier.principal(token)
            except TokenRefused as error:
                refused = error
        assert refused is not None
        raise refused


def verifier_of(settings: Settings) -> Verifier | None:
    """Return what tells whose token it is; None where the settings name nothing that could.

    Raises:
        BadTokensFile: the file is named but cannot be used.
    """
    verifiers: list[Verifier] = []
    if settings.tokens_file is not None:
        verifiers.append(TokensFile(settings.tokens_file))
    if (signed := _signed(settings)) is not None:
        verifiers.append(signed)
    return AnyOf(verifiers) if verifiers else None


def _signed(settings: Settings) -> Verifier | None:
    if settings.jwt_secret is None and settings.jwt_jwks_url is None:
        return None
    # What checks signatures takes a fifth of a second to load, which those who do not need it should not wait for.
    from threadhold.adapters.identity.jwks import RemoteKeys
    from threadhold.adapters.identity.signed import SignedTokens

    return SignedTokens(
        secret=settings.jwt_secret.get_secret_value() if settings.jwt_secret is not None else None,
        keys=RemoteKeys(settings.jwt_jwks_url) if settings.jwt_jwks_url is not None else None,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        naming=Naming(workspace=settings.jwt_workspace_claim, roles=settings.jwt_roles_claim),
    )
