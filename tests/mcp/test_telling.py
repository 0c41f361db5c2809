"""Forms, decisions and texts, without a server."""

import json
from typing import Any

import pytest

from tests.http.records import request_of
from threadhold.adapters.mcp.asking import asked, can_be_asked, decision, form
from threadhold.adapters.mcp.refusals import told
from threadhold.adapters.mcp.schemas import Standing, Status
from threadhold.adapters.mcp.telling import standing_text
from threadhold.adapters.replies import ClientError
from threadhold.runner.decisions import Decision


@pytest.mark.parametrize(
    ("kind", "action", "content", "made"),
    [
        ("approval", "accept", {"decision": "approve"}, Decision.approve()),
        ("approval", "accept", {"decision": "reject"}, Decision.reject()),
        ("approval", "accept", {"decision": "reject", "reason": "no"}, Decision.reject("no")),
        ("approval", "accept", {"decision": "perhaps"}, None),
        ("approval", "accept", {}, None),
        ("approval", "accept", None, None),
        ("approval", "decline", None, Decision.reject()),
        ("approval", "cancel", {"decision": "approve"}, None),
        ("question", "accept", {"answer": "XL"}, Decision.reply("XL")),
        ("question", "accept", {"answer": 7}, None),
        ("question", "accept", {"decision": "approve"}, None),
        ("question", "decline", None, Decision.reject()),
        ("external", "accept", {"answer": "XL"}, None),
    ],
)
def test_only_a_form_that_says_so_decides(
    kind: str, action: str, content: dict[str, Any] | None, made: Decision | None
) -> None:
    assert decision(kind, action, content) == made


def test_who_may_be_asked_about_what() -> None:
    assert can_be_asked(asked(request_of("r", kind="approval")))
    assert can_be_asked(asked(request_of("r", kind="question")))
    assert not can_be_asked(asked(request_of("r", kind="external")))
    for limit in ({"other_only": True}, {"approvers": ["bob"]}):
        assert not can_be_asked(asked(request_of("r", kind="approval")).model_copy(update=limit))


def test_a_form_shows_all_that_is_decided_on() -> None:
    args = {"to": "ö" * 1000, "why": 'a "good" one'}
    each = asked(request_of("r", kind="approval")).model_copy(update={"args": args})
    text, schema = form(each)
    assert "ö" * 1000 in text
    assert schema["required"] == ["decision"]
    assert not can_be_asked(each.model_copy(update={"args": {"to": "x" * 4001}}))


def test_what_cannot_be_seen_is_spelled_out_in_a_form() -> None:
    args = {"file": "\u202etxt.exe\u200b", "why": "a\U000e0041b"}
    text, _ = form(asked(request_of("r", kind="approval")).model_copy(update={"args": args}))
    assert '"\\u202etxt.exe\\u200b"' in text
    assert '"a\\udb40\\udc41b"' in text
    assert json.loads(text.partition("\n")[2]) == args


@pytest.mark.parametrize(
    ("status", "more", "text"),
    [
        ("completed", {"text": "so: x", "output": "x"}, "x"),
        ("completed", {"text": "so", "output": {"n": 1}}, '{"n": 1}'),
        ("running", {"text": "so far"}, "so far\nrunning: call `watch` with thread=t, run=r, after=1-2-3"),
        ("pending", {"note": "beware"}, "pending: call `watch` with thread=t, run=r, after=1-2-3\n(beware)"),
        ("stopped", {"reason": "person"}, "stopped (person)"),
        ("failed", {"reason": "error", "error": {"message": "no"}}, "failed (error): no"),
        ("failed", {"reason": "abandoned"}, "failed (abandoned): no details"),
        ("idle", {}, "nothing runs on thread t"),
    ],
)
def test_a_text_says_what_to_do_next(status: Status, more: dict[str, Any], text: str) -> None:
    assert standing_text(Standing(thread="t", run="r", cursor="1-2-3", status=status, **more)) == text


def test_a_replica_that_is_away_may_come_back() -> None:
    assert told(ClientError("unreachable", "no answer"))["retryable"]
    assert not told(ClientError("not_found", "there is none"))["retryable"]


def test_a_fault_of_ours_is_told_as_an_id_only() -> None:
    refused = told(KeyError("secret"))
    assert refused["code"] == "internal"
    assert "secret" not in str(refused)
