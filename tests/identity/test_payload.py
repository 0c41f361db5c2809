"""What a verified token says becomes a principal, or is refused."""

from typing import Any

import pytest

from threadhold.adapters.identity.errors import TokenRefused
from threadhold.adapters.identity.payload import Naming, principal_of, roles_of
from threadhold.runner.records import Principal

GOOD = {"sub": "ada", "workspace": "acme"}


def test_subject_and_workspace_are_the_principal() -> None:
    assert principal_of(GOOD) == Principal(id="ada", workspace="acme", roles=frozenset({"user"}))


def test_the_fields_may_have_names_of_ones_own() -> None:
    naming = Naming(workspace="https://example.com/org", roles="scope")
    fields = {"sub": "ada", "https://example.com/org": "acme", "scope": "openid threadhold:operator"}
    found = principal_of(fields, naming)
    assert (found.workspace, sorted(found.roles)) == ("acme", ["operator", "user"])


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (None, set()),
        (["approver", "operator"], {"approver", "operator"}),
        (["admin", "approver"], {"approver"}),
        ("approver threadhold:operator", {"approver", "operator"}),
        ("threadhold:admin operators", set()),
        (["other:operator", 5, None, ["operator"]], set()),
        ({"operator": True}, set()),
        (7, set()),
    ],
    ids=range(8),
)
def test_unknown_roles_are_passed_over_and_everybody_is_a_user(value: Any, known: set[str]) -> None:
    assert roles_of(value) == {"user"} | known


@pytest.mark.parametrize("name", ["sub", "workspace"])
@pytest.mark.parametrize("value", [None, ""])
def test_without_a_subject_or_a_workspace_it_is_nobodys(name: str, value: Any) -> None:
    with pytest.raises(TokenRefused) as refused:
        principal_of({**GOOD, name: value})
    assert refused.value.reason == "missing_claim"
    assert repr(name) in refused.value.message


@pytest.mark.parametrize("name", ["sub", "workspace"])
@pytest.mark.parametrize("value", [5, ["ada"], "a\x00b", " ada", "x" * 201, "\ud800", "a\nb"], ids=repr)
def test_ids_that_could_not_be_kept_or_told_apart_are_refused(name: str, value: Any) -> None:
    with pytest.raises(TokenRefused) as refused:
        principal_of({**GOOD, name: value})
    assert refused.value.reason == "bad_claim"


@pytest.mark.parametrize("id", ["system", "runner"])
def test_nobody_is_taken_for_the_system(id: str) -> None:
    with pytest.raises(TokenRefused):
        principal_of({**GOOD, "sub": id})
    assert principal_of({**GOOD, "workspace": id}).workspace == id
