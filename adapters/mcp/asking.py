"""Open requests as forms for the person at the other end, and their answers as decisions. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from threadhold.adapters.mcp.schemas import Asked
from threadhold.runner.decisions import Decision, DecisionKind, RequestKind
from threadhold.runner.records import Request

ARGS_CHARS_MAX: Final = 4000
FORMS_MAX: Final = 10
# What cannot be seen, or makes its neighbours look different from what they are; as in the page's `json.js`.
_HIDDEN: Final = re.compile(
    r"[\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_DECISIONS: Final[dict[RequestKind, list[DecisionKind]]] = {
    "approval": ["approve", "edit", "reject"],
    "question": ["reply", "reject"],
    "external": ["reply", "reject"],
}
_APPROVAL: Final = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "reject"]},
        "reason": {"type": "string", "title": "Reason", "description": "Of a rejection; the agent reads it."},
    },
    "required": ["decision"],
}
_QUESTION: Final = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer"}},
    "required": ["answer"],
}


def asked(request: Request) -> Asked:
    """Return a request as a result tells it."""
    return Asked(
        request=request.id,
        kind=request.kind,
        tool=request.tool,
        args=request.args,
        args_hash=request.args_hash,
        decisions=_DECISIONS[request.kind],
        approvers=list(request.approvers) if request.approvers is not None else None,
        other_only=request.other_only,
    )


def can_be_asked(each: Asked) -> bool:
    """Tell whether whoever made the call may be asked.

    What somebody else has to decide, what a program supplies, and arguments too long to be shown in full are
    not for a form.
    """
    fits = len(_shown(each)) <= ARGS_CHARS_MAX
    return each.kind != "external" and each.approvers is None and not each.other_only and fits


def form(each: Asked) -> tuple[str, dict[str, Any]]:
    """Return the text and the schema of the form for a request."""
    if each.kind == "approval":
        return f"The agent asks to call {each.tool} with:\n{_shown(each)}", _APPROVAL
    return f"The agent asks ({each.tool}):\n{_shown(each)}", _QUESTION


def _shown(each: Asked) -> str:
    return _HIDDEN.sub(_spelled, json.dumps(each.args, indent=1, ensure_ascii=False))


def _spelled(hidden: re.Match[str]) -> str:
    return re.sub("....", r"\\u\g<0>", hidden[0].encode("utf-16-be").hex())


def decision(kind: str, action: str, content: Mapping[str, Any] | None) -> Decision | None:
    """Return what a filled-in form decides; None leaves the request open.

    Args:
        kind: the request's.
        action: accept, decline or cancel.
        content: the fields, if it was accepted.
    """
    filled = content or {}
    match kind, action:
        case _, "decline":
            return Decision.reject()
        case "approval", "accept" if filled.get("decision") == "approve":
            return Decision.approve()
        case "approval", "accept" if filled.get("decision") == "reject":
            return Decision.reject(str(filled["reason"]) if filled.get("reason") else None)
        case "question", "accept" if isinstance(filled.get("answer"), str):
            return Decision.reply(filled["answer"])
    return None
