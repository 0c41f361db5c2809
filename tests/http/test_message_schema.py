"""The schema of messages is true: what it allows is taken, what it forbids is refused, and what is sent fits it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from copy import deepcopy
from typing import Any, Final, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.http.message_rules import check_told, may_be_sent
from tests.http.records import ARGS, request_of
from tests.http.scripted import Api, delivery, serving
from tests.http.test_websocket import Peer, peer
from tests.identity.house import House, open_house
from tests.support.servers import TestServers
from threadhold.adapters.http import message_schema, outgoing
from threadhold.adapters.http.ops import ID_CHARS_MAX, AnyOp, RefusedOp, parse_op
from threadhold.fanout.frame import Kind
from threadhold.runner.decisions import args_hash

SCHEMA: Final = message_schema.message_schema()
DEFS: Final = SCHEMA["$defs"]
HASH: Final = args_hash(ARGS)
OPS: Final = {get_args(model.model_fields["op"].annotation)[0]: model for model in get_args(AnyOp)}


def names_of(side: str) -> set[str]:
    """Return the messages of a side."""
    return {each["$ref"].rpartition("/")[2] for each in DEFS[side]["oneOf"]}


def test_it_is_a_schema_of_all_ops_and_all_kinds_of_frames() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert names_of("ClientMessage") == {op.__name__ for op in get_args(AnyOp)}
    ops = {DEFS[name]["properties"]["op"]["const"] for name in names_of("ClientMessage")}
    assert set(DEFS["Results"]["properties"]) == ops
    kinds = [DEFS[name]["properties"].get("kind", {}).get("const") for name in names_of("ServerMessage")]
    assert sorted(kind for kind in kinds if kind) == sorted(get_args(Kind))
    used = json.dumps(SCHEMA)
    assert [name for name in DEFS if f'"#/$defs/{name}"' not in used] == ["Results"]


def test_everything_is_described() -> None:
    assert [name for name, each in DEFS.items() if not {"description", "oneOf"} & set(each)] == []
    assert '"title": "Id"' not in json.dumps(DEFS)


async def test_it_is_served_without_a_token_and_not_again_to_who_has_it() -> None:
    def nobody(headers: object) -> Any:
        raise AssertionError("it was asked who calls")

    async with serving(authenticate=nobody) as api:
        answer = await api.client.get(message_schema.PATH)
        assert answer.headers["content-type"] == "application/schema+json"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.json() == SCHEMA
        tag = answer.headers["etag"]
        again = await api.client.get(message_schema.PATH, headers={"If-None-Match": f'"x", W/{tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        other = await api.client.get(message_schema.PATH, headers={"If-None-Match": '"x"'})
        assert other.status_code == 200


def test_a_spliced_frame_is_the_message_that_is_described() -> None:
    frame = delivery("t", 3, kind="draft", data={"event_kind": "custom", "name": "told"})
    message = json.loads(outgoing.frame_text(frame))
    check_told(message)
    assert set(message) == set(outgoing.DraftFrame.__dataclass_fields__)


# What the schema says no to is refused, and what it allows is taken, with all that was under way untouched.

JUNK: Final[list[Any]] = [
    None, True, False, 0, -1, 7, 61, 0.5, "", " ", "x", "start", "1-2-3", "1-2", "steer", "approve", "x" * 201,
    [], ["fact"], ["fact", "head"], ["fact", "fact"], {}, {"a": 1}, {"kind": "approve"}, HASH,
]  # fmt: skip
GOOD: Final[list[dict[str, Any]]] = [
    {"op": "auth"},
    {"op": "auth", "token": "t"},
    {"op": "send", "thread": "THREAD", "content": "hi"},
    {"op": "send", "agent": "support", "content": "hi", "key": "k", "on_busy": "queue"},
    {"op": "answer", "request": "request-1", "decision": {"kind": "approve", "args_hash": HASH}},
    {"op": "answer", "request": "request-1", "decision": {"kind": "edit", "args": {"euros": 1}}},
    {"op": "answer", "request": "request-1", "decision": {"kind": "reject", "reason": "no"}},
    {"op": "answer", "request": "request-1", "decision": {"kind": "reply", "value": [1, {"a": None}]}},
    {"op": "stop", "run": "run-1", "wait": 0},
    {"op": "stop", "thread": "THREAD", "wait": 0.5, "key": "k"},
    {"op": "watch", "thread": "THREAD", "after": "start", "until": "idle", "kinds": ["fact"]},
    {"op": "unwatch", "thread": "THREAD"},
    {"op": "ping"},
]
FIELDS: Final = sorted({name for message in GOOD for name in message} | {"id", "extra"})
OF_DECISIONS: Final = ["kind", "args", "reason", "value", "args_hash", "extra"]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a good message, and change up to three things about it."""
    message: dict[str, Any] = deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        inside = isinstance(message.get("decision"), dict) and draw(st.booleans())
        part, fields = (message["decision"], OF_DECISIONS) if inside else (message, FIELDS)
        name = draw(st.sampled_from(fields))
        if draw(st.booleans()):
            part.pop(name, None)
        else:
            part[name] = draw(st.sampled_from(JUNK))
    return message


