"""What people decide about the requests of a paused run, as values."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from threadhold.runner.errors import InvalidInput
from threadhold.runner.storable import storable

RequestKind = Literal["question", "approval", "external"]
RequestStatus = Literal["open", "answered", "denied", "cancelled"]
DecisionKind = Literal["approve", "edit", "reject", "reply"]

TEXT_CHARS_MAX: Final = 64 * 1024
APPROVERS_MAX: Final = 100
# Under this key of a deferred call's metadata stand the terms that its tool set.
TERMS_KEY: Final = "threadhold_terms"
# Under this one, in a request and in the call that was approved, stands the rule of a policy that asks.
RULE_KEY: Final = "threadhold_rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who may answer a request, and until when.

    Args:
        approvers: the principals who may; None for whoever may write to the thread, and approvers by role.
        other_only: separation of duties: the run's own principal may not approve.
        expires_in: after this time the system denies it; None for never.

    Raises:
        ValueError: if nobody could answer, or the time is not positive.
    """

    approvers: Sequence[str] | None = None
    other_only: bool = False
    expires_in: timedelta | None = None

    def __post_init__(self) -> None:
        if self.approvers is not None and not 0 < len(self.approvers) <= APPROVERS_MAX:
            raise ValueError(f"approvers holds 1 to {APPROVERS_MAX} ids, or is None")
        if self.expires_in is not None and self.expires_in <= timedelta():
            raise ValueError("expires_in must be positive")

    def metadata(self) -> dict[str, Any]:
        """Return the metadata to defer a call with: `raise ApprovalRequired(metadata=terms.metadata())`."""
        return {TERMS_KEY: self}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer to one request. Make it with one of the constructors.

    `args` are the edited arguments, `reason` goes to the model with a rejection, `value` is the reply.
    """

    kind: DecisionKind
    args: dict[str, Any] | None = None
    reason: str | None = None
    value: Any = None

    @classmethod
    def approve(cls) -> "Decision":
        """Let the call be executed as it was asked for."""
        return cls(kind="approve")

    @classmethod
    def edit(cls, args: dict[str, Any]) -> "Decision":
        """Let the call be executed with these arguments instead."""
        return cls(kind="edit", args=args)

    @classmethod
    def reject(cls, reason: str | None = None) -> "Decision":
        """Refuse; the model is told the reason and goes on."""
        return cls(kind="reject", reason=reason)

    @classmethod
    def reply(cls, value: Any) -> "Decision":
        """Answer a question, or supply the result of a call that something else has executed."""
        return cls(kind="reply", value=value)

    def data(self) -> dict[str, Any]:
        """Return it as JSON values, only with the fields that its kind has.

        Raises:
            InvalidInput: if a field that the kind needs is missing, another one is there, or one is not JSON or too
                long.
        """
        given = {"args": self.args, "reason": self.reason, "value": self.value}
        own: dict[str, str] = {"edit": "args", "reject": "reason", "reply": "value"}
        field = own.get(self.kind)
        for name, value in given.items():
            if name != field and value is not None:
                raise InvalidInput(f"a decision of kind {self.kind!r} takes no {name}", field=name)
        if field is None:
            return {"kind": self.kind}
        value = given[field]
        if value is None and field != "reason":
            raise InvalidInput(f"a decision of kind {self.kind!r} needs {field}", field=field)
        if field == "args" and not isinstance(value, dict):
            raise InvalidInput("args is an object", field="args")
        return {"kind": self.kind} | ({} if value is None else {field: _checked(value, field)})


def _checked(value: Any, field: str) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(f"{field} is not JSON", field=field) from None
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidInput(f"{field} is longer than {TEXT_CHARS_MAX} characters", field=field)
    return storable(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A deferred call that a run is about to wait for."""

    kind: RequestKind
    call_id: str
    tool: str
    args: dict[str, Any]
    terms: Terms = field(default_factory=Terms)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def args_hash(self) -> str:
        """The hash that binds an approval to exactly these arguments."""
        return args_hash(self.args)


def args_hash(args: dict[str, Any]) -> str:
    """Return the SHA-256 of arguments, in hex, the same for the same JSON values."""
    text = json.dumps(storable(args), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
