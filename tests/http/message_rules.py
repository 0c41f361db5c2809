"""What the schema of the WebSocket says of messages, for tests: no field may be sent that it does not name."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from threadhold.adapters.http.message_schema import message_schema


def _closed() -> dict[str, Any]:
    """Return the schema with every object closed that is not said to be open: tests bear no more fields."""
    schema = copy.deepcopy(message_schema())
    for each in schema["$defs"].values():
        if "properties" in each:
            each.setdefault("additionalProperties", False)
    return schema


_SCHEMA: Final = _closed()


def _rules(name: str) -> Any:
    place = name.replace("/", "/properties/")
    return Draft202012Validator({**_SCHEMA, "oneOf": [{"$ref": f"#/$defs/{place}"}]})


_CLIENT: Final = _rules("ClientMessage")
_SERVER: Final = _rules("ServerMessage")
_RESULTS: Final = {op: _rules(f"Results/{op}") for op in _SCHEMA["$defs"]["Results"]["properties"]}


def _why(rules: Any, message: Any) -> Iterator[str]:
    for error in rules.iter_errors(message):
        yield f"{error.json_path}: {error.message}"
        yield from (f"{each.json_path}: {each.message}" for each in error.context or ())


def may_be_sent(message: Any) -> bool:
    """Tell whether a client may send this."""
    return bool(_CLIENT.is_valid(message))


def check_told(message: Any) -> None:
    """Check a message of the server.

    Raises:
        AssertionError: it is none.
    """
    assert _SERVER.is_valid(message), (message, list(_why(_SERVER, message)))


def check_done(op: dict[str, Any], answer: dict[str, Any]) -> None:
    """Check an op that was done, and what it was answered with.

    Raises:
        AssertionError: it should not have been, or not with that.
    """
    assert may_be_sent(op), (op, list(_why(_CLIENT, op)))
    rules = _RESULTS[op["op"]]
    assert rules.is_valid(answer["result"]), (op, answer, list(_why(rules, answer["result"])))
