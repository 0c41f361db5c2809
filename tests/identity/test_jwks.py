"""Published keys: fetched when needed, kept, rotated, and bounded whatever the issuer answers."""

import asyncio
import gzip
import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from tests.identity.issuer import (
    AUDIENCE,
    ISSUER,
    Clock,
    Issuer,
    issuing,
    key_token,
    payload,
    private_key,
    public_key,
)
from threadhold.adapters.identity import jwks
from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.jwks import RemoteKeys
from threadhold.adapters.identity.keyring import FRESH_S, RETRY_S, STALE_S
from threadhold.adapters.identity.signed import SignedTokens
from threadhold.runner.errors import Unavailable


def tokens_of(issuer: Issuer, clock: Clock | None = None) -> SignedTokens:
    """Return what verifies the issuer's tokens."""
    keys = RemoteKeys(issuer.url, clock=clock or Clock())
    return SignedTokens(keys=keys, issuer=ISSUER, audience=AUDIENCE)


async def reason(tokens: SignedTokens, token: str) -> str:
    """Return why a token is refused."""
    with pytest.raises(TokenRefused) as refused:
        await tokens.principal(token)
    return refused.value.reason


async def test_keys_are_fetched_once_for_all_who_come_at_once() -> None:
    async with issuing("a", "b") as issuer:
        issuer.gate.clear()
        tokens = tokens_of(issuer)
        coming = [asyncio.create_task(tokens.principal(key_token(kid))) for kid in "abab"]
        while not issuer.asked:
            await asyncio.sleep(0.005)
        coming[0].cancel()
        issuer.gate.set()
        found = await asyncio.gather(*coming, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert [who.id for who in found[1:] if not isinstance(who, BaseException)] == ["ada"] * 3
        assert issuer.asked == 1


async def test_a_new_key_is_found_and_an_unknown_one_asked_for_once_in_a_while() -> None:
    clock = Clock()
    async with issuing("a") as issuer:
        tokens = tokens_of(issuer, clock)
        await tokens.principal(key_token("a"))
        issuer.publish(public_key("a"), public_key("b"))
        assert await reason(tokens, key_token("b")) == "unknown_key"
        clock.now += RETRY_S
        assert (await tokens.principal(key_token("b"))).id == "ada"
        for _ in range(3):
            assert await reason(tokens, key_token("c")) == "unknown_key"
        assert issuer.asked == 2


async def test_a_withdrawn_key_is_refused_soon() -> None:
    clock = Clock()
    async with issuing("a", "b") as issuer:
        tokens = tokens_of(issuer, clock)
        await tokens.principal(key_token("a"))
        issuer.publish(public_key("b"))
        clock.now += FRESH_S
        assert (
            await tokens.principal(key_token("a"))
        ).id == "ada"  # not kept waiting for the fetch that it begins
        while issuer.asked < 2 or await accepted(tokens, "a"):
            await asyncio.sleep(0.005)
        assert await accepted(tokens, "b")


async def accepted(tokens: SignedTokens, kid: str) -> bool:
    """Tell whether the tokens of a key are."""
    try:
        await tokens.principal(key_token(kid))
    except TokenRefused:
        return False
    return True


async def test_an_issuer_that_is_away_is_done_without_for_a_while() -> None:
    clock = Clock()
    async with issuing("a") as issuer:
        tokens = tokens_of(issuer, clock)
        await tokens.principal(key_token("a"))
        issuer.status = "500 Oh"
        clock.now += STALE_S - 1
        assert (await tokens.principal(key_token("a"))).id == "ada"
        while issuer.asked < 2:
            await asyncio.sleep(0.005)
        clock.now += RETRY_S
        for _ in range(2):  # the first one may still wait for the fetch in the background
            with pytest.raises(Unavailable):
                await tokens.principal(key_token("a"))
        asked = issuer.asked
        with pytest.raises(Unavailable):
            await tokens.principal(key_token("a"))
        assert issuer.asked == asked
        issuer.status = "200 OK"
        clock.now += RETRY_S
        assert (await tokens.principal(key_token("a"))).id == "ada"


async def test_nobody_there_is_told_as_for_now() -> None:
    async with issuing("a") as issuer:
        pass
    with pytest.raises(Unavailable):
        await tokens_of(issuer).principal(key_token("a"))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [5, {}, {"kty": "RSA"}, {"kty": "oct", "k": "c2VjcmV0"}]}',
        json.dumps({"keys": [public_key("a", use="enc")]}).encode(),
        json.dumps({"keys": [public_key("a", alg="RSA-OAEP")]}).encode(),
        json.dumps({"keys": [{}] * (jwks.KEYS_MAX + 1)}).encode(),
        b" " * (jwks.BYTES_MAX + 1) + json.dumps({"keys": [public_key("a")]}).encode(),
    ],
    ids=range(9),
)
async def test_an_answer_that_is_no_set_of_keys_is_not_believed(answer: bytes) -> None:
    async with issuing() as issuer:
        issuer.answer = answer
        with pytest.raises(Unavailable):
            await tokens_of(issuer).principal(key_token("a"))
        assert issuer.asked == 1


