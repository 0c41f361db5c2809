"""Real Postgres and Valkey servers for development and tests: durable, and gone when their owner is."""

from threadhold.adapters.embedded.errors import (
    BinariesMissing,
    DataOfAnotherVersion,
    EmbeddedError,
    PortInUse,
    ServerDidNotStart,
    ServerKeepsDying,
    StateInUse,
    StateUnusable,
)
from threadhold.adapters.embedded.postgres import EmbeddedPostgres
from threadhold.adapters.embedded.servers import Revival, Servers, start_postgres, start_servers
from threadhold.adapters.embedded.valkey import EmbeddedValkey

__all__ = [
    "BinariesMissing",
    "DataOfAnotherVersion",
    "EmbeddedError",
    "EmbeddedPostgres",
    "EmbeddedValkey",
    "PortInUse",
    "Revival",
    "ServerDidNotStart",
    "ServerKeepsDying",
    "Servers",
    "StateInUse",
    "StateUnusable",
    "start_postgres",
    "start_servers",
]
