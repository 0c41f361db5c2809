"""Finds the user's app: `module:app` or `path/file.py:app`, with errors about their code, not ours."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from threadhold.adapters.cli.failure import CliError
from threadhold.runner.app import Threadhold

_OURS: Final = Path(__file__).parents[1]
_FORM: Final = "write it as module:app or path/file.py:app"


class TargetError(CliError):
    """The app cannot be loaded."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_target", message)


def load_app(target: str) -> Threadhold:
    """Import the target and return its app.

    Args:
        target: `module:app` or `path/file.py:app`.

    Raises:
        TargetError: there is no such module, file or app, or importing it failed.
    """
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise TargetError(f"{target!r} names no app; {_FORM}")
    is_file = where.endswith(".py") or "/" in where
    if where.startswith(".") and not is_file:
        raise TargetError(f"{where!r} is no module; {_FORM}")
    return _app(_from_file(Path(where)) if is_file else _from_module(where), where=where, name=name)


def _app(module: ModuleType, *, where: str, name: str) -> Threadhold:
    found = getattr(module, name, None)
    if isinstance(found, Threadhold):
        return found
    apps = sorted(key for key, value in vars(module).items() if isinstance(value, Threadhold))
    hint = f"; it has {', '.join(apps)}" if apps else "; add `app = Threadhold(agents={...})`"
    if not hasattr(module, name):
        raise TargetError(f"{where} has no {name!r}{hint}")
    raise TargetError(f"{name!r} in {where} is a {type(found).__name__}, not a Threadhold{hint}")


def _from_file(path: Path) -> ModuleType:
    try:
        if not path.is_file():
            raise TargetError(f"there is no file {path}; {_FORM}")
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from None
    folder = path.resolve().parent
    _reachable(folder)
    # A file named like a module that is loaded already must not replace that one for everybody.
    name = path.stem if path.stem not in sys.modules else f"threadhold_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file; {_FORM}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TargetError(_told(error, folder, str(path))) from None
    return module


def _from_module(name: str) -> ModuleType:
    _reachable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"there is no module {error.name!r} here or installed; {_FORM}") from None
        raise TargetError(_told(error, Path.cwd(), name)) from None
    except (Exception, SystemExit) as error:
        raise TargetError(_told(error, Path.cwd(), name)) from None


def _reachable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _told(error: BaseException, folder: Path, target: str) -> str:
    """Return an error of the user's code as one line: what, and where in their files."""
    what = str(error) if isinstance(getattr(error, "code", None), str) else f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename, folder)}, line {error.lineno}: SyntaxError: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if _is_theirs(Path(frame.filename), folder)]
    if not theirs:
        return f"{target}: {what}"
    return f"{_short(theirs[-1].filename, folder)}, line {theirs[-1].lineno}: {what}"


def _is_theirs(path: Path, folder: Path) -> bool:
    # Python's own loaders have no file, and would seem to lie where we stand.
    if path.name.startswith("<"):
        return False
    inside = path.is_relative_to(folder) or path.resolve().is_relative_to(folder)
    installed = "site-packages" in path.parts
    return (
        inside
        and not installed
        and not path.is_relative_to(_OURS)
        and not path.is_relative_to(_OURS.resolve())
    )


def _short(filename: str, folder: Path) -> str:
    for base in (Path.cwd(), folder):
        if Path(filename).is_relative_to(base):
            return str(Path(filename).relative_to(base))
    return filename
