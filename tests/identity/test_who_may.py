"""Who may do what, over every door: one table, held against real servers.

ok   it is done
no   `forbidden`: they may see the thread, but not do this
-    `not_found`: to them there is no such thing
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.identity.house import PEOPLE, RECHECK_S, House, Scene, open_house
from tests.support.servers import TestServers

pytestmark = pytest.mark.asyncio(loop_scope="module")

Verb = Callable[[House, str, Scene], Coroutine[Any, Any, tuple[str, Any]]]

REST: Final[dict[str, tuple[str, str, Any]]] = {
    "get thread": ("GET", "threads/{thread}", None),
    "change thread": ("PATCH", "threads/{thread}", {"title": "x"}),
    "resolve thread": ("PUT", "threads/{thread}", {"agent": "scripted"}),
    "list members": ("GET", "threads/{thread}/members", None),
    "add a member": ("PUT", "threads/{thread}/members/friend", {"access": "write"}),
    "remove a member": ("DELETE", "threads/{thread}/members/friend", None),
    "send": ("POST", "threads/{thread}/messages", {"content": "say hi"}),
    "send, naming the agent": (
        "POST",
        "threads/{thread}/messages",
        {"content": "say hi", "agent": "scripted"},
    ),
    "get message": ("GET", "messages/{message}", None),
    "get run": ("GET", "runs/{run}", None),
    "explain run": ("GET", "runs/{run}/why", None),
    "list attempts": ("GET", "runs/{run}/attempts", None),
    "list steps": ("GET", "runs/{run}/steps", None),
    "list calls": ("GET", "runs/{run}/calls", None),
    "list facts": ("GET", "threads/{thread}/facts", None),
    "list facts from a cursor": ("GET", "threads/{thread}/facts?cursor=1", None),
    "list history": ("GET", "threads/{thread}/history", None),
    "export thread": ("GET", "export?thread={thread}", None),
    "export run": ("GET", "export?run={run}", None),
    "stop run": ("POST", "runs/{run}/stop", {"wait": 0}),
    "stop thread": ("POST", "threads/{thread}/stop", {"wait": 0}),
    "get request": ("GET", "requests/{request}", None),
    "answer": ("POST", "requests/{request}/answer", {"kind": "reject"}),
    "watch": ("GET", "threads/{thread}/frames?until=idle&after=start", None),
    "watch from the head": ("GET", "threads/{thread}/frames?until=idle&after=head", None),
    "watch from a cursor": ("GET", "threads/{thread}/frames?until=idle&after=1-1-1", None),
}
WS: Final[dict[str, dict[str, Any]]] = {
    "send": {"op": "send", "thread": "{thread}", "content": "say hi"},
    "send, naming the agent": {"op": "send", "thread": "{thread}", "content": "say hi", "agent": "scripted"},
    "stop run": {"op": "stop", "run": "{run}", "wait": 0},
    "stop thread": {"op": "stop", "thread": "{thread}", "wait": 0},
    "answer": {"op": "answer", "request": "{request}", "decision": {"kind": "reject"}},
    "watch": {"op": "watch", "thread": "{thread}", "until": "idle", "after": "start"},
    "watch from the head": {"op": "watch", "thread": "{thread}", "until": "idle", "after": "head"},
    "watch from a cursor": {"op": "watch", "thread": "{thread}", "until": "idle", "after": "1-1-1"},
}
# One that does is done on a scene of its own, as it changes what the next one would find.
DOING: Final = {
    "send",
    "send, naming the agent",
    "stop run",
    "stop thread",
    "answer",
    "add a member",
    "remove a member",
}

TABLE: Final = """
    scene   verb                    owner  writer  reader  stranger  operator  approver  namesake
    quiet   get thread              ok     ok      ok      -         ok        -         -
    quiet   change thread           ok     ok      no      -         ok        -         -
    quiet   resolve thread          ok     ok      no      -         ok        -         -
    quiet   list facts              ok     ok      ok      -         ok        -         -
    quiet   list history            ok     ok      ok      -         ok        -         -
    quiet   export thread           ok     ok      ok      -         ok        -         -
    quiet   list members            ok     ok      ok      -         ok        -         -
    quiet   add a member            ok     no      no      -         ok        -         -
    quiet   remove a member         ok     no      no      -         ok        -         -
    quiet   send                    ok     ok      no      -         ok        -         -
    quiet   send, naming the agent  ok     ok      no      -         ok        -         -
    quiet   stop thread             ok     ok      no      -         ok        -         -
    quiet   watch                   ok     ok      ok      -         ok        -         -
    quiet   watch from the head     ok     ok      ok      -         ok        -         -
    quiet   watch from a cursor     ok     ok      ok      -         ok        -         -
    paused  get thread              ok     ok      ok      -         ok        ok        -
    paused  change thread           ok     ok      no      -         ok        no        -
    paused  resolve thread          ok     ok      no      -         ok        no        -
    paused  list members            ok     ok      ok      -         ok        ok        -
    paused  add a member            ok     no      no      -         ok        no        -
    paused  remove a member         ok     no      no      -         ok        no        -
    paused  send                    ok     ok      no      -         ok        no        -
    paused  send, naming the agent  ok     ok      no      -         ok        no        -
    paused  get message             ok     ok      ok      -         ok        ok        -
    paused  get run                 ok     ok      ok      -         ok        ok        -
    paused  explain run             ok     ok      ok      -         ok        ok        -
    paused  list attempts           ok     ok      ok      -         ok        ok        -
    paused  list steps              ok     ok      ok      -         ok        ok        -
    paused  list calls              ok     ok      ok      -         ok        ok        -
    paused  list facts              ok     ok      ok      -         ok        ok        -
    paused  list facts from a cursor  ok   ok      ok      -         ok        ok        -
    paused  list history            ok     ok      ok      -         ok        ok        -
    paused  export thread           ok     ok      ok      -         ok        ok        -
    paused  export run              ok     ok      ok      -         ok        ok        -
    paused  stop run                ok     ok      no      -         ok        no        -
    paused  stop thread             ok     ok      no      -         ok        no        -
    paused  get request             ok     ok      ok      -         ok        ok        -
    paused  answer                  ok     ok      no      -         ok        ok        -
    paused  watch                   ok     ok      ok      -         ok        ok        -
    paused  watch from the head     ok     ok      ok      -         ok        ok        -
    paused  watch from a cursor     ok     ok      ok      -         ok        ok        -
