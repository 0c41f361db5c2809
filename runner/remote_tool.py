"""Calls one tool of the app's agents for a worker elsewhere, for the same principal and with the same dependencies."""

import inspect
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from pydantic_ai.durable_exec import DurabilityEngineSpec, DurableRunContext
from pydantic_ai.toolsets import CombinedToolset

from threadhold.runner.app import Hosted, Threadhold
from threadhold.runner.bindings import DEFAULT, TIMEOUT_MAX
from threadhold.runner.carrying import carried_out
from threadhold.runner.credentials import Learned, Secrets
from threadhold.runner.errors import RunFailure
from threadhold.runner.identity import RunIdentity
from threadhold.runner.memory import bindings_of
from threadhold.runner.records import Principal
from threadhold.runner.remote_records import RemoteCall, RemoteEnd, end_of
from threadhold.runner.within import APART

SPEC: Final = DurabilityEngineSpec(
    engine_name="threadhold", durable_unit_noun="executor", durable_container_noun="run"
)
MOMENT: Final = timedelta(milliseconds=1)
LEARNED: Final = Learned()
"""The secrets of all calls of this process: what one was given, a later one may find and return."""


class ExecutorContext(DurableRunContext[Any]):
    """The context of a run as far as a tool has it in an executor."""

    def unavailable_field_message(self, name: str) -> str:
        """Return what a tool is told that asks for more."""
        return f"{name!r} of the run's context is not there in an executor; bind the tool to none if it needs that"


async def called(app: Threadhold, call: RemoteCall) -> RemoteEnd:
    """Call a tool within what is left of its time, and return how that came out, without anything secret in it."""
    hosted = app.hosted(call.agent)
    left = min(TIMEOUT_MAX, max(MOMENT, timedelta(seconds=call.left_s)))
    binding = replace(hosted.tools.get(call.tool, DEFAULT), timeout=left)
    identity = _identity(call)
    with Secrets(hosted.credentials, identity, learned=LEARNED) as secrets:
        carried = await carried_out(lambda: _call(hosted, call, identity), binding=binding, secrets=secrets)
        return end_of(carried)


def _identity(call: RemoteCall) -> RunIdentity:
    return RunIdentity(
        principal=Principal(id=call.principal, workspace=call.workspace, roles=call.roles),
        workspace=call.workspace,
        thread=call.thread,
        run=call.run,
        attempt=call.attempt,
        fence=call.fence,
        memory=bindings_of(call.context["memory"]),
    )


async def _call(hosted: Hosted, call: RemoteCall, identity: RunIdentity) -> Any:
    APART.set(True)
    made = None if hosted.deps is None else hosted.deps(identity)
    deps = await made if inspect.isawaitable(made) else made
    ctx = ExecutorContext.restore(call.context["run"], deps=deps, agent=hosted.agent, engine_spec=SPEC)
    toolset = await CombinedToolset(hosted.agent.toolsets).for_run(ctx)
    async with toolset:
        present = await toolset.for_run_step(ctx)
        tool = (await present.get_tools(ctx)).get(call.tool)
        if tool is None:
            raise RunFailure(f"the executor's agent has no tool {call.tool!r}", reason="executor")
        # As JSON, which is what they came as: strict types take less from Python values.
        args = tool.args_validator.validate_json(json.dumps(call.args))
        return await present.call_tool(call.tool, args, ctx, tool)
