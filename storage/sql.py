"""Loads the named statements of `queries/`. No SQL stands anywhere else in Python."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class InvalidSchemaName(ValueError):
    """The schema's name would have to be quoted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not a schema name; use lower-case letters, digits and _")


def checked_schema(name: str) -> str:
    """Return a schema name that is safe to put into a statement.

    Raises:
        InvalidSchemaName: if it is not one.
    """
    if _SCHEMA.fullmatch(name) is None:
        raise InvalidSchemaName(name)
    return name


def parse(text: str) -> dict[str, str]:
    """Split a file of `-- name: x` blocks into statements by name."""
    parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def _templates() -> dict[str, str]:
    statements: dict[str, str] = {}
    folder = files("threadhold.storage") / "queries"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            statements |= parse(file.read_text("utf-8"))
    return statements


@cache
def statements(schema: str) -> dict[str, str]:
    """Return every named statement for one schema; its name may be a word of SQL."""
    name = f'"{checked_schema(schema)}"'
    return {key: text.replace("{schema}", name) for key, text in _templates().items()}
