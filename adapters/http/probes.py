"""Health over HTTP, for whoever starts processes and distributes requests. Needs no principal."""

from typing import Literal

from fastapi import APIRouter, Response

from threadhold.adapters.http.doors import TheDoors
from threadhold.adapters.http.health import Readiness, checked, readiness

router = APIRouter()


@router.get("/healthz")
async def healthz() -> dict[Literal["status"], Literal["ok"]]:
    """Tell that the process lives and its loop turns. It does not look at any server behind it."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Send requests elsewhere."}})
async def readyz(response: Response, doors: TheDoors) -> Readiness:
    """Tell whether requests can be served: 503 while Postgres is away or the process is shutting down."""
    found = readiness(await checked(doors.health), draining=doors.drain.is_set())
    response.status_code = 200 if found.ready else 503
    response.headers["Cache-Control"] = "no-store"
    return found