def with_one_change() -> Iterator[dict[str, Any]]:
    """Yield each good message with each of its fields left out, or given each piece of junk."""
    for good in GOOD:
        fields = [*OPS[good["op"]].model_fields, "extra"]
        for where, names in ((None, fields), ("decision", OF_DECISIONS if "decision" in good else [])):
            for name in names:
                for junk in [..., *JUNK]:
                    message = deepcopy(good)
                    part = message[where] if where else message
                    part.pop(name, None)
                    if junk is not ...:
                        part[name] = junk
                    yield message


def is_parsed(message: dict[str, Any]) -> bool:
    """Tell whether the door takes a message for an op."""
    try:
        parse_op(json.dumps(message))
    except RefusedOp:
        return False
    return True


async def test_one_change_is_seen_by_the_schema_and_by_the_door() -> None:
    left = []
    for message in with_one_change():
        allowed, parsed = may_be_sent(message), is_parsed(message)
        assert parsed or not allowed, message
        if parsed and not allowed:
            left.append(message)
    assert left
    # The door leaves these to the Runner, which refuses them whatever they are about.
    async with serving() as api, peer(api) as client:
        for id, message in enumerate(left):
            assert await client.code(**message | {"id": id}) == "invalid_input", message
        assert api.runner.items == {}


async def judge(api: Api, client: Peer, message: dict[str, Any]) -> None:
    """Send a message beside a watch; look at its answer, at what it changed, and at the watch."""
    runner = api.runner
    runner.reset()
    runner.stop_may_end.set()
    runner.known_requests["request-1"] = request_of()
    target, watched = runner.add_thread(), runner.add_thread()
    sent = json.loads(json.dumps(message).replace("THREAD", target))
    assert (await client.ask(id="beside", op="watch", thread=watched))["ok"]
    allowed = may_be_sent(sent)
    if allowed:
        await client.send(**sent)
    else:
        await client.socket.send(json.dumps(sent))
    while (answer := await client.next())["op"] != "result":
        pass
    assert answer["id"] == heard_id(sent.get("id")), (sent, answer)
    code = None if answer["ok"] else answer["error"]["code"]
    assert code in (TAKEN if allowed else REFUSED), (sent, answer)
    if not allowed:
        assert (set(runner.items), runner.known_requests) == ({target, watched}, {"request-1": request_of()})
        assert "frames" not in {name for name, given in runner.calls if given.get("thread") == target}
    await runner.publish(watched, delivery(watched, 1))
    assert (await client.next())["thread"] == watched
    for thread in (watched, target):
        await client.ask(id="after", op="unwatch", thread=thread)


def heard_id(id: Any) -> Any:
    """Return what an id comes back as: text is cut, and what cannot be one is null."""
    if isinstance(id, str):
        return id[:ID_CHARS_MAX]
    return id if isinstance(id, int) and not isinstance(id, bool) else None


TAKEN: Final = {None, "not_found", "unknown_agent"}
REFUSED: Final = {"invalid_input", "unknown_op"}


