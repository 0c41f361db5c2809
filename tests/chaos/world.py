"""One world: its own Postgres with a standby, its own Valkey, replicas, workers, proxies and the witness."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from redis import Redis

from tests.chaos.databases import Databases
from tests.chaos.members import APP, Member
from tests.chaos.proxy import Link, Links
from tests.chaos.witness import PATH, Witness
from tests.support.ports import KeptPort
from threadhold.adapters.embedded import EmbeddedValkey

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = ("worker1", "worker2", "worker3")
REPLICAS: Final = ("api1", "api2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long claims last in a world, in seconds."""

    ttl: float = 3.0
    renew: float = 0.3
    margin: float = 0.6
    sweep: float = 0.5
    grace: float = 3.0

    def environment(self) -> dict[str, str]:
        """Return what processes read them from."""
        return {
            "THREADHOLD_CLAIM_TTL": str(self.ttl),
            "THREADHOLD_RENEW_EVERY": str(self.renew),
            "THREADHOLD_TRUST_MARGIN": str(self.margin),
            "THREADHOLD_SWEEP_EVERY": str(self.sweep),
            "THREADHOLD_GRACE": str(self.grace),
        }


@dataclass(slots=True)
class World:
    """Everything that runs, and can be harmed.

    Args:
        folder: where all its data and logs are.
        times: how long claims last.
    """

    folder: Path
    times: Times
    witness: Witness = field(init=False)
    databases: Databases = field(init=False)
    valkey: EmbeddedValkey = field(init=False)
    links: Links = field(init=False)
    members: dict[str, Member] = field(default_factory=dict, init=False)
    urls: list[str] = field(default_factory=list, init=False)
    _ports: list[KeptPort] = field(default_factory=list, init=False)
    valkey_frozen: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self.witness = Witness(self.folder)
        self.databases = Databases(self.folder / "postgres")
        self.valkey = EmbeddedValkey(self.folder / "valkey")
        self.valkey.start()
        self.links = Links()
        return self

    def __exit__(self, *exc: object) -> None:
        self.thaw_valkey()
        for member in self.members.values():
            if not member.ended_by_itself():
                member.kill()
        self.links.close()
        self.valkey.stop()
        self.databases.close()
        self.witness.close()

    def populate(self) -> None:
        """Start all replicas and workers; the database must be migrated."""
        for name in REPLICAS:
            port = KeptPort()
            self._ports.append(port)
            self.urls.append(f"http://127.0.0.1:{port.number}")
            self._add(name, ["serve", APP, "--port", str(port.number)])
        for name in WORKERS:
            self._add(name, ["worker", APP, "--name", name])

    def _add(self, name: str, args: list[str]) -> None:
        postgres = self.links.open(f"{name} -> postgres", self.databases.port)
        redis = self.links.open(f"{name} -> redis", self.valkey.port)
        env = {**os.environ, **self._environment(postgres, redis)}
        self.members[name] = Member(name, args, env=env, folder=self.folder)
        self.members[name].start()

    def _environment(self, postgres: Link, redis: Link) -> Mapping[str, str]:
        return {
            "PYTHONPATH": str(ROOT),
            PATH: self.witness.path,
            "THREADHOLD_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres",
            "THREADHOLD_REDIS_URL": f"redis://127.0.0.1:{redis.port}/0",
            "THREADHOLD_CAPACITY": "20",
            **self.times.environment(),
        }

    def point_at_primary(self) -> None:
        """Let all proxies lead to the present primary, as a changed DNS entry or address would."""
        port = self.databases.port
        for name, link in self.links.all.items():
            if name.endswith("postgres"):
                link.upstream = port

    def redis(self) -> Redis:
        """Return a client of the Valkey, past every proxy."""
        return Redis(port=self.valkey.port, socket_timeout=2.0)

    def signal_valkey(self, number: signal.Signals) -> None:
        """Send a signal to the Valkey."""
        pid = self.valkey._recorded_pid()
        self.valkey_frozen = number is signal.SIGSTOP
        if pid is not None and self.valkey.running:
            os.kill(pid, number)

    def thaw_valkey(self) -> None:
        """Let the Valkey run again if it was frozen."""
        if self.valkey_frozen:
            self.signal_valkey(signal.SIGCONT)
