"""Run pydantic-ai agents in durable, shared threads, on as many processes as you like.

The names below are imported when they are first used: a command that only talks to an API needs no agent library.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from threadhold.adapters.bootstrap import open_runner
    from threadhold.adapters.client import Client, ClientError, Watched
    from threadhold.adapters.settings import Settings
    from threadhold.runner.app import Hosted, Retry, RunIdentity, Threadhold
    from threadhold.runner.decisions import Decision, Terms
    from threadhold.runner.errors import Rejection, RunFailure, RunnerError
    from threadhold.runner.policy import Above, Below, Like, Not, OneOf, Policy, Rule, ToolAsk
    from threadhold.runner.records import Principal
    from threadhold.runner.service import Runner

    __version__: str

_HOMES = {
    "Above": "threadhold.runner.policy",
    "Below": "threadhold.runner.policy",
    "Client": "threadhold.adapters.client",
    "ClientError": "threadhold.adapters.client",
    "Decision": "threadhold.runner.decisions",
    "Hosted": "threadhold.runner.app",
    "Like": "threadhold.runner.policy",
    "Not": "threadhold.runner.policy",
    "OneOf": "threadhold.runner.policy",
    "Policy": "threadhold.runner.policy",
    "Principal": "threadhold.runner.records",
    "Rejection": "threadhold.runner.errors",
    "Retry": "threadhold.runner.app",
    "Rule": "threadhold.runner.policy",
    "RunFailure": "threadhold.runner.errors",
    "RunIdentity": "threadhold.runner.app",
    "Runner": "threadhold.runner.service",
    "RunnerError": "threadhold.runner.errors",
    "Settings": "threadhold.adapters.settings",
    "Terms": "threadhold.runner.decisions",
    "Threadhold": "threadhold.runner.app",
    "ToolAsk": "threadhold.runner.policy",
    "Watched": "threadhold.adapters.client",
    "open_runner": "threadhold.adapters.bootstrap",
}

__all__ = [
    "Above",
    "Below",
    "Client",
    "ClientError",
    "Decision",
    "Hosted",
    "Like",
    "Not",
    "OneOf",
    "Policy",
    "Principal",
    "Rejection",
    "Retry",
    "Rule",
    "RunFailure",
    "RunIdentity",
    "Runner",
    "RunnerError",
    "Settings",
    "Terms",
    "Threadhold",
    "ToolAsk",
    "Watched",
    "open_runner",
]


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        return _import_module("importlib.metadata").version("threadhold")
    if name not in _HOMES:
        raise AttributeError(f"module 'threadhold' has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)
