"""Run pydantic-ai agents in durable, shared threads, on as many processes as you like."""

from importlib.metadata import version as _version

from threadhold.adapters.bootstrap import open_runner
from threadhold.adapters.settings import Settings
from threadhold.runner.app import Hosted, RunIdentity, Threadhold
from threadhold.runner.errors import Rejection, RunFailure, RunnerError
from threadhold.runner.records import Principal
from threadhold.runner.service import Runner

__all__ = [
    "Hosted",
    "Principal",
    "Rejection",
    "RunFailure",
    "RunIdentity",
    "Runner",
    "RunnerError",
    "Settings",
    "Threadhold",
    "open_runner",
]

__version__ = _version("threadhold")
