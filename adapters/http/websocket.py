"""The WebSocket door: accepts sockets and hands each to a session. The gate has checked their origin."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, WebSocket
from starlette.responses import Response

from threadhold.adapters.http.doors import TheDoors
from threadhold.adapters.http.errors import RateLimited, UpgradeRequired
from threadhold.adapters.http.greeting import greeted, turn_away
from threadhold.adapters.http.message_schema import MEDIA_TYPE, schema_text
from threadhold.adapters.http.session import Session
from threadhold.adapters.http.tags import names

SUBPROTOCOL: Final = "threadhold.v1"

router = APIRouter(prefix="/v1")


@router.get("/ws", include_in_schema=False)
async def not_upgraded() -> None:
    """Tell whoever comes with plain HTTP what is spoken here."""
    raise UpgradeRequired


@router.get("/ws/schema.json", include_in_schema=False)
async def schema(if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Return the JSON Schema of all messages. It needs no principal."""
    text, tag = schema_text()
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if if_none_match is not None and names(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type=MEDIA_TYPE)


@router.websocket("/ws")
async def websocket(socket: WebSocket, doors: TheDoors) -> None:
    """Serve one socket; a client that asks for no subprotocol is served as well. A token in one is never sent back."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    if (caller := await greeted(socket, doors)) is None:
        return
    try:
        with doors.quotas.socket(caller.principal):
            await Session(socket, doors, caller).serve()
    except RateLimited as error:
        await turn_away(socket, error)
