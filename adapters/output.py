"""What a process prints, without secrets: tools and libraries write where they like."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, TextIO

from threadhold.runner.scrubbing import Scrubber


class ScrubbedOutput(io.TextIOBase):
    """A text stream that writes to another one what is no secret.

    What may be the beginning of a secret waits for the rest, or for the end; everything else goes out at once.
    """

    def __init__(self, stream: TextIO, scrubber: Scrubber) -> None:
        self._stream = stream
        self._scrubbing = scrubber.stream()
        # One and the same thread may come back here, from a signal handler or a finalizer that logs.
        self._lock = RLock()

    def write(self, text: str) -> int:
        """Write what may go out of a text by now, and return how long the text is."""
        with self._lock:
            self._stream.write(self._scrubbing.feed(text))
        return len(text)

    def flush(self) -> None:
        """Flush what went out; what is held back stays."""
        self._stream.flush()

    def finish(self) -> None:
        """Write what was held back."""
        with self._lock:
            self._stream.write(self._scrubbing.end())
            self._stream.flush()

    def writable(self) -> bool:
        """Whether it takes text."""
        return True

    def isatty(self) -> bool:
        """Whether it goes to a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file's number, for those who write past this."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """How text is encoded."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What becomes of text that cannot be."""
        return self._stream.errors

    @property
    def buffer(self) -> Any:
        """The bytes below, for those who write past this."""
        return self._stream.buffer


@contextmanager
def scrubbed_output(scrubber: Scrubber) -> Iterator[None]:
    """Scrub what this process prints while the body runs."""
    before = sys.stdout, sys.stderr
    out, err = (ScrubbedOutput(stream, scrubber) for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        out.finish()
        err.finish()
