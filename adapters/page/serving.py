"""Serves the files of the page, with headers that let it load and reach nothing but this server."""

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER: Final = Path(__file__).parent / "static"
_INDEX: Final = "index.html"
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # After an update the next load of the page has all of its files from the same version.
    "Cache-Control": "no-cache",
}


def _path(file: Path) -> str:
    return "/" if file.name == _INDEX else f"/page/{file.name}"


_FILES: Final = {_path(file): file for file in sorted(_FOLDER.iterdir()) if file.suffix in _TYPES}
PATHS: Final = frozenset(_FILES)
"""Where the page is. Whoever has no token may load it too: it asks for one."""


def routes() -> list[Route]:
    """Return a route for each file of the page; each is read once."""
    return [_route(path, file) for path, file in _FILES.items()]


def _route(path: str, file: Path) -> Route:
    content, kind = file.read_bytes(), _TYPES[file.suffix]

    async def serve(request: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=kind)

    return Route(path, serve, methods=["GET"], include_in_schema=False)
