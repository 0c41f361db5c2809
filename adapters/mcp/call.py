"""One call of a tool: who asks, how the other end can be told and asked, and how its result goes out."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp.types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadhold.adapters.mcp.asking import FORMS_MAX, can_be_asked, decision, form
from threadhold.adapters.mcp.declared import Context, can_ask, is_modern
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.refusals import META_KEY, told
from threadhold.adapters.mcp.schemas import Asked
from threadhold.adapters.mcp.view import View
from threadhold.runner.decisions import Decision

MESSAGE_CHARS_MAX: Final = 4000
# How long a person may look at a form; the request stays open after that.
ASK_S: Final = 600.0

Answers = Mapping[str, types.ElicitResult]


class Question(BaseModel):
    """A request that somebody was asked about."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request: str
    kind: str
    args_hash: str


class Continuation(BaseModel):
    """What a host carries from one leg of a call to the next one, on whichever replica.

    It comes back from outside and is believed no more than any argument: what it names is checked again, and `extra`
    is only told back.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    thread: str
    run: str | None
    cursor: str | None
    asked: list[Question] = Field(max_length=FORMS_MAX)
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a tool needs.

    Args:
        desk: does the work, in the name of whoever asks.
        drain: set when this process shuts down.
        ctx: the request as the library has it.
        params: the request's parameters.
    """

    desk: Desk
    drain: asyncio.Event
    ctx: Context
    params: types.CallToolRequestParams

    async def tell(self, view: View) -> None:
        """Show what was said so far, if the other end wants to see progress; of much text, the end."""
        text = view.text
        message = text if len(text) <= MESSAGE_CHARS_MAX else "…" + text[1 - MESSAGE_CHARS_MAX :]
        await self.ctx.session.report_progress(view.frames, message=message or view.status or "waiting")

    @property
    def is_modern(self) -> bool:
        """Whether questions are returned, and the call repeated with the answers, instead of asked in between."""
        return is_modern(self.ctx)

    @property
    def can_ask(self) -> bool:
        """Whether the person at the other end can be asked by a form."""
        return can_ask(self.ctx)

    def continuation(self) -> Continuation | None:
        """Return where an earlier leg of this call left off.

        Raises:
            MCPError: it is not one that we gave out.
        """
        if self.params.request_state is None:
            return None
        try:
            return Continuation.model_validate_json(self.params.request_state)
        except ValidationError:
            raise MCPError(types.INVALID_PARAMS, "the requestState is not one of this server's") from None

    def given_answers(self) -> Answers:
        """Return the forms that came with this leg."""
        given = self.params.input_responses or {}
        return {id: each for id, each in given.items() if isinstance(each, types.ElicitResult)}

    async def ask(self, requests: list[Asked]) -> Answers:
        """Ask about each request in turn, until the person dismisses a form.

        The request goes with the call, so a host shows it there.
        """
        answers: dict[str, types.ElicitResult] = {}
        for each in requests:
            message, schema = form(each)
            try:
                async with asyncio.timeout(ASK_S):
                    answer = await self.ctx.session.elicit_form(
                        message, schema, related_request_id=self.ctx.request_id
                    )
            except (TimeoutError, MCPError):
                break
            if answer.action == "cancel":
                break
            answers[each.request] = answer
        return answers

    async def decide(self, asked: list[Question], answers: Answers) -> tuple[int, str | None]:
        """Pass on what was decided; return how many decisions were taken, and what was refused.

        A request that somebody else has decided meanwhile is no error of this call.
        """
        count, note = 0, None
        for each in asked:
            answer = answers.get(each.request)
            made = decision(each.kind, answer.action, answer.content) if answer else None
            if made is not None:
                refused = await self._answer(each, made)
                count, note = count + (refused is None), refused or note
        return count, note

    async def _answer(self, asked: Question, made: Decision) -> str | None:
        try:
            await self.desk.answer(asked.request, made, args_hash=asked.args_hash)
        except Exception as error:
            refused = told(error)
            return f"{refused['code']}: {refused['message']}"
        return None


def to_ask(requests: list[Asked]) -> list[Asked]:
    """Return those requests that the person at the other end may be asked about now."""
    return [each for each in requests if can_be_asked(each)][:FORMS_MAX]


def question(each: Asked) -> Question:
    """Return what is to be remembered of a request that somebody is asked about."""
    return Question(request=each.request, kind=each.kind, args_hash=each.args_hash)


def form_request(each: Asked) -> types.ElicitRequest:
    """Return the form for a request, as the protocol asks for it."""
    message, schema = form(each)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def questions(requests: list[Asked], view: View, extra: dict[str, Any]) -> types.InputRequiredResult:
    """Return the forms, and what is needed to go on when they come back."""
    state = Continuation(
        thread=view.thread,
        run=view.run,
        cursor=view.cursor,
        asked=[question(each) for each in requests],
        extra=extra,
    )
    forms: types.InputRequests = {each.request: form_request(each) for each in requests}
    return types.InputRequiredResult(input_requests=forms, request_state=state.model_dump_json())


def result(structured: BaseModel, text: str) -> types.CallToolResult:
    """Return a result in both forms: values for programs, text for models."""
    values = structured.model_dump(mode="json", exclude_none=True)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=values
    )


def failure(error: Exception) -> types.CallToolResult:
    """Return an error as a tool tells it: the code first, for models, and all of it beside, for programs."""
    refused = told(error)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{refused['code']}: {refused['message']}")],
        is_error=True,
        meta={META_KEY: json.loads(json.dumps(refused, default=str))},
    )
