"""What the page on governance says is read off the code."""

import json
import re
from dataclasses import fields
from typing import Any, get_args

from tests.project.sources import ROOT
from threadhold import Policy, Principal, Threadhold, ToolAsk
from threadhold.runner.policy import Branch, Rule, Verdict, evaluate

PAGE = (ROOT / "docs" / "governance.md").read_text()
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
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
    own = {each.name for each in fields(Rule)} - {"name", "verdict", "reason", "terms"}
    assert named == own | set(get_args(Verdict))
