"""Signed tokens: every way in which one can be wrong is refused with its reason, and nothing of it is told."""

import base64
import json
import time
from typing import Any

import jwt
import pytest

from tests.identity.issuer import AUDIENCE, ISSUER, SECRET, secret_token
from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.payload import Naming
from threadhold.adapters.identity.signed import LEEWAY_S, SignedTokens

TOKENS = SignedTokens(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)


async def reason(token: str, tokens: SignedTokens = TOKENS) -> str:
    """Return why a token is refused."""
    with pytest.raises(TokenRefused) as refused:
        await tokens.principal(token)
    assert token not in refused.value.message
    return refused.value.reason


async def test_a_good_token_is_somebodys() -> None:
    found = await TOKENS.principal(secret_token(roles=["operator"]))
    assert (found.id, found.workspace, sorted(found.roles)) == ("ada", "acme", ["operator", "user"])
    several = secret_token(aud=["other", AUDIENCE])
    assert (await TOKENS.principal(several)).id == "ada"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": 1}, "expired"),
        ({"nbf": 1 << 33}, "not_yet_valid"),
        ({"secret": SECRET + "!"}, "bad_signature"),
        ({"aud": "other"}, "wrong_audience"),
        ({"aud": None}, "missing_claim"),
        ({"iss": "https://evil.example.com/"}, "wrong_issuer"),
        ({"iss": None}, "missing_claim"),
        ({"exp": None}, "missing_claim"),
        ({"sub": None}, "missing_claim"),
        ({"workspace": None}, "missing_claim"),
        ({"workspace": 5}, "bad_claim"),
        ({"sub": "system"}, "bad_claim"),
        ({"sub": 5}, "bad_claim"),
    ],
    ids=range(13),
)
async def test_a_wrong_token_is_refused_with_its_reason(changes: dict[str, Any], expected: str) -> None:
    assert await reason(secret_token(**changes)) == expected


async def test_clocks_may_lie_a_little_apart() -> None:
    assert (await TOKENS.principal(secret_token(exp=time.time() - LEEWAY_S / 2))).id == "ada"
    assert (await TOKENS.principal(secret_token(nbf=time.time() + LEEWAY_S / 2))).id == "ada"
    assert await reason(secret_token(exp=time.time() - LEEWAY_S - 60)) == "expired"
    assert await reason(secret_token(nbf=time.time() + LEEWAY_S + 60)) == "not_yet_valid"


def part(value: Any) -> str:
    """Return a value as one part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "token", ["", "x", "a.b.c", "a.b", "....", "\ud800.x.y", part({"alg": "HS256"}) + ".x.y"], ids=repr
)
async def test_what_is_no_token_is_malformed(token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        await TOKENS.principal(token)
    assert refused.value.reason == "malformed"


async def test_a_token_cannot_choose_how_it_is_checked() -> None:
    fields = jwt.decode(secret_token(), options={"verify_signature": False})
    unsigned = f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(fields)}."
    assert await reason(unsigned) == "wrong_algorithm"
    longer = jwt.encode(fields, SECRET * 2, algorithm="HS512")
    assert await reason(longer) == "wrong_algorithm"


async def test_a_token_for_somebody_is_refused_where_nobody_is_named() -> None:
    tokens = SignedTokens(secret=SECRET)
    assert await reason(secret_token(), tokens) == "wrong_audience"
    assert (await tokens.principal(secret_token(aud=None))).id == "ada"


async def test_the_fields_have_the_names_that_were_set() -> None:
    tokens = SignedTokens(
        secret=SECRET, issuer=ISSUER, audience=AUDIENCE, naming=Naming(workspace="org", roles="scope")
    )
    found = await tokens.principal(secret_token(workspace=None, org="acme", scope="threadhold:approver"))
    assert (found.workspace, sorted(found.roles)) == ("acme", ["approver", "user"])
    assert await reason(secret_token(), tokens) == "missing_claim"
