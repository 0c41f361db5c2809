"""Fan-out: facts and live frames on their way to watchers. Knows threads and runs only by their names.

What speaks to Redis (`redis`, `subscriber`, `connections`, `batches`, `wire`) and `nodes`, which spreads threads over
several servers, is left out here, since only the composition roots pick a backend.
"""

from threadhold.fanout.counts import HubStats
from threadhold.fanout.cursor import N_MAX, InvalidCursor, Position, parse_cursor
from threadhold.fanout.errors import FanoutError, LiveUnavailable, WatchInterrupted
from threadhold.fanout.frame import Delivery, Frame, Kind
from threadhold.fanout.hub import Hub
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import FactLog, Head, LiveLog, LivePage, Place, Signal, Subscriber

__all__ = [
    "Delivery",
    "FactLog",
    "FanoutError",
    "Frame",
    "Head",
    "Hub",
    "HubStats",
    "InvalidCursor",
    "Kind",
    "LiveLog",
    "LivePage",
    "LiveUnavailable",
    "MemoryLive",
    "MemorySubscriber",
    "N_MAX",
    "Outbox",
    "Place",
    "Position",
    "Signal",
    "Subscriber",
    "WatchInterrupted",
    "parse_cursor",
]
