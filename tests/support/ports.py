"""Ports to which a test's server comes back: nobody else is given one while the server is away."""

import os
import socket
import sys
import weakref
from typing import Final

HOST: Final = "127.0.0.1"


class KeptPort:
    """A port that was free, and that whoever asks for any free one is not given as long as this object lives.

    It stays bound and is never listened on. A server that sets SO_REUSEADDR, as servers do, listens on it all the same;
    only Linux allows that, and elsewhere it was merely free a moment ago.
    """

    def __init__(self) -> None:
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        self.number: Final[int] = holder.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(self, os.close, holder.detach())
        else:
            holder.close()
