"""Why somebody is not let in, or why this process cannot tell who they are."""

from typing import ClassVar, Literal

Reason = Literal[
    "malformed",
    "unknown",
    "expired",
    "not_yet_valid",
    "bad_signature",
    "wrong_algorithm",
    "unknown_key",
    "wrong_audience",
    "wrong_issuer",
    "missing_claim",
    "bad_claim",
]


class TokenRefused(Exception):
    """A token that does not show who asks. The text never holds any part of it.

    Args:
        reason: a stable word for programs.
        message: what is wrong and what to do about it.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class BadTokensFile(Exception):
    """The file with the tokens cannot be used as it is.

    Args:
        path: the file.
        why: what is wrong and what to do about it.
    """

    code: ClassVar[str] = "bad_tokens_file"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the tokens file {path} {why}")
        self.path = path


class IdentityMissing(Exception):
    """Others could reach this server, and it could not tell who they are."""

    code: ClassVar[str] = "identity_missing"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} can be reached from other machines, and there is no way to tell who calls: set "
            "THREADHOLD_TOKENS_FILE, THREADHOLD_JWT_SECRET or THREADHOLD_JWT_JWKS_URL; or listen on 127.0.0.1; or, "
            "where whoever reaches it may do everything, say so with THREADHOLD_OPEN_ACCESS=true"
        )
        self.host = host
