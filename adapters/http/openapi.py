"""The OpenAPI document, where it says more than the routes can: this app's agents, what can be kept, where ids lead."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute

from threadhold.adapters.http.problem import problems
from threadhold.runner.content import DEPTH_MAX, METADATA_CHARS_MAX

_TO: Final = "#/components/schemas/"
_OF_BODIES: Final = problems(413, 415)
_NO_NUL: Final = {"type": "string", "pattern": r"^[^\x00]*$"}
KEPT: Final[dict[str, Any]] = {
    "KeptValue": {
        "title": "KeptValue",
        "description": f"Any JSON value without NUL characters, nested at most {DEPTH_MAX} levels deep.",
        "anyOf": [
            {"type": ["null", "boolean", "number"]},
            _NO_NUL,
            {"type": "array", "items": {"$ref": f"{_TO}KeptValue"}},
            {"$ref": f"{_TO}KeptObject"},
        ],
    },
    "KeptObject": {
        "title": "KeptObject",
        "description": f"An object without NUL characters, of at most {METADATA_CHARS_MAX:,} characters as JSON.",
        "type": "object",
        "propertyNames": {"pattern": _NO_NUL["pattern"]},
        "additionalProperties": {"$ref": f"{_TO}KeptValue"},
    },
}
# Not of a stop: there may be runs of agents that another version of the app had.
_BODIES_WITH_AGENT: Final = ("NewThread", "NewMessage", "FirstMessage", "NewExecution")
_BODIES_WITH_METADATA: Final = ("NewThread", "ThreadChange")

Ids = Mapping[str, str]
"""Names of parameters, and where in the answer their values are."""
_THREAD: Final = {"thread": "id"}
_RECEIPT: Final = {"thread": "thread"}
_RUN: Final = {"run": "run"}
_EXECUTION: Final = {"execution": "execution"}
LINKS: Final[dict[tuple[str, str], dict[str, Ids]]] = {
    ("create_thread", "201"): {
        "get_thread": _THREAD,
        "update_thread": _THREAD,
        "send": _THREAD,
        "watch": _THREAD,
        "list_facts": _THREAD,
        "list_members": _THREAD,
    },
    ("send_first", "202"): {
        "get_thread": _RECEIPT,
        "send": _RECEIPT,
        "list_history": _RECEIPT,
        "stop_thread": _RECEIPT,
        "get_run": _RUN,
        "get_message": {"message": "message"},
    },
    ("execute", "202"): {
        "get_execution": _EXECUTION,
        "list_execution_threads": _EXECUTION,
        "list_checkpoints": _RUN,
        "replay_run": _RUN,
    },
    ("list_executions", "200"): {
        name: {"execution": "items/0/id"} for name in ("get_execution", "list_execution_threads")
    },
    ("list_runs", "200"): {
        name: {"run": "items/0/id"}
        for name in (
            "get_run",
            "list_attempts",
            "list_steps",
            "list_calls",
            "list_checkpoints",
            "explain_run",
            "stop_run",
            "replay_run",
        )
    },
    ("list_checkpoints", "200"): {
        name: {"checkpoint": "items/0/id"} for name in ("get_checkpoint", "list_checkpoint_history")
    },
    ("replay_run", "202"): {
        "get_run": _RUN,
        "stop_run": _RUN,
        "list_checkpoints": _RUN,
        "get_checkpoint": {"checkpoint": "checkpoint"},
    },
    ("create_grant", "201"): {name: {"grant": "id"} for name in ("get_grant", "revoke_grant")},
    ("list_grants", "200"): {name: {"grant": "items/0/id"} for name in ("get_grant", "revoke_grant")},
    ("list_requests", "200"): {name: {"request": "items/0/id"} for name in ("get_request", "answer_request")},
}
"""Operations and statuses, with the operations that their answers lead to."""


def operation_id(route: APIRoute) -> str:
    """Return what generated clients call an operation: the name of its function."""
    return route.name


def describe(app: FastAPI, agents: Sequence[str]) -> None:
    """Add to the app's OpenAPI document.

    Args:
        app: the app.
        agents: the names of those that may be sent to.
    """
    made = app.openapi

    @cache
    def openapi() -> dict[str, Any]:
        document = made()
        schemas = document["components"]["schemas"]
        schemas |= KEPT
        for body in _BODIES_WITH_METADATA:
            _narrow(schemas[body], "metadata", "object", {"$ref": f"{_TO}KeptObject"})
        for body in _BODIES_WITH_AGENT:
            _narrow(schemas[body], "agent", "string", {"type": "string", "enum": list(agents)})
        by_kind(schemas["Answer"])
        operations = [each for methods in document["paths"].values() for each in methods.values()]
        for operation in operations:
            if "requestBody" in operation:
                operation["responses"] |= {str(status): told for status, told in _OF_BODIES.items()}
        _link({operation["operationId"]: operation for operation in operations})
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _narrow(body: dict[str, Any], name: str, kind: str, schema: dict[str, Any]) -> None:
    """Let a property take less than its type in the code does; null stays, where it may be that."""
    found = body["properties"][name]
    about = {key: found[key] for key in ("title", "description", "default") if key in found}
    others = [each for each in found.get("anyOf", ()) if each.get("type") != kind]
    body["properties"][name] = about | ({"anyOf": [schema, *others]} if others else schema)


def by_kind(schema: dict[str, Any]) -> None:
    """Say in the schema of an answer which fields each kind of decision has."""
    hash, absent = schema.pop("properties")["args_hash"], {"type": "null"}
    own: dict[str, dict[str, Any]] = {
        "approve": {},
        "edit": {"args": {"type": "object", "description": "The arguments to call with instead."}},
        "reject": {"reason": {"type": ["string", "null"], "description": "What the agent is told."}},
        "reply": {
            "value": {
                "type": ["boolean", "number", "string", "array", "object"],
                "description": "What was asked for.",
            }
        },
    }
    schema["examples"] = [
        {"kind": "approve"},
        {"kind": "edit", "args": {"euros": 40}},
        {"kind": "reject", "reason": "too much"},
        {"kind": "reply", "value": "42"},
    ]
    del schema["additionalProperties"], schema["required"], schema["type"]
    schema["oneOf"] = [
        {
            "type": "object",
            "title": kind,
            "properties": {
                "kind": {"const": kind},
                **dict.fromkeys(("args", "reason", "value"), absent),
                **fields,
                "args_hash": hash,
            },
            "required": ["kind", *(name for name in fields if name != "reason")],
            "additionalProperties": False,
        }
        for kind, fields in own.items()
    ]


def _link(operations: dict[str, dict[str, Any]]) -> None:
    for (name, status), targets in LINKS.items():
        operations[name]["responses"][status]["links"] = {
            target: {
                "operationId": target,
                "parameters": {parameter: f"$response.body#/{place}" for parameter, place in ids.items()},
            }
            for target, ids in targets.items()
        }
