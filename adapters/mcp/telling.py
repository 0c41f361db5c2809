"""Results as short text, for hosts and models that read nothing else. Pure."""

import json
from typing import Any, Final

from threadhold.adapters.mcp.schemas import Asked, RunInfo, Standing, Stopped, ThreadList

TEXT_CHARS_MAX: Final = 8000


def standing_text(told: Standing) -> str:
    """Return where a thread or run stands, and what to do next."""
    lines = [_said(told), *(_asked(each) for each in told.requests), _next(told)]
    if told.note:
        lines.append(f"({told.note})")
    return "\n".join(line for line in lines if line)


def _said(told: Standing) -> str:
    if told.status == "completed" and told.output is not None:
        return _short(told.output)
    return _short(told.text)


def _asked(each: Asked) -> str:
    by = f", by {' or '.join(each.approvers)}" if each.approvers else ""
    other = ", not by whoever caused it" if each.other_only else ""
    args = _short(json.dumps(each.args, ensure_ascii=False))
    kinds = " or ".join(each.decisions)
    return (
        f"{each.kind}: {each.tool} {args}: call `answer` with request={each.request}, kind {kinds}{by}{other}"
    )


def _next(told: Standing) -> str:
    match told.status:
        case "pending" | "running":
            run = f", run={told.run}" if told.run else ""
            after = f", after={told.cursor}" if told.cursor else ""
            return f"{told.status}: call `watch` with thread={told.thread}{run}{after}"
        case "paused":
            return f"paused: thread {told.thread} goes on when its requests are answered"
        case "stopped":
            return f"stopped ({told.reason})" if told.reason else "stopped"
        case "failed":
            error = told.error or {}
            return f"failed ({told.reason}): {error.get('message') or error.get('type') or 'no details'}"
        case "idle":
            return f"nothing runs on thread {told.thread}"
    return ""


def stopped_text(told: Stopped) -> str:
    """Return what a stop did."""
    if told.run is None:
        return f"nothing runs on thread {told.thread}"
    if not told.settled:
        return f"the stop of run {told.run} is recorded; the run has not ended yet"
    return f"run {told.run}: {told.status}"


def threads_text(told: ThreadList) -> str:
    """Return threads, one a line."""
    lines = [
        f"{each.thread} {each.agent} {each.state}{f' {each.title!r}' if each.title else ''}"
        for each in told.threads
    ]
    if told.next_cursor:
        lines.append(f"more: call `list_threads` with cursor={told.next_cursor}")
    return "\n".join(lines) or "no threads"


def run_text(told: RunInfo) -> str:
    """Return a run."""
    said = f": {_short(told.output)}" if told.output is not None else ""
    lines = [f"run {told.run} of {told.agent} on thread {told.thread}: {told.status}{said}"]
    return "\n".join(lines + [_asked(each) for each in told.requests])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
