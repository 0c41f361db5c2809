"""Build the wheel, install it into a fresh environment, and look at what came with it.

The links under src/threadhold are resolved by the build; this holds that every module and data file is
there, and that no part of it became a top-level package.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("adapters", "claims", "fanout", "runner", "storage")
DATA = {".py", ".sql", ".lua", ".html", ".js", ".css"}
LOOK = f"""
import importlib, importlib.util
for name in {PARTS!r}:
    importlib.import_module(f"threadhold.{{name}}")
bare = [name for name in {PARTS!r} if importlib.util.find_spec(name)]
assert not bare, f"installed as top-level packages: {{bare}}"
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command without the caller's PYTHONPATH, which would hide what is missing in the wheel."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, check=True, timeout=300, stdin=subprocess.DEVNULL
    )


def expected() -> set[str]:
    """Return the paths that the wheel must hold."""
    files = {f"threadhold/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}
    for part in PARTS:
        paths = (path for path in (ROOT / part).rglob("*") if path.suffix in DATA)
        files |= {f"threadhold/{path.relative_to(ROOT).as_posix()}" for path in paths}
    return files


def main() -> None:
    """Build, compare, install, import; raise on the first thing that is wrong."""
    build = ROOT / "build"
    # A stale build/lib would put deleted modules into the wheel.
    for stale in (build / "lib", build / "wheel", build / "wheel-venv", *build.glob("bdist.*")):
        shutil.rmtree(stale, ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", build / "wheel", ".")
    wheel = next((build / "wheel").glob("threadhold-*.whl"))
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if names != expected():
        missing, surplus = sorted(expected() - names), sorted(names - expected())
        sys.exit(f"check: the wheel lacks {missing}, and has {surplus} too much")
    run(sys.executable, "-m", "venv", build / "wheel-venv")
    python = build / "wheel-venv" / "bin" / "python"
    # Python compiles what is imported; the rest of the dependencies is never looked at.
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel)
    run(python, "-c", LOOK, cwd=build / "wheel-venv")
    print(f"check: {wheel.name} holds {len(names)} files and imports")


if __name__ == "__main__":
    main()
