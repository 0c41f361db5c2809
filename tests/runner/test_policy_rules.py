"""Rules over tool calls: the first match decides, the others are told, and a mistake in a rule allows nothing."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadhold import Above, Below, Like, Not, OneOf, Policy, Principal, Rule, Terms, ToolAsk
from threadhold.runner.admission import normalized
from threadhold.runner.policy import OTHERWISE, Verdict, evaluate

ME = Principal(id="me", workspace="home")


def ask(tool: str = "pay", environment: str = "development", by: Principal = ME, **args: Any) -> ToolAsk:
    return ToolAsk(agent="a", tool=tool, args=args, principal=by, environment=environment)


def test_the_first_match_decides_and_the_others_are_on_record() -> None:
    policy = Policy(
        [
            Rule("abroad", "deny", args={"country": Not("DE")}, reason="only at home"),
            Rule("much", "escalate", args={"euros": Above(100)}),
            Rule("any", "allow", tools=["pay"]),
        ],
        otherwise="deny",
    )
    found = evaluate(policy, ask(country="DE", euros=500))
    assert (found.verdict, found.rule, found.reason) == ("escalate", "much", "")
    assert [(each.rule, each.matched, each.taken) for each in found.branches] == [
        ("abroad", False, False),
        ("much", True, True),
        ("any", True, False),
        (OTHERWISE, True, False),
    ]
    denied = evaluate(policy, ask(country="FR", euros=500))
    assert (denied.verdict, denied.rule, denied.reason) == ("deny", "abroad", "only at home")
    assert evaluate(policy, ask(tool="look", country="DE")).rule == OTHERWISE
    assert evaluate(policy, ask(tool="look", country="DE")).verdict == "deny"
    assert evaluate(Policy(), ask()).verdict == "allow"


@pytest.mark.parametrize(
    ("args", "given", "matches"),
    [
        ({"n": 1}, {"n": 1}, True),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"n": True}, False),
        ({"n": True}, {"n": 1}, False),
        ({"n": None}, {}, False),
        ({"n": Above(1)}, {"n": 1}, False),
        ({"n": Above(1)}, {"n": 1.5}, True),
        ({"n": Above(-1)}, {"n": True}, False),
        ({"n": Above(1)}, {"n": "2"}, False),
        ({"n": Below(1)}, {"n": 0}, True),
        ({"n": Below(1)}, {}, False),
        ({"s": Like("*.example")}, {"s": "a.example"}, True),
        ({"s": Like("*.example")}, {"s": "A.EXAMPLE"}, False),
        ({"s": Like("*")}, {"s": 3}, False),
        ({"s": OneOf(["a", "b"])}, {"s": "b"}, True),
        ({"s": OneOf([1])}, {"s": True}, False),
        ({"s": Not(OneOf(["a", "b"]))}, {"s": "c"}, True),
        ({"s": Not("a")}, {}, True),
        ({"o.p.q": 1}, {"o": {"p": {"q": 1}}}, True),
        ({"o.p": 1}, {"o": [1]}, False),
        ({"o": {"p": 1}}, {"o": {"p": 1}}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ],
)
def test_arguments_match(args: Mapping[str, Any], given: Mapping[str, Any], matches: bool) -> None:
    assert Rule("r", "deny", args=args).matches(ask(**given)) is matches


def test_tools_roles_environments_and_predicates_match() -> None:
    operator = Principal(id="ops", workspace="home", roles=frozenset({"operator", "user"}))
    assert Rule("r", "deny", tools=["read_*", "pay"]).matches(ask(tool="read_file"))
    assert not Rule("r", "deny", tools=["read_*"]).matches(ask(tool="READ_file"))
    assert Rule("r", "deny", roles=["operator"]).matches(ask(by=operator))
    assert not Rule("r", "deny", roles=["operator"]).matches(ask())
    assert Rule("r", "deny", environments=["production"]).matches(ask(environment="production"))
    assert not Rule("r", "deny", environments=["production"]).matches(ask())
    assert Rule("r", "deny", where=lambda it: it.agent == "a").matches(ask())
    assert not Rule("r", "deny", where=lambda it: it.principal.id == "you").matches(ask())


def test_a_rule_that_cannot_be_asked_denies() -> None:
    policy = Policy([Rule("broken", "allow", where=lambda it: it.args["missing"] > 1), Rule("any", "allow")])
    found = evaluate(policy, ask())
    assert (found.verdict, found.rule, found.reason) == ("deny", "broken", "this rule could not be asked")
    assert found.branches[0].error == "KeyError: 'missing'"
    # Behind one that has decided it changes nothing, and is on record all the same.
    behind = evaluate(Policy([Rule("any", "allow"), *policy.rules[:1]]), ask())
    assert (behind.verdict, behind.branches[1].error) == ("allow", "KeyError: 'missing'")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rule("", "allow"), "has a name"),
        (lambda: Rule("r", "perhaps"), "verdict is one of"),  # type: ignore[arg-type]
        (lambda: Rule("r", "allow", tools="pay"), r"\['pay'\]"),
        (lambda: Rule("r", "allow", tools=[]), "list of names"),
        (lambda: Policy([Rule("r", "allow"), Rule("r", "deny")]), "another name"),
        (lambda: Policy([Rule(OTHERWISE, "allow")]), "another name"),
        (lambda: Policy([Rule(str(n), "allow") for n in range(1001)]), "at most 1000"),
        (lambda: Policy(otherwise="no"), "otherwise is one of"),  # type: ignore[arg-type]
    ],
)
def test_rules_that_make_no_sense_are_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_arguments_have_one_form() -> None:
    assert normalized({"when": Terms(), "text": "a\x00b"})["text"] == "a\ufffdb"
    assert normalized([1, 2]) == {"value": [1, 2]}
    assert isinstance(normalized({"x": object()})["x"], str)


VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["allow", "deny", "escalate"])
RULES = st.lists(st.tuples(VERDICTS, st.sampled_from(["hit", "miss", "raise"])), max_size=6)


@given(RULES, VERDICTS)
def test_exactly_one_branch_is_taken_and_it_is_the_first_that_matched(
    drawn: list[tuple[Verdict, str]], otherwise: Verdict
) -> None:
    def where(what: str) -> Any:
        return lambda it: it.args["nothing"] if what == "raise" else what == "hit"

    rules = [Rule(str(n), verdict, where=where(what)) for n, (verdict, what) in enumerate(drawn)]
    found = evaluate(Policy(rules, otherwise), ask())
    assert len(found.branches) == len(rules) + 1
    taken = [each for each in found.branches if each.taken]
    first = next(n for n, each in enumerate(found.branches) if each.matched)
    assert [found.branches.index(each) for each in taken] == [first]
    assert (found.verdict, found.rule) == (taken[0].verdict, taken[0].rule)
    if first < len(rules) and drawn[first][1] == "raise":
        assert found.verdict == "deny"
