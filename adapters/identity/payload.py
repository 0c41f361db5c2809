"""What a verified token says about who asks: a payload in, a principal out. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from threadhold.adapters.identity.errors import TokenRefused
from threadhold.runner.errors import InvalidInput
from threadhold.runner.principals import checked_id, checked_principal
from threadhold.runner.records import Principal, Role

ROLES: Final[frozenset[Role]] = frozenset(get_args(Role))
PREFIX: Final = "threadhold:"
"""Scopes are shared with other services, so that a role may be said to be one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Under which names a token carries what it says; the principal's id is always its `sub`."""

    workspace: str = "workspace"
    roles: str = "roles"


def principal_of(payload: Mapping[str, Any], naming: Naming | None = None) -> Principal:
    """Return who a token's payload, whose signature was verified, is about.

    Args:
        payload: the token's fields.
        naming: what they are called.

    Raises:
        TokenRefused: it does not say, or in a form that cannot be one.
    """
    names = naming or Naming()
    for name in ("sub", names.workspace):
        if payload.get(name) in (None, ""):
            raise TokenRefused("missing_claim", f"the token has no {name!r}; have its issuer add it")
    try:
        id = checked_principal(payload["sub"], "sub")
        workspace = checked_id(payload[names.workspace], names.workspace)
    except InvalidInput as error:
        raise TokenRefused("bad_claim", f"the token cannot be used: {error.message}") from None
    return Principal(id=id, workspace=workspace, roles=roles_of(payload.get(names.roles)))


def roles_of(value: Any) -> frozenset[Role]:
    """Return the roles that are known among those of a list, or of a text with spaces between them.

    Everybody is a `user`; the words of other services are passed over.
    """
    words: Iterable[Any] = (
        value.split() if isinstance(value, str) else value if isinstance(value, list) else ()
    )
    plain = {word.removeprefix(PREFIX) for word in words if isinstance(word, str)}
    return frozenset(role for role in ROLES if role == "user" or role in plain)
