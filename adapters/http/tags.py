"""Tags of what is read (`ETag`), so that a client which has it already is told so, and edits only what it has seen."""

import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Header, Response
from pydantic import TypeAdapter

T = TypeVar("T")

_TAG: Final = re.compile(r'(?:W/)?"[^"]*"')
_ETAG: Final = {"ETag": {"description": "Changes whenever the body does.", "schema": {"type": "string"}}}
TAGGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": _ETAG},
    304: {"description": "The client has it already.", "headers": _ETAG},
}
"""The OpenAPI description of what `Tagger` answers."""
CHANGED: Final[dict[int | str, dict[str, Any]]] = {200: {"headers": _ETAG}}
# Each takes longer to make than to use.
_adapter: Final[Callable[[type], TypeAdapter[Any]]] = cache(TypeAdapter)
IfMatch = Annotated[
    str | None,
    Header(description="Tags: 412 unless the thread still has one, so nothing unseen is overwritten."),
]


def tag_of(record: Any) -> str:
    """Return the tag of a record, the same on every replica."""
    text = _adapter(type(record)).dump_json(record)
    return f'"{hashlib.sha256(text).hexdigest()[:32]}"'


def names(header: str, tag: str, *, weak: bool = True) -> bool:
    """Tell whether a header of tags names this one; `*` names all, and what is no tag none.

    Args:
        header: tags with commas between.
        tag: ours.
        weak: whether one that a proxy has made weak is the same.
    """
    found = _TAG.findall(header)
    return header.strip() == "*" or tag in ([each.removeprefix("W/") for each in found] if weak else found)


class Tagger:
    """Tags what a route returns.

    Args:
        response: of this request.
        seen: the header `If-None-Match`.
    """

    def __init__(self, response: Response, seen: str | None) -> None:
        self._response = response
        self._seen = seen

    def __call__(self, record: T) -> T | Response:
        """Return the record, or that it has not changed, with its tag."""
        tag = tag_of(record)
        self._response.headers.update({"ETag": tag, "Cache-Control": "private, no-cache"})
        if self._seen is not None and names(self._seen, tag):
            return Response(status_code=304, headers=dict(self._response.headers))
        return record


async def tagger_of(
    response: Response,
    if_none_match: Annotated[str | None, Header(description="Tags: 304 if the body still has one.")] = None,
) -> Tagger:
    """Return what tags the answer to a request."""
    return Tagger(response, if_none_match)


Tags = Annotated[Tagger, Depends(tagger_of)]
