"""The secrets of one attempt: given to the calls that are bound to them, and known to whoever scrubs from then on."""

import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

from threadhold.runner.bindings import Resolver
from threadhold.runner.errors import NoCredential, RunFailure
from threadhold.runner.identity import RunIdentity
from threadhold.runner.scrubbing import Known, Scrubber

VALUES_MAX: Final = 256
"""How many values an attempt remembers; where each call gets a new one, the oldest are forgotten."""

PROCESS_KNOWN: Final = Known()
"""The values of all attempts that run in this process, for its logs."""
PROCESS: Final = Scrubber(PROCESS_KNOWN)

_credential: ContextVar[str | None] = ContextVar("threadhold_credential", default=None)


def credential() -> str:
    """Return the secret that the tool which is being called is bound to.

    For tools with a `Binding` that names a family of credentials, in plain functions as well as in async ones. It is
    asked for anew for each call, after the call was admitted.

    Raises:
        NoCredential: the tool is bound to none, or this is not called by a tool.
    """
    found = _credential.get()
    if found is None:
        raise NoCredential
    return found


class Secrets:
    """The credentials of one attempt. What it is asked for is a known secret, here and in the process, until its end.

    Args:
        resolvers: give the secret of each family.
        identity: for whom; None where there are no resolvers.
    """

    def __init__(self, resolvers: Mapping[str, Resolver], identity: RunIdentity | None) -> None:
        self._resolvers = resolvers
        self._identity = identity
        self._values: dict[str, None] = {}
        self._before: Any = None
        self._known = Known()
        self.scrubber: Final = Scrubber(self._known)
        """For what tools say: known values, and what looks like a secret."""
        self.known_only: Final = Scrubber(self._known, likely=False)
        """For what models and people say."""

    def __enter__(self) -> Self:
        self._before = _present.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _present.reset(self._before)
        for value in self._values:
            PROCESS_KNOWN.discard(value)
        self._values.clear()

    async def give(self, family: str) -> None:
        """Make a family's secret what `credential` returns in the present task and what it starts.

        Raises:
            RunFailure: there is no such family here, or its resolver gave no text.
            Exception: whatever the resolver raises.
        """
        if family not in self._resolvers or self._identity is None:
            raise RunFailure(f"there are no credentials {family!r} here", reason="credentials")
        made = self._resolvers[family](self._identity)
        value: object = await made if inspect.isawaitable(made) else made
        if not isinstance(value, str) or not value:
            raise RunFailure(f"credentials {family!r} are not text", reason="credentials")
        self.learn(value)
        _credential.set(value)

    def learn(self, value: str) -> None:
        """Take a value for a secret until the attempt ends."""
        if value in self._values:
            return
        self._values[value] = None
        self._known.add(value)
        PROCESS_KNOWN.add(value)
        if len(self._values) > VALUES_MAX:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._known.discard(oldest)
            PROCESS_KNOWN.discard(oldest)


_present: ContextVar[Secrets | None] = ContextVar("threadhold_secrets", default=None)


def present_secrets() -> Secrets:
    """Return the secrets of the attempt that this is a part of; none outside of one."""
    return _present.get() or Secrets({}, None)


def hide_credential() -> None:
    """Give the present task none, whatever it was started from."""
    _credential.set(None)
