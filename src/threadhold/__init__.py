"""Run pydantic-ai agents in durable, shared threads, on as many processes as you like.

The names below are imported when they are first used: a command that only talks to an API needs no agent library.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from threadhold.adapters.bootstrap import open_repository, open_runner
    from threadhold.adapters.client import Client, ClientError, Watched
    from threadhold.adapters.settings import Settings
    from threadhold.runner.app import Hosted, Retry, RetryErrors, Threadhold
    from threadhold.runner.bindings import Binding
    from threadhold.runner.budget import Budget, BudgetExhausted, Limits, Price
    from threadhold.runner.credentials import credential
    from threadhold.runner.decisions import Decision, Terms
    from threadhold.runner.delegation import delegate
    from threadhold.runner.errors import Rejection, RunFailure, RunnerError
    from threadhold.runner.identity import RunIdentity
    from threadhold.runner.memory import MemoryBinding
    from threadhold.runner.policy import Above, Below, Like, Not, OneOf, Policy, Rule, ToolAsk
    from threadhold.runner.records import Principal
    from threadhold.runner.service import Runner
    from threadhold.runner.window import Window

    __version__: str

_HOMES = {
    "Above": "threadhold.runner.policy",
    "Below": "threadhold.runner.policy",
    "Binding": "threadhold.runner.bindings",
    "Budget": "threadhold.runner.budget",
    "BudgetExhausted": "threadhold.runner.budget",
    "Client": "threadhold.adapters.client",
    "ClientError": "threadhold.adapters.client",
    "Decision": "threadhold.runner.decisions",
    "Hosted": "threadhold.runner.app",
    "Like": "threadhold.runner.policy",
    "Limits": "threadhold.runner.budget",
    "MemoryBinding": "threadhold.runner.memory",
    "Not": "threadhold.runner.policy",
    "OneOf": "threadhold.runner.policy",
    "Policy": "threadhold.runner.policy",
    "Price": "threadhold.runner.budget",
    "Principal": "threadhold.runner.records",
    "Rejection": "threadhold.runner.errors",
    "Retry": "threadhold.runner.app",
    "RetryErrors": "threadhold.runner.app",
    "Rule": "threadhold.runner.policy",
    "RunFailure": "threadhold.runner.errors",
    "RunIdentity": "threadhold.runner.identity",
    "Runner": "threadhold.runner.service",
    "RunnerError": "threadhold.runner.errors",
    "Settings": "threadhold.adapters.settings",
    "Terms": "threadhold.runner.decisions",
    "Threadhold": "threadhold.runner.app",
    "ToolAsk": "threadhold.runner.policy",
    "Watched": "threadhold.adapters.client",
    "Window": "threadhold.runner.window",
    "credential": "threadhold.runner.credentials",
    "delegate": "threadhold.runner.delegation",
    "open_repository": "threadhold.adapters.bootstrap",
    "open_runner": "threadhold.adapters.bootstrap",
}

__all__ = [
    "Above",
    "Below",
    "Binding",
    "Budget",
    "BudgetExhausted",
    "Client",
    "ClientError",
    "Decision",
    "Hosted",
    "Like",
    "Limits",
    "MemoryBinding",
    "Not",
    "OneOf",
    "Policy",
    "Price",
    "Principal",
    "Rejection",
    "Retry",
    "RetryErrors",
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
    "Window",
    "credential",
    "delegate",
    "open_repository",
    "open_runner",
]


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        return _import_module("importlib.metadata").version("threadhold")
    if name not in _HOMES:
        raise AttributeError(f"module 'threadhold' has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)
