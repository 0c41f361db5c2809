"""What is typed as a decision."""

from typing import Any

import pytest

from threadhold.adapters.cli.deciding import Asked, arguments, first_for, how_to_type, options, reply, typed
from threadhold.adapters.cli.failure import CliError
from threadhold.runner.decisions import Decision


def asked(id: str, kind: str) -> Asked:
    return Asked(id=id, kind=kind, tool="t", args={}, args_hash=None)


@pytest.mark.parametrize(
    ("verb", "rest", "decision"),
    [
        ("/approve", "", Decision.approve()),
        ("/edit", '{"a": 1}', Decision.edit({"a": 1})),
        ("/reject", "", Decision.reject()),
        ("/reject", "too much", Decision.reject("too much")),
    ],
)
def test_commands_are_decisions(verb: str, rest: str, decision: Decision) -> None:
    assert typed(verb, rest) == decision


@pytest.mark.parametrize(
    ("verb", "rest"), [("/approve", "it"), ("/edit", ""), ("/edit", "[1]"), ("/edit", "{")]
)
def test_what_is_no_decision_says_how_it_is_written(verb: str, rest: str) -> None:
    with pytest.raises(CliError, match="JSON") as caught:
        typed(verb, rest)
    assert caught.value.code == "usage"


def test_arguments_nested_without_end_are_refused() -> None:
    with pytest.raises(CliError, match="arguments are a JSON object"):
        arguments('{"a":' * 100_000)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("XL", "XL"),
        ("5", "5"),
        ("true", "true"),
        ("null", "null"),
        ('{"size": "XL"}', {"size": "XL"}),
        ("[1, 2]", [1, 2]),
        ('"5"', "5"),
        ("{not json", "{not json"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=range(9),
)
def test_a_reply_is_a_text_unless_it_is_clearly_json(text: str, value: Any) -> None:
    assert reply(text) == value


def test_only_an_approval_is_approved_and_anything_is_rejected() -> None:
    both = [asked("q", "question"), asked("a", "approval"), asked("b", "approval")]
    assert first_for("/approve", both) == both[1]
    assert first_for("/edit", both) == both[1]
    assert first_for("/reject", both) == both[0]
    assert first_for("/approve", both[:1]) is None


def test_what_can_be_typed_depends_on_what_is_asked() -> None:
    told = {how_to_type([asked("x", kind)]) for kind in ("question", "approval", "external")}
    told.add(how_to_type([asked("x", "question"), asked("y", "approval")]))
    assert len(told) == 4
    assert options("approval") != options("question") == options("external")
