"""An issuer of tokens as a test needs one: its keys, its tokens, and the server that publishes the keys."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

SECRET: Final = "a-secret-of-at-least-thirty-two-bytes"
ISSUER: Final = "https://login.example.com/"
AUDIENCE: Final = "threadhold"
# Seconds for which a token is good: longer than all tests take that share a socket.
GOOD_S: Final = 3600


@cache
def private_key(kid: str) -> rsa.RSAPrivateKey:
    """Return the private key of this name; making one takes long, so that each is made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_key(kid: str, **changes: Any) -> dict[str, Any]:
    """Return the public key of this name as an issuer publishes it."""
    fields: dict[str, Any] = RSAAlgorithm.to_jwk(private_key(kid).public_key(), as_dict=True)
    return {**fields, "kid": kid, "use": "sig", "alg": "RS256", **changes}


def payload(**changes: Any) -> dict[str, Any]:
    """Return what a good token says; a change to None leaves a field out."""
    now = time.time()
    fields = {
        "sub": "ada",
        "workspace": "acme",
        "exp": now + GOOD_S,
        "iss": ISSUER,
        "aud": AUDIENCE,
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


def secret_token(*, secret: str = SECRET, **changes: Any) -> str:
    """Return a token that is signed with a secret."""
    return jwt.encode(payload(**changes), secret, algorithm="HS256")


def key_token(kid: str | None, *, key: str | None = None, algorithm: str = "RS256", **changes: Any) -> str:
    """Return a token that is signed with a private key, that of the name that it gives if no other is said."""
    signer = private_key(key or kid or "")
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(payload(**changes), signer, algorithm=algorithm, headers=headers)


@dataclass
class Issuer:
    """Publishes keys: `answer` is what it sends, `asked` how often it was asked, `gate` holds it back while unset."""

    answer: bytes = b""
    status: str = "200 OK"
    asked: int = 0
    url: str = ""
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, *keys: dict[str, Any]) -> None:
        """Let these be the keys."""
        self.answer = json.dumps({"keys": list(keys)}).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        await self.gate.wait()
        head = f"HTTP/1.1 {self.status}\r\ncontent-length: {len(self.answer)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + self.answer)
        writer.close()


@asynccontextmanager
async def issuing(*kids: str) -> AsyncIterator[Issuer]:
    """Publish keys of these names for as long as the block lasts."""
    issuer = Issuer()
    issuer.publish(*(public_key(kid) for kid in kids))
    issuer.gate.set()
    async with await asyncio.start_server(issuer.serve, "127.0.0.1", 0) as server:
        issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        yield issuer
        issuer.gate.set()


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now
