"""What the servers say that they have done."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

# Asked by the measurement itself.
_OURS = frozenset({"info", "client|list", "client|setinfo", "hello", "ping"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What Redis has done so far: calls by command, those inside scripts as well, and processor seconds."""

    calls: Mapping[str, int]
    cpu: float

    def since(self, before: Self) -> "Spent":
        """Return what was done since then."""
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return Spent(
            calls={name: count for name, count in calls.items() if count > 0}, cpu=self.cpu - before.cpu
        )

    @property
    def total(self) -> int:
        """All calls."""
        return sum(self.calls.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Connections that are subscribed to something, and their subscriptions."""

    connections: int
    subscriptions: int


async def spent(redis: Any) -> Spent:
    """Ask a server what it has done."""
    stats = await redis.info("commandstats")
    cpu = await redis.info("cpu")
    names = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    return Spent(
        calls={name: calls for name, calls in names.items() if name not in _OURS},
        cpu=float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
    )


async def listeners(redis: Any) -> Listeners:
    """Ask a server who listens."""
    clients = [client for client in await redis.client_list() if int(client["sub"]) > 0]
    return Listeners(connections=len(clients), subscriptions=sum(int(client["sub"]) for client in clients))
