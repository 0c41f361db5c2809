"""Errors over plain HTTP: `application/problem+json` (RFC 9457), and nothing else, whatever went wrong."""

import json
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from threadhold.adapters.http.errors import (
    BODY_BYTES_MAX,
    BodyTooLarge,
    DoorError,
    InvalidRequest,
    MalformedJson,
    MethodNotAllowed,
    NotJson,
    Refusal,
    UnknownPath,
    refusal,
)
from threadhold.fanout.errors import FanoutError
from threadhold.runner.errors import RunnerError

MEDIA_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:threadhold:problem:"
_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class Problem(BaseModel):
    """A refusal or failure, for programs (`code`, `data`) and for people (`title`, `detail`)."""

    type: str = Field(description="The code as a URI; docs/problems.md has a heading for each.")
    title: str
    status: int
    detail: str = Field(description="What happened and what to do about it.")
    code: str = Field(description="A stable name of what happened.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    data: dict[str, Any] | None = Field(
        None, description="What the problem is about; the fields depend on `code`."
    )
    errors: list[dict[str, Any]] | None = Field(
        None, description="Each thing that is wrong with the request."
    )


def problem_response(told: Refusal, *, headers: dict[str, str] | None = None) -> Response:
    """Return the response that tells a refusal."""
    data = dict(told.data)
    fields: dict[str, Any] = {
        "type": f"{_TYPE}{told.code}",
        "title": told.title,
        "status": told.status,
        "detail": told.message,
        "code": told.code,
        "retryable": told.retryable,
    }
    if (errors := data.pop("errors", None)) is not None:
        fields["errors"] = errors
    if data:
        fields["data"] = data
    headers = dict(headers or {})
    if told.retry_after is not None:
        headers["Retry-After"] = str(told.retry_after)
    if told.status == HTTPStatus.UNAUTHORIZED:
        shown = told.data.get("reason") != "missing"
        headers["WWW-Authenticate"] = 'Bearer error="invalid_token"' if shown else "Bearer"
    # Escaped to ASCII, because what a client sent, and is told back, may not be valid Unicode.
    content = json.dumps(fields, default=str)
    return Response(content, status_code=told.status, headers=headers, media_type=MEDIA_TYPE)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in sorted({*statuses, 400, 401, 403, 422, 500, 503})
    }


def describe_problems(app: FastAPI, *, open_paths: Collection[str] | None) -> None:
    """Add the `Problem` that `problems` refers to to the app's OpenAPI document, and who needs a token.

    Args:
        app: the app.
        open_paths: those that need none; None where nobody ever needs one.
    """
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema())
        if open_paths is not None:
            _describe_tokens(document, open_paths)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _describe_tokens(document: dict[str, Any], open_paths: Collection[str]) -> None:
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path in open_paths:
        for operation in document["paths"].get(path, {}).values():
            operation["security"] = []


def allowed_methods(request: Request) -> list[str]:
    """Return every method that the path answers; Starlette itself names those of its first route only."""
    routes = request.app.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


async def _told(request: Request, error: Exception) -> Response:
    return problem_response(refusal(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """Tell what the framework refuses by itself in our own words."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            return await _told(request, UnknownPath(request.url.path))
        case 405:
            allowed = allowed_methods(request)
            told = refusal(MethodNotAllowed(request.method, allowed))
            return problem_response(told, headers={"Allow": ", ".join(allowed)})
        case 400:
            return await _told(
                request, MalformedJson("the body is not JSON in UTF-8, or it is nested too deeply")
            )
        case 413:
            return await _told(request, BodyTooLarge(BODY_BYTES_MAX))
        case status:
            title = HTTPStatus(status).phrase
            return problem_response(
                Refusal(status=status, title=title, code="http_error", message=str(error.detail))
            )


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _told(request, _what_is_invalid(request, error.errors()))


def _what_is_invalid(request: Request, errors: Sequence[Any]) -> DoorError:
    first = errors[0]
    if first["type"] == "json_invalid":
        return MalformedJson(f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if (
        tuple(first["loc"]) == ("body",)
        and has_body
        and not _says_json(request.headers.get("content-type", ""))
    ):
        return NotJson()
    return InvalidRequest(errors)


def _says_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def answer_with_problems(app: FastAPI, *, open_paths: Collection[str] | None = None) -> None:
    """Make the app tell every error that a route raises as problem+json.

    Args:
        app: the app.
        open_paths: those that need no token; None where nobody ever needs one.
    """
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in (RunnerError, DoorError, FanoutError):
        app.add_exception_handler(kind, _told)
    describe_problems(app, open_paths=open_paths)
