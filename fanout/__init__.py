"""Fan-out: facts and live frames on their way to watchers. Knows threads and runs only by their names.

`threadhold.fanout.redis` is left out here, since only the composition root picks a backend.
"""

from threadhold.fanout.cursor import N_MAX, InvalidCursor, Position, parse_cursor
from threadhold.fanout.errors import FanoutError, LiveUnavailable, WatchInterrupted
from threadhold.fanout.frame import Delivery, Frame, Kind
from threadhold.fanout.hub import Hub, HubStats
from threadhold.fanout.memory import MemoryLive, MemorySubscriber
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import FactLog, Head, LiveLog, Signal, Subscriber

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
    "LiveUnavailable",
    "MemoryLive",
    "MemorySubscriber",
    "N_MAX",
    "Outbox",
    "Position",
    "Signal",
    "Subscriber",
    "WatchInterrupted",
    "parse_cursor",
]
