"""The WebSocket door: accepts sockets and hands each to a session. The gate has checked their origin."""

from typing import Final

from fastapi import APIRouter, WebSocket

from threadhold.adapters.http.doors import Asker, TheDoors
from threadhold.adapters.http.errors import UpgradeRequired
from threadhold.adapters.http.session import Session

SUBPROTOCOL: Final = "threadhold.v1"

router = APIRouter(prefix="/v1")


@router.get("/ws", include_in_schema=False)
async def not_upgraded() -> None:
    """Tell whoever comes with plain HTTP what is spoken here."""
    raise UpgradeRequired


@router.websocket("/ws")
async def websocket(socket: WebSocket, doors: TheDoors, by: Asker) -> None:
    """Serve one socket; a client that asks for no subprotocol is served as well."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    await Session(socket, doors, by).serve()