"""
CODES: Final = {"ok": "ok", "no": "forbidden", "-": "not_found"}


def rows() -> list[Any]:
    """Return the table's rows, once per door that has the verb."""
    head, *lines = (line.split("  ") for line in TABLE.strip().splitlines())
    people = [cell.strip() for cell in head if cell.strip()][2:]
    found = []
    for line in lines:
        scene, verb, *cells = (cell.strip() for cell in line if cell.strip())
        expected = {who: CODES[cell] for who, cell in zip(people, cells, strict=True)}
        found += [
            pytest.param(door, scene, verb, expected, id=f"{door}-{scene}-{verb}")
            for door, verbs in (("rest", REST), ("ws", WS))
            if verb in verbs
        ]
    return found


def filled(value: Any, scene: Scene) -> Any:
    """Return a value with the ids of a scene in the places that name them."""
    if not isinstance(value, str):
        return value
    return value.format(thread=scene.thread, message=scene.message, run=scene.run, request=scene.request)


async def act(house: House, door: str, verb: str, who: str, scene: Scene) -> str:
    """Do something as somebody; return "ok" or the code of the refusal."""
    if door == "ws":
        told, _ = await house.ws(who, **{name: filled(value, scene) for name, value in WS[verb].items()})
    else:
        method, path, body = REST[verb]
        told, _ = await house.rest(who, method, filled(path, scene), body)
    return told


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file."""
    async with open_house(servers) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(house: House) -> dict[str, Scene]:
    """Return the scenes that nothing is done to."""
    return {"quiet": await house.quiet(), "paused": await house.paused()}


@pytest.mark.parametrize(("door", "scene", "verb", "expected"), rows())
async def test_the_table_holds(
    house: House, shared: dict[str, Scene], door: str, scene: str, verb: str, expected: dict[str, str]
) -> None:
    assert set(expected) == set(PEOPLE)
    told = {}
    for who, code in expected.items():
        alone = verb in DOING and code == "ok"
        stage = await (house.quiet() if scene == "quiet" else house.paused()) if alone else shared[scene]
        told[who] = await act(house, door, verb, who, stage)
    assert told == expected


async def test_what_is_refused_leaves_no_trace(house: House, shared: dict[str, Scene]) -> None:
    """The shared scenes were refused everything that the table refuses, and are as they were."""
    _, quiet = await house.rest("owner", "GET", f"threads/{shared['quiet'].thread}")
    _, paused = await house.rest("owner", "GET", f"threads/{shared['paused'].thread}")
    # Its log has the two members whom the owner let in, and nothing else.
    assert (quiet["state"], quiet["seq"], paused["state"]) == ("idle", 2, "paused")
    _, request = await house.rest("owner", "GET", f"requests/{shared['paused'].request}")
    assert request["status"] == "open"


@pytest.mark.parametrize("who", list(PEOPLE))
async def test_lists_show_what_may_be_seen_and_nothing_else(
    house: House, shared: dict[str, Scene], who: str
) -> None:
    quiet, paused = shared["quiet"], shared["paused"]
    seen = {}
    for name, path in (
        ("threads", "threads?limit=100"),
        ("runs", f"runs?thread={paused.thread}"),
        ("requests", f"requests?thread={paused.thread}"),
    ):
        told, page = await house.rest(who, "GET", path)
        assert told == "ok"
        seen[name] = {item["id"] for item in page["items"]}
    inside = who in {"owner", "writer", "reader", "operator"}
    # A thread that is open to an approver for the moment is found by its request, not among the threads.
    assert ({quiet.thread, paused.thread} <= seen["threads"]) is inside
    assert bool({quiet.thread, paused.thread} & seen["threads"]) is inside
    through_the_request = inside or who == "approver"
    assert (seen["runs"] == {paused.run}, seen["requests"] == {paused.request}) == (through_the_request,) * 2
    assert through_the_request or not (seen["runs"] | seen["requests"])


@pytest.mark.parametrize("who", [who for who in PEOPLE if who != "owner"])
async def test_ids_of_others_as_cursors_of_pages_show_nothing_of_them(
    house: House, shared: dict[str, Scene], who: str
) -> None:
    highest = "ffffffff-ffff-7fff-bfff-ffffffffffff"
    for path, foreign in (("threads", shared["quiet"].thread), ("runs", shared["paused"].run)):
        _, without = await house.rest(who, "GET", f"{path}?limit=100&cursor={highest}")
        told, page = await house.rest(who, "GET", f"{path}?limit=100&cursor={foreign}")
        assert told == "ok"
        assert {item["id"] for item in page["items"]} <= {item["id"] for item in without["items"]}


async def test_a_cursor_of_another_thread_is_a_position_and_no_key(
    house: House, shared: dict[str, Scene]
) -> None:
    mine = {"agent": "scripted", "content": "say mine"}
    _, receipt = await house.rest("stranger", "POST", "messages", mine)
    _, begun = await house.ws("owner", op="watch", thread=shared["paused"].thread, until="idle", after="head")
    path = "threads/{}/frames?until=idle&after=" + begun["cursor"]
    told, stream = await house.rest("stranger", "GET", path.format(receipt["thread"]))
    assert told == "ok"
    assert shared["paused"].thread not in stream
    assert shared["paused"].run not in stream
    told, _ = await house.rest("stranger", "GET", path.format(shared["paused"].thread))
    assert told == "not_found"


async def test_verbs_of_operators_are_for_operators(house: House) -> None:
    for who in PEOPLE:
        is_operator = "operator" in PEOPLE[who].get("roles", ())
        workers, _ = await house.rest(who, "GET", "workers")
        drained, _ = await house.rest(who, "POST", "workers/nobody/drain")
        told = (workers, drained)
        assert told == (("ok", "not_found") if is_operator else ("forbidden", "forbidden")), who


async def test_stopping_all_stops_what_one_may_stop(house: House) -> None:
    scene = await house.paused()
    for who in ("stranger", "reader", "approver", "namesake"):
        told, stopped = await house.rest(who, "POST", "stop")
        assert told == "ok"
        assert scene.run not in {receipt["run"] for receipt in stopped["items"]}
    _, stopped = await house.rest("writer", "POST", "stop")
    assert scene.run in {receipt["run"] for receipt in stopped["items"]}


async def test_a_taken_id_says_no_more_than_that_it_is_taken(house: House, shared: dict[str, Scene]) -> None:
    """To whoever may not see the thread, whatever agent they name."""
    for who in ("stranger", "namesake"):
        for agent in ("scripted", "sturdy"):
            body = {"agent": agent, "id": shared["quiet"].thread}
            told, problem = await house.rest(who, "POST", "threads", body)
            assert told in {"thread_exists", "unknown_agent"}
            assert "owner" not in str(problem)


@pytest.mark.parametrize("door", ["rest", "ws"])
async def test_who_is_let_out_sees_no_more_of_a_stream_that_is_open(house: House, door: str) -> None:
    assert RECHECK_S < 1
    scene = await house.quiet()
    ended = await (_ended_stream(house, scene) if door == "rest" else _ended_watch(house, scene))
    assert '"not_found"' in ended


async def _ended_stream(house: House, scene: Scene) -> str:
    from tests.identity.issuer import secret_token

    headers = {"authorization": f"Bearer {secret_token(**PEOPLE['reader'])}"}
    path = f"/v1/threads/{scene.thread}/frames"
    async with house.client.stream("GET", path, headers=headers) as stream:
        assert stream.status_code == 200
        await house.rest("owner", "DELETE", f"threads/{scene.thread}/members/reader")
        return "".join([piece async for piece in stream.aiter_text()])


async def _ended_watch(house: House, scene: Scene) -> str:
    told, _ = await house.ws("reader", op="watch", thread=scene.thread)
    assert told == "ok"
    await house.rest("owner", "DELETE", f"threads/{scene.thread}/members/reader")
    socket = await house.socket("reader")
    while '"watch_ended"' not in (text := str(await socket.recv())):
        pass
    return text
