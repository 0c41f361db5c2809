"""How a command fails: an exit code, and one line instead of a traceback."""

import re
import traceback
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from threadhold.adapters.replies import PASSING
from threadhold.adapters.settings import Settings

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
AWAY: Final = 3
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 server or database not reachable."
)
_USAGE_CODES: Final = frozenset({"bad_target", "bad_token", "bad_url", "invalid_settings", "usage"})
# A rule about several settings names them as fields; people know them as variables.
_FIELDS: Final = re.compile(rf"\b({'|'.join(Settings.model_fields)})\b")


class CliError(Exception):
    """A command cannot go on; the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is shown of an error."""

    code: str
    message: str
    exit_code: int
    data: dict[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return the failure as JSON values."""
        return {"code": self.code, "message": self.message} | ({"data": self.data} if self.data else {})


def failure_of(error: BaseException) -> Failure:
    """Return how to show an error: a typed one speaks for itself, any other one is a fault of ours."""
    if isinstance(error, ValidationError):
        return Failure(code="invalid_settings", message=_settings(error), exit_code=USAGE)
    code = getattr(error, "code", None)
    if isinstance(code, str):
        data = getattr(error, "data", None)
        message = str(getattr(error, "message", None) or error) or code
        message += " (commands show the token in THREADHOLD_TOKEN)" if code == "unauthenticated" else ""
        data = data if isinstance(data, dict) else {}
        return Failure(code=code, message=message, exit_code=exit_code_of(code), data=data)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    text = f"{type(error).__name__}: {error}{where}; this is a fault of threadhold, please report it"
    return Failure(code="internal", message=text, exit_code=FAILED)


def exit_code_of(code: str) -> int:
    """Return the exit code of a typed error."""
    if code in PASSING:
        return AWAY
    return USAGE if code in _USAGE_CODES else FAILED


def _settings(error: ValidationError) -> str:
    """Name the environment variables that do not fit."""
    parts = []
    for item in error.errors(include_url=False):
        name = "_".join(str(part) for part in item["loc"])
        said = item["msg"].removeprefix("Value error, ")
        if item["type"].startswith("time_delta"):
            said = f"{item['input']!r} is no duration; write seconds or ISO 8601 (20, PT20S)"
        parts.append(f"{_variable(name)}: {said}" if name else _FIELDS.sub(_named, said))
    return "; ".join(parts)


def _named(field: re.Match[str]) -> str:
    return _variable(field[0])


def _variable(name: str) -> str:
    return f"THREADHOLD_{name}".upper()
