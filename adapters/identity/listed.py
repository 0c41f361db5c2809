"""Tokens that are listed in a file: for services, operators and small installations.

    [[token]]
    name = "ada"                                        # the principal's id
    sha256 = "9f86d081884c7d659a2feaa0c55ad015…"        # of the token itself, which stands nowhere
    workspace = "acme"
    roles = ["approver", "operator"]                    # everybody is a user

The file holds no secret: from the hash of a long random token nobody finds the token. So others may read it. But
whoever writes it makes operators, and therefore a file that its group or others may write to is refused.
"""

import hashlib
import hmac
import os
import stat
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadhold.adapters.identity.errors import BadTokensFile, TokenRefused
from threadhold.runner.errors import InvalidInput
from threadhold.runner.principals import checked_id, checked_principal
from threadhold.runner.records import Principal, Role

log = structlog.get_logger(__name__)

FILE_BYTES_MAX: Final = 1024 * 1024
TOKENS_MAX: Final = 1000
TOKEN_CHARS_MIN: Final = 32
"""Shorter ones could be guessed, and found from their hash."""
LOOK_EVERY_S: Final = 1.0


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    workspace: str
    roles: list[Role] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    token: Annotated[list[_Entry], Field(max_length=TOKENS_MAX)] = []


@dataclass(frozen=True, slots=True)
class Listed:
    """A token that is known by its hash alone."""

    digest: bytes
    principal: Principal


def parsed(text: str) -> tuple[Listed, ...]:
    """Return the tokens that a file lists.

    Raises:
        ValueError: it is not such a file; the text says where and why.
    """
    try:
        entries = _File.model_validate(tomllib.loads(text)).token
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}") from None
    found = tuple(_listed(entry) for entry in entries)
    if len({each.digest for each in found}) != len(found):
        raise ValueError("two entries have the same sha256: which of them a caller is could not be told")
    return found


def _listed(entry: _Entry) -> Listed:
    try:
        id, workspace = checked_principal(entry.name, "name"), checked_id(entry.workspace, "workspace")
    except InvalidInput as error:
        raise ValueError(error.message) from None
    roles = frozenset({"user", *entry.roles})
    return Listed(bytes.fromhex(entry.sha256), Principal(id=id, workspace=workspace, roles=roles))


def owner_of(token: str, listed: Sequence[Listed]) -> Principal | None:
    """Return whose token it is; looks at every entry in full, so that the time it takes says nothing."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    found = None
    for each in listed:
        if hmac.compare_digest(each.digest, digest):
            found = each.principal
    return found


class TokensFile:
    """Knows the tokens of a file, and takes up changes of it within a second.

    A change that cannot be read is logged as an error and leaves in force what was read before.

    Args:
        path: the file.
        clock: seconds that only grow.

    Raises:
        BadTokensFile: it cannot be used as it is.
    """

    def __init__(self, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._seen = _version(path)
        self._listed = _read(path)
        self._look_at = clock() + LOOK_EVERY_S

    async def principal(self, token: str) -> Principal:
        """Return whose token it is.

        Raises:
            TokenRefused: nobody's.
        """
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_EVERY_S
            self._take_up_changes()
        found = owner_of(token, self._listed) if len(token) >= TOKEN_CHARS_MIN else None
        if found is None:
            raise TokenRefused("unknown", "nobody here has this token")
        return found

    def _take_up_changes(self) -> None:
        version = _version(self._path)
        if version == self._seen:
            return
        self._seen = version
        try:
            self._listed = _read(self._path)
        except BadTokensFile as error:
            log.error("tokens_file_refused", detail=str(error), in_force="what was read before")
        else:
            log.info("tokens_file_read", path=self._path, tokens=len(self._listed))


def _version(path: str) -> tuple[int, ...] | None:
    """Return what changes with the file, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _read(path: str) -> tuple[Listed, ...]:
    """Return what the file lists.

    Raises:
        BadTokensFile: it is not there, not ours to trust, too large, or lists something else.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadTokensFile(path, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadTokensFile(
            path, "may be written by others, who could make themselves operators: chmod go-w it"
        )
    if len(content) > FILE_BYTES_MAX:
        raise BadTokensFile(path, f"has more than {FILE_BYTES_MAX} bytes; issue JWTs instead")
    try:
        return parsed(content.decode())
    except ValueError as error:
        raise BadTokensFile(path, f"is not right: {error}") from None
