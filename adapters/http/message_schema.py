"""The JSON Schema of all messages of the WebSocket, both ways, made from the models that the door reads and writes."""

import hashlib
import json
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from threadhold.adapters.http.openapi import by_kind
from threadhold.adapters.http.ops import AnyOp
from threadhold.adapters.http.outgoing import AnyMessage, Results

PATH: Final = "/v1/ws/schema.json"
MEDIA_TYPE: Final = "application/schema+json"
_TO: Final = "#/$defs/"
_HEAD: Final = {
    "$schema": GenerateJsonSchema.schema_dialect,
    "$id": "urn:threadhold:websocket:v1",
    "title": "threadhold.v1",
    "description": "A text frame of a WebSocket at /v1/ws. A newer server may send fields that are not named here, "
    "which clients pass over; a server refuses those that it does not know.",
}


class _Generator(GenerateJsonSchema):
    """Describes what is sent with all its fields, and gives the types of fields no names of their own."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: programs that make code of a schema would make a type of each."""
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001 - as it is called
        """Tell whether a field is always there, as all are in what is sent."""
        return self.mode == "serialization" or super().field_is_required(field, total)


@cache
def message_schema() -> dict[str, Any]:
    """Return the schema. `ClientMessage` and `ServerMessage` are its two sides, `Results` has a result per op."""
    made, shared = TypeAdapter.json_schemas(
        [
            ("ClientMessage", "validation", TypeAdapter(AnyOp)),
            ("ServerMessage", "serialization", TypeAdapter(AnyMessage)),
            ("Results", "serialization", TypeAdapter(Results)),
        ],
        schema_generator=_Generator,
    )
    defs = shared["$defs"]
    by_kind(defs["Decision"])
    sides = {name: schema for (name, _), schema in made.items() if name != "Results"}
    for name, schema in sides.items():
        # Of the members no two ever fit the same message.
        defs[name] = {"oneOf": schema["anyOf"]}
    return {**_HEAD, "oneOf": [{"$ref": _TO + name} for name in sides], "$defs": dict(sorted(defs.items()))}


@cache
def schema_text() -> tuple[bytes, str]:
    """Return the schema as JSON, and its tag; both are the same on all replicas of a version."""
    text = json.dumps(message_schema(), indent=1).encode()
    return text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'
