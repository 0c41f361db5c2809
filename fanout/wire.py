"""What is said on the channels of Redis, as bytes.

A thread's channel carries doorbells, `D<seq>`; live frames, `L<fence>-<n> <json>`; and, for a frame too big
to publish, pointers, `P<fence>-<n>`, which say that it is to be read from the stream.
"""

import re
from dataclasses import dataclass
from typing import Final

from threadhold.fanout.frame import Frame, parse_frame

_ID: Final = re.compile(rb"([0-9]{1,18})-([0-9]{1,10})")
_SEQ: Final = re.compile(rb"[0-9]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doorbell:
    """The thread's log has grown to `seq`."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A frame that was too large to publish is in the stream under this id."""

    fence: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A frame, and the JSON that it came as."""

    frame: Frame
    text: str


class Names:
    """Keys and channels under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def stream(self, thread: str) -> str:
        """Return the key of a thread's stream."""
        return f"{self._prefix}live:{thread}"

    def channel(self, thread: str) -> str:
        """Return a thread's channel."""
        return f"{self._prefix}ch:{thread}"

    def beat(self, subscriber: str) -> str:
        """Return the channel of a subscriber's own heartbeats."""
        return f"{self._prefix}beat:{subscriber}"

    def plain(self, name: str) -> str:
        """Return the channel of a nudge."""
        return f"{self._prefix}{name}"


def stream_id(fence: int, n: int) -> str:
    """Return the id of a live frame in its thread's stream."""
    return f"{fence}-{n}"


def parse_stream_id(text: bytes) -> tuple[int, int]:
    """Read what `stream_id` returned."""
    fence, _, n = text.partition(b"-")
    return int(fence), int(n)


def doorbell(seq: int) -> bytes:
    """Return a doorbell's message."""
    return b"D%d" % seq


def parse_message(data: bytes) -> Body | Doorbell | Pointer:
    """Read a message of a thread's channel.

    Raises:
        ValueError: if it has none of the three forms.
    """
    kind, rest = data[:1], data[1:]
    if kind == b"L":
        _, _, body = rest.partition(b" ")
        if not body.endswith(b"}"):
            raise ValueError("a frame's JSON ends with its object: cursors are spliced in there")
        return Body(frame=parse_frame(body), text=body.decode())
    if kind == b"D" and _SEQ.fullmatch(rest):
        return Doorbell(seq=int(rest))
    found = _ID.fullmatch(rest) if kind == b"P" else None
    if found is None:
        raise ValueError("the message is not one of a thread's channel")
    return Pointer(fence=int(found[1]), n=int(found[2]))