async def test_a_redirect_is_not_followed() -> None:
    async with issuing("a") as other, issuing("a") as issuer:
        issuer.status = f"302 Found\r\nlocation: {other.url}"
        with pytest.raises(Unavailable):
            await tokens_of(issuer).principal(key_token("a"))
        assert (issuer.asked, other.asked) == (1, 0)


async def test_an_issuer_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FETCH_S", 0.05)
    async with issuing("a") as issuer:
        issuer.gate.clear()
        with pytest.raises(Unavailable):
            await tokens_of(issuer).principal(key_token("a"))


async def test_a_packed_answer_is_not_unpacked() -> None:
    async with issuing("a") as issuer:
        issuer.status = "200 OK\r\ncontent-encoding: gzip"
        issuer.answer = gzip.compress(issuer.answer)
        with pytest.raises(Unavailable):
            await tokens_of(issuer).principal(key_token("a"))


@pytest.mark.parametrize("status", ["200 OK", "302 Found\r\nlocation: /", "404 Not Found"], ids=range(3))
async def test_a_password_in_the_url_is_in_no_log(status: str) -> None:
    async with issuing() as issuer:
        issuer.status = status
        issuer.url = issuer.url.replace("127.0.0.1", "ada:hunter2@127.0.0.1")
        with capture_logs() as logs, pytest.raises(Unavailable):
            await tokens_of(issuer).principal(key_token("a"))
    assert [line["event"] for line in logs] == ["keys_not_fetched"]
    assert "hunter2" not in str(logs)


async def test_one_unusable_key_does_not_spoil_the_others() -> None:
    async with issuing() as issuer:
        spoilt = (
            {"kty": "RSA", "n": "!", "e": "!"},
            public_key("b", alg="none"),
            public_key("b", alg=["RS256"]),
        )
        issuer.publish({"kty": "XX"}, public_key("a"), *spoilt)
        assert (await tokens_of(issuer).principal(key_token("a"))).id == "ada"
        assert (await tokens_of(issuer).principal(key_token(None, key="a"))).id == "ada"


async def test_a_public_key_is_no_secret() -> None:
    pem = (
        private_key("a")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    # The library refuses to make such a token, so that the attack is done by hand.
    forged = forged_with(pem, payload())
    async with issuing("a") as issuer:
        assert await reason(tokens_of(issuer), forged) == "wrong_algorithm"
        assert issuer.asked == 0


def forged_with(secret: bytes, fields: dict[str, Any]) -> str:
    """Return a token that is signed with HS256 by whatever bytes."""
    import hashlib
    import hmac

    head = part(json.dumps({"alg": "HS256", "kid": "a"}).encode())
    signed = f"{head}.{part(json.dumps(fields).encode())}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def part(data: bytes) -> str:
    """Return one part of a token."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", [["RS256"], {}, 5, None], ids=repr)
async def test_what_names_no_algorithm_is_refused_before_anything_is_fetched(algorithm: Any) -> None:
    _, fields, signature = key_token("a").split(".")
    head = part(json.dumps({"alg": algorithm, "kid": "a"}).encode())
    async with issuing("a") as issuer:
        assert await reason(tokens_of(issuer), f"{head}.{fields}.{signature}") == "wrong_algorithm"
        assert issuer.asked == 0


async def test_another_key_or_another_algorithm_than_that_of_the_key_is_refused() -> None:
    async with issuing("a", "b") as issuer:
        tokens = tokens_of(issuer)
        assert await reason(tokens, key_token("a", key="b")) == "bad_signature"
        assert await reason(tokens, key_token("a", algorithm="PS256")) == "wrong_algorithm"
        assert await reason(tokens, key_token(None, key="a")) == "unknown_key"
        unsigned = jwt.encode(payload(), "", algorithm="none", headers={"kid": "a"})
        assert await reason(tokens, unsigned) == "wrong_algorithm"
