"""How a keeper and its process talk: one JSON array per line."""

import json

from threadhold.claims.ports import Line


def encoded(line: Line) -> bytes:
    """Return a line as it goes through the pipe."""
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Puts what a pipe gives, piece by piece, together to lines."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> list[Line]:
        """Take a piece and return the lines that it completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole]
