"""What a browser wants to hear before a page of another origin may call, and read what comes (CORS).

No cookies: who calls is told by a token that the page itself sends. So nothing here allows credentials, and any header
may be sent by an origin that may call at all.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope, Send

METHODS: Final = "DELETE, GET, HEAD, PATCH, POST, PUT"
EXPOSED: Final = "ETag, Location, Preference-Applied, Retry-After, WWW-Authenticate"
"""What a page may read besides the few headers that it always may."""
# Browsers keep it no longer than two hours; who takes an origin off the list does not want to wait for a day.
_MAX_AGE_S: Final = 600


def is_preflight(scope: Scope, headers: Headers) -> bool:
    """Tell whether a browser asks if a page may call; it sends no token with that."""
    asks = "origin" in headers and "access-control-request-method" in headers
    return bool(scope["type"] == "http" and scope["method"] == "OPTIONS" and asks)


def preflight_response(headers: Headers) -> Response:
    """Return that the page may call as it wants to; `allowing` adds for which origin."""
    allowed = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(_MAX_AGE_S)}
    if wanted := headers.get("access-control-request-headers"):
        allowed["Access-Control-Allow-Headers"] = wanted
    return Response(status_code=204, headers=allowed)


def allowing(send: Send, origin: str | None) -> Send:
    """Return a `send` that lets pages of this origin read the answer.

    Args:
        send: where the answer goes.
        origin: one that may call, or None: caches must not take an answer to nobody for one to a page.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            if origin is not None:
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = EXPOSED
        await send(message)

    return sending
