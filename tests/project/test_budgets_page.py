"""The page on budgets is true: its code runs, and what it lists is the code's."""

import json
import re
from dataclasses import fields
from typing import Any, get_args

from tests.project.sources import ROOT
from threadhold import Budget, Limits, Principal, Threadhold
from threadhold.runner.admitting import Admitting
from threadhold.runner.budget import OUTPUT_TOKENS
from threadhold.runner.records import Interface
from threadhold.runner.spending import HELD_S_MAX

PAGE = (ROOT / "docs" / "budgets.md").read_text()
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_budgets_are_for_whom_the_page_says() -> None:
    scope: dict[str, Any] = {}
    exec(compile(CODE, "budgets.md", "exec"), scope)
    app: Threadhold = scope["app"]
    admitting = Admitting(environment="production", budgets=app.budgets)
    ada = Principal(id="ada", workspace="home", interface="websocket")
    boss = Principal(id="boss", workspace="home", roles=frozenset({"user", "operator"}))
    assert admitting.of(ada)["budgets"] == {"support": "guests"}
    assert admitting.of(boss)["budgets"] == {"support": "staff"}
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    told = admitting.of(ada)
    assert json.loads(shown) == {
        "principal": "ada",
        "interface": told["interface"],
        "environment": told["environment"],
        "budget": told["budgets"]["support"],
    }


def test_the_table_names_each_limit() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == {each.name for each in fields(Limits)} - {"every"} | {"depth"}


def test_numbers_and_names_are_the_codes() -> None:
    assert f"{OUTPUT_TOKENS:,}" in PAGE
    assert HELD_S_MAX == 60.0
    assert set(get_args(Interface)) - set(re.findall(r"`(\w+)`", PAGE)) == {"repository"}
    assert Budget("b").output_tokens == OUTPUT_TOKENS