def test_what_it_forbids_is_refused_and_what_it_allows_is_taken() -> None:
    with asyncio.Runner() as loop:
        exits = AsyncExitStack()
        api = loop.run(exits.enter_async_context(serving()))
        client = loop.run(exits.enter_async_context(peer(api)))

        @settings(
            derandomize=True, deadline=None, database=None, max_examples=100,
            suppress_health_check=[HealthCheck.too_slow],
        )  # fmt: skip
        @given(mutated())
        def hold(message: dict[str, Any]) -> None:
            loop.run(judge(api, client, message))

        try:
            for message in GOOD:
                assert may_be_sent(message)
                loop.run(judge(api, client, message))
            hold()
        finally:
            loop.run(exits.aclose())


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("invalid_input", {"content": "\ud800"}),
        ("invalid_input", {"id": 1.0}),
        ("message_too_large", {"content": "x" * 65_537}),
    ],
)
async def test_what_no_schema_can_say(code: str, changes: dict[str, Any]) -> None:
    message = {"id": 1, "op": "send", "agent": "support", "content": "hi", **changes}
    assert may_be_sent(message)
    async with serving() as api, peer(api) as client:
        await client.send(**message)
        assert (await client.next())["error"]["code"] == code
        assert api.runner.items == {}


# And over real servers, with an agent that runs.

NO: Final[list[dict[str, Any]]] = [
    {"op": "send", "content": "hi"},
    {"op": "send", "thread": "nope", "content": "  "},
    {"op": "send", "thread": "nope", "content": "hi", "key": "\x7f"},
    {"op": "stop"},
    {"op": "stop", "run": "nope", "thread": "nope"},
    {"op": "stop", "thread": "nope", "key": ""},
    {"op": "watch", "thread": "nope", "after": "now"},
    {"op": "watch", "thread": "nope", "kinds": ["head"]},
    {"op": "answer", "request": "nope", "decision": {"kind": "edit"}},
    {"op": "answer", "request": "nope", "decision": {"kind": "approve", "reason": "why not"}},
    {"op": "answer", "request": "nope", "decision": {"kind": "reply", "value": None}},
]


async def frames_until_rest(house: House, thread: str) -> list[dict[str, Any]]:
    """Return all frames of a thread, each checked, until it rests."""
    socket = await house.socket("owner")
    await socket.send(
        json.dumps({"id": 2, "op": "watch", "thread": thread, "after": "start", "until": "idle"})
    )
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(20):
        while not seen or seen[-1].get("kind") != "end":
            seen.append(json.loads(await socket.recv()))
            check_told(seen[-1])
    return seen[1:]


async def test_all_that_a_real_server_says_fits(servers: TestServers) -> None:
    async with open_house(servers) as house:
        for message in NO:
            assert not may_be_sent(message), message
            assert (await house.ws("owner", **message))[0] == "invalid_input", message
        script = 'say hel | say lo | call report {"total": 2} ;; call pay {"amount": 5} ;; say done'
        _, sent = await house.ws("owner", op="send", agent="scripted", content=script, key="k")
        thread = sent["thread"]
        paused = await frames_until_rest(house, thread)
        (request,) = (
            frame["data"]["request"] for frame in paused if frame["data"].get("fact") == "request_opened"
        )
        decision = {"kind": "edit", "args": {"amount": 4, "to": "me"}}
        assert (await house.ws("owner", op="answer", request=request, decision=decision))[0] == "ok"
        seen = await frames_until_rest(house, thread)
        assert {"fact", "attempt", "event", "draft", "end"} <= {frame["kind"] for frame in seen}
        assert seen[-1]["data"]["state"] == "idle"
        await house.ws("owner", op="send", thread=thread, content='call nap {"seconds": 30}')
        assert (await house.ws("owner", op="send", thread=thread, content="hurry"))[1][
            "disposition"
        ] == "steered"
        assert (await house.ws("owner", op="stop", thread=thread, wait=10))[1]["settled"] is True
        assert (await house.ws("owner", op="auth"))[1]["principal"] == "owner"
        assert (await house.ws("owner", op="unwatch", thread=thread))[1]["watched"] is False
        # A watch that does not end hears signs of life.
        socket = await house.socket("owner")
        await socket.send(json.dumps({"id": 3, "op": "watch", "thread": thread, "after": "head"}))
        async with asyncio.timeout(10):
            while (told := json.loads(await socket.recv())).get("kind") != "head":
                check_told(told)
        check_told(told)
