"""The secrets of one attempt: given to the calls that are bound to them, and known to whoever scrubs from then on."""

import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import islice
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from threadhold.runner.bindings import Resolver
from threadhold.runner.errors import NoCredential, RunFailure
from threadhold.runner.identity import RunIdentity
from threadhold.runner.scrubbing import Known, Scrubber

VALUES_MAX: Final = 256
"""How many values are remembered; where each call gets a new one, the oldest that no call has are forgotten."""

PROCESS_KNOWN: Final = Known()
"""The values of all attempts that run in this process, for its logs."""
PROCESS: Final = Scrubber(PROCESS_KNOWN)


class _Given:
    """A value in the hands of a call. Only the call's contexts hold it, so it ends with its last task or thread."""

    def __init__(self, value: str) -> None:
        self.value = value


_credential: ContextVar[_Given | None] = ContextVar("threadhold_credential", default=None)


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
    return found.value


class _Late:
    """Values of calls that go on although whoever made them has ended: known to the process until they end too."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: list[tuple[str, WeakSet[_Given]]] = []

    def add(self, value: str, holders: WeakSet[_Given]) -> None:
        with self._lock:
            self._values.append((value, holders))

    def sweep(self) -> None:
        """Let go of what nobody has any more."""
        with self._lock:
            values, self._values = self._values, []
            for value, holders in values:
                if holders:
                    self._values.append((value, holders))
                else:
                    PROCESS_KNOWN.discard(value)


_LATE: Final = _Late()


class Learned:
    """The values that calls were given: secrets, here and in the process, until they are let go.

    No value is forgotten that a call still has, however many there are.
    """

    def __init__(self) -> None:
        self.known: Final = Known()
        self._holders: dict[str, WeakSet[_Given]] = {}

    def add(self, value: str) -> None:
        """Take a value for a secret."""
        _LATE.sweep()
        holders = self._holders.pop(value, None)
        if holders is None:
            holders = WeakSet()
            self.known.add(value)
            PROCESS_KNOWN.add(value)
        self._holders[value] = holders
        self._forget(len(self._holders) - VALUES_MAX, new=value)

    def given(self, value: str) -> _Given:
        """Take a value for a secret at least for as long as what this returns is there."""
        self.add(value)
        given = _Given(value)
        self._holders[value].add(given)
        return given

    def let_go(self) -> None:
        """Forget all of it in the process, each value as soon as no call has it any more."""
        for value, holders in self._holders.items():
            _LATE.add(value, holders)
        self._holders = {}
        _LATE.sweep()

    def _forget(self, count: int, *, new: str) -> None:
        """Forget so many of the oldest values, if there are as many that no call has."""
        if count <= 0:
            return
        idle = (each for each, holders in self._holders.items() if not holders and each != new)
        for oldest in list(islice(idle, count)):
            del self._holders[oldest]
            self.known.discard(oldest)
            PROCESS_KNOWN.discard(oldest)


class Secrets:
    """The credentials of one attempt. What it is asked for is a known secret, here and in the process, until its end.

    Args:
        resolvers: give the secret of each family.
        identity: for whom; None where there are no resolvers.
        learned: remembers the values after the end as well, for who carries out more in this process; None to forget
            them.
    """

    def __init__(
        self,
        resolvers: Mapping[str, Resolver],
        identity: RunIdentity | None,
        *,
        learned: Learned | None = None,
    ) -> None:
        self._resolvers = resolvers
        self._identity = identity
        self._before: Any = None
        self._forgets = learned is None
        self._learned = learned or Learned()
        self.scrubber: Final = Scrubber(self._learned.known)
        """For what tools say: known values, and what looks like a secret."""
        self.known_only: Final = Scrubber(self._learned.known, likely=False)
        """For what models and people say."""

    def __enter__(self) -> Self:
        self._before = _present.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _present.reset(self._before)
        if self._forgets:
            self._learned.let_go()

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
        _credential.set(self._learned.given(value))

    def learn(self, value: str) -> None:
        """Take a value for a secret until the attempt ends."""
        self._learned.add(value)


_present: ContextVar[Secrets | None] = ContextVar("threadhold_secrets", default=None)


def present_secrets() -> Secrets:
    """Return the secrets of the attempt that this is a part of; none outside of one."""
    return _present.get() or Secrets({}, None)


def hide_credential() -> None:
    """Give the present task none, whatever it was started from."""
    _credential.set(None)
