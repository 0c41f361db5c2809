"""What the page on governance says is read off the code."""

import json
import re
from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic_ai import RunContext
from pydantic_ai.durable_exec import DurableRunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from tests.project.sources import ROOT
from threadhold import Binding, Policy, Principal, RunFailure, RunIdentity, Threadhold, ToolAsk
from threadhold.adapters.executor.children import LETTING_GO_S
from threadhold.adapters.executor.executor import MUTE_S
from threadhold.runner.bindings import TIMEOUT
from threadhold.runner.carrying import TIMED_OUT, carried_out
from threadhold.runner.credentials import Secrets
from threadhold.runner.policy import Branch, Rule, Verdict, evaluate
from threadhold.runner.remote import SILENT
from threadhold.runner.remote_records import EXECUTOR_LOST, EXECUTOR_MISSING, RemoteCall, result_of
from threadhold.runner.remote_tool import called
from threadhold.runner.returned import FILE_BYTES_MAX, RETURNED_CHARS_MAX
from threadhold.runner.scrubbing import MARKER
from threadhold.runner.secret_forms import VALUE_CHARS_MIN

PAGE = (ROOT / "docs" / "governance.md").read_text()
CODE, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(FACT,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def policy() -> Policy:
    scope: dict[str, Any] = {}
    exec(compile(CODE, "governance.md", "exec"), scope)
    assert isinstance(scope["app"], Threadhold)
    found: Policy = scope["policy"]
    return found


def ask(tool: str, *, environment: str = "development", **args: Any) -> ToolAsk:
    me = Principal(id="me", workspace="home")
    return ToolAsk(agent="bank", tool=tool, args=args, principal=me, environment=environment)


def test_the_policy_decides_as_it_reads() -> None:
    made = policy()
    assert evaluate(made, ask("wire", account="FR1", euros=1.0)).rule == "only known accounts"
    assert evaluate(made, ask("wire", account="DE1", euros=1.0)).rule == "sums"
    assert evaluate(made, ask("delete_all", environment="production")).rule == "no tests on real data"
    assert evaluate(made, ask("read_order", kind="order")).verdict == "allow"
    assert evaluate(made, ask("read_order", kind="person")).verdict == "deny"


def test_the_fact_is_what_an_evaluation_gives() -> None:
    told = json.loads(FACT)
    found = evaluate(policy(), ask("wire", account="DE02", euros=2000.0))
    assert (told["verdict"], told["rule"], told["reason"]) == (found.verdict, found.rule, found.reason)
    shown = [Branch(**branch) for branch in told["branches"]]
    assert shown == list(found.branches[: len(shown)])


def test_the_tables_name_everything() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    own = {each.name for each in fields(Rule)} - {"name", "verdict", "reason", "terms", "grant"}
    assert named == own | set(get_args(Verdict))


async def test_the_model_never_sees_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "credential()" in block)
    exec(compile(CODE + code, "governance.md", "exec"), scope)
    hosted = scope["desk"].hosted("clerk")
    binding = hosted.tools["open_issue"]
    me = Principal(id="ada", workspace="home")
    identity = RunIdentity(principal=me, workspace="home", thread="t", run="r", attempt=1, fence=1, memory=())
    monkeypatch.setenv("GITHUB_TOKEN_OF_ADA", "a token of ada")

    async def call() -> dict[str, str]:
        made: dict[str, str] = scope["open_issue"]("a bug")
        return made

    with Secrets(hosted.credentials, identity) as secrets:
        carried = await carried_out(call, binding=binding, secrets=secrets)
    assert carried.result == {"opened": "a bug", "with": f"Bearer {MARKER}"}
    assert carried.result["with"] in PAGE
    bare = await carried_out(call, binding=Binding(), secrets=secrets)
    assert isinstance(bare.raised, RunFailure)
    assert f"`{bare.raised.reason}`" in PAGE
    assert f"`{TIMED_OUT}`" in PAGE
    assert f"{RETURNED_CHARS_MAX // 1024} KiB" in PAGE
    assert f"{FILE_BYTES_MAX // 1024**2} MiB" in PAGE
    assert f"{TIMEOUT.total_seconds() / 60:g} minutes" in PAGE
    assert f"fewer than {VALUE_CHARS_MIN} characters" in PAGE


async def test_an_executor_carries_out_the_tool_of_the_page() -> None:
    scope: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "executor=" in block)
    secrets = next(block for block in blocks if "credential()" in block)
    exec(compile(CODE + secrets + code, "governance.md", "exec"), scope)
    app = scope["bench"]
    (command,) = re.findall(r"^threadhold executor \S+ --queue (\w+)", PAGE, re.MULTILINE)
    assert app.bound_to(command) == ("chemist.measure",)
    context = RunContext(
        deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c1", tool_name="measure"
    )
    call = RemoteCall(
        id="1",
        workspace="home",
        principal="ada",
        roles=frozenset(),
        thread="t",
        run="r",
        attempt=1,
        fence=1,
        asked_by="w",
        call_id="c1",
        agent="chemist",
        tool="measure",
        args={"sample": "rain"},
        context={"run": DurableRunContext.serialize_run_context(context), "memory": []},
        left_s=60.0,
    )
    end = await called(app, call)
    assert result_of(end, timeout=60.0) == {"rain": 7.2}
    for told in (TIMED_OUT, EXECUTOR_LOST, EXECUTOR_MISSING):
        assert f"`{told}`" in PAGE
    assert f"{LETTING_GO_S:g} seconds later" in PAGE
    assert f"about {SILENT.total_seconds():g} seconds" in PAGE
    assert f"{MUTE_S:g} seconds kills" in " ".join(PAGE.split())
