"""How this program was called, so that what we tell people to type works where they stand."""

import os
import shlex
import shutil
import sys
from typing import Final

NAME: Final = "threadhold"


def program() -> str:
    """Return what to type for `threadhold`: the name if a shell finds it, else the path as it was called."""
    if shutil.which(NAME) is not None:
        return NAME
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return f"{shlex.quote(_short(sys.executable))} -m {NAME}"
    return shlex.quote(_short(called))


def _short(path: str) -> str:
    """Return a path as it is, or relative to where we stand if that is shorter."""
    if os.sep not in path:
        return path
    relative = os.path.relpath(path)
    if os.sep not in relative:
        relative = os.path.join(os.curdir, relative)
    return min(path, relative, key=len)
