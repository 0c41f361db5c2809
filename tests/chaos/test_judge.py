"""The judge sees each kind of breach: an honest story passes, and one lie in it is found by the rule that it breaks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.clients import LAST_SPEAKER
from tests.chaos.evidence import GAP, Asked, Event, Evidence, Inflicted, Json, Seen
from tests.chaos.judge import RULES, judged, stories
from tests.chaos.outcome import counted

T = "thread-1"
OLD, NEW = 100, 200


def fact(seq: int, kind: str, run: str | None, fence: int, **data: Any) -> Json:
    return {"seq": seq, "run": run, "fence": fence, "data": {"fact": kind, **data}}


def sent(tag: str, run: str, seq: int, began: float, disposition: str = "started") -> Asked:
    answer = {"message": f"m-{tag}", "run": run, "seq": seq, "disposition": disposition}
    return Asked(
        op="send steer", thread=T, tag=tag, began=began, ended=began + 0.1, tries=1, status=202, answer=answer
    )


def call(what: str, run: str, fence: int, pid: int, begin: float, end: float, **data: Any) -> list[Event]:
    name = f"{what} {run} {begin}"
    where = {"thread": T, "run": run, "attempt": 1, "fence": fence, "call": name, **data}
    return [
        Event(begin, what, pid, {"phase": "begin", **where}),
        Event(end, what, pid, {"phase": "end", **where}),
    ]


FACTS = [
    fact(1, "message_accepted", "r1", 0, message="m-a"),
    fact(2, "run_started", "r1", OLD),
    fact(3, "message_delivered", "r1", OLD, message="m-a"),
    fact(4, "model_called", "r1", OLD, text=f"done <fence {OLD}>"),
    fact(5, "tool_called", "r1", OLD, call_id="call-1"),
    fact(6, "tool_called", "r1", OLD, call_id="call-2"),
    fact(7, "attempt_closed", "r1", OLD, outcome="completed"),
    fact(8, "run_ended", "r1", OLD, status="completed"),
    fact(9, "message_accepted", "r2", OLD, message="m-b"),
    fact(10, "run_started", "r2", NEW),
    fact(11, "stop_requested", "r2", NEW),
    fact(12, "attempt_closed", "r2", NEW, outcome="stopped"),
    fact(13, "run_ended", "r2", NEW, status="stopped"),
]


def honest() -> Evidence:
    """Two runs: one completed, one stopped; two messages, one watcher."""
    stop = Asked(op="stop run", thread=T, run="r2", began=4.0, ended=4.3, tries=1, status=200)
    stop.answer = {"run": "r2", "settled": True, "status": "stopped"}
    events = [
        *call("model", "r1", OLD, 11, 1.0, 1.5, tags=["a"], told=[], signs=[]),
        *call("tool", "r1", OLD, 11, 1.5, 1.6, tool="nap", id="call-1"),
        *call("model", "r2", NEW, 12, 3.0, 4.1, tags=["a", "b"], told=[], signs=[OLD]),
    ]
    seen = Seen("ws", T, [copy.deepcopy(one) for one in FACTS], [float(one["seq"]) for one in FACTS])
    seen.live = [(OLD, 1), (OLD, 2), GAP, (OLD, 5), (OLD, 6), (NEW, 1)]
    early = Asked(
        op="stop thread", thread=T, began=-1.0, ended=-0.9, status=404, answer={"code": "not_found"}
    )
    busy = Asked(op="send reject", thread=T, tag="r", began=0.5, ended=0.6, status=409)
    busy.answer = {"code": "thread_busy"}
    return Evidence(
        ttl=3.0,
        events=sorted(events, key=lambda event: event.at),
        asked=[sent("a", "r1", 1, 0.0), sent("b", "r2", 9, 2.0), stop, early, busy],
        seen=[seen],
        facts={T: copy.deepcopy(FACTS)},
        messages={"a": {"state": "delivered", "run": "r1"}, "b": {"state": "delivered", "run": "r2"}},
        states={T: "idle"},
    )


def replaced(evidence: Evidence, seq: int, data: Json, **changes: Any) -> None:
    """Change a fact, in the table and as the watcher saw it."""
    for facts in (evidence.facts[T], evidence.seen[0].facts):
        for one in facts:
            if one["seq"] == seq:
                one["data"].update(data)
                one.update(changes)


def shown_twice(e: Evidence) -> None:
    e.events = [*e.events, *call("model", "r2", NEW, 12, 4.1, 4.2, tags=["a", "b", "b"], told=[], signs=[])]


def lost(e: Evidence) -> None:
    e.events = [*e.events, *call("model", "r2", NEW, 12, 4.1, 4.2, tags=["a"], told=[], signs=[])]


def left_waiting(e: Evidence) -> None:
    e.messages = {**e.messages, "b": {"state": "waiting", "run": None}}


def refused_but_shown(e: Evidence) -> None:
    e.asked[1].status, e.asked[1].answer = 409, {"code": "thread_busy"}


def ended_unseen(e: Evidence) -> None:
    e.asked = [*e.asked, sent("c", "r1", 2, 1.0, "steered")]
    e.messages = {**e.messages, "c": {"state": "delivered", "run": "r2"}}


def told_differently(e: Evidence) -> None:
    e.asked = [*e.asked, sent("a", "r2", 9, 2.0)]


def out_of_order(e: Evidence) -> None:
    e.asked[1].answer["seq"] = 1


def shown_out_of_order(e: Evidence) -> None:
    e.asked = [*e.asked, sent("c", "r2", 20, 2.2, "steered"), sent("d", "r2", 21, 2.4, "steered")]
    e.messages = {**e.messages, **{tag: {"state": "delivered", "run": "r2"} for tag in "cd"}}
    shown = ["a", "b", "d", "c"]
    e.events = [*e.events, *call("model", "r2", NEW, 12, 4.1, 4.2, tags=shown, told=[], signs=[])]


def returned_for_nothing(e: Evidence) -> None:
    e.asked = [*e.asked, sent("c", "r2", 20, 9.0, "steered")]
    e.messages = {**e.messages, "c": {"state": "returned", "reason": "stopped"}}


def overlapping(e: Evidence) -> None:
    e.events = [*e.events, *call("tool", "r1", OLD, 11, 2.5, 3.5, tool="nap", id="call-2")]


def begun_late(e: Evidence) -> None:
    e.events = [*e.events, *call("tool", "r1", OLD, 11, 3.9, 4.0, tool="nap", id="call-2")]


def begun_just_after_for_ever(e: Evidence) -> None:
    begin, _ = call("tool", "r1", OLD, 11, 3.2, 9.0, tool="nap", id="call-2")
    e.events = [*e.events, begin]


def executed_again(e: Evidence) -> None:
    e.events = [*e.events, *call("tool", "r2", NEW, 12, 3.5, 3.6, tool="nap", id="call-1")]


def unrecorded(e: Evidence) -> None:
    e.events = [*e.events, *call("tool", "r2", NEW, 12, 3.5, 3.6, tool="nap", id="call-9")]


def going_on_after_stop(e: Evidence) -> None:
    e.events = [*e.events, *call("tool", "r2", NEW, 12, 5.0, 5.1, tool="nap", id="call-2")]


def stop_forgotten(e: Evidence) -> None:
    replaced(e, 13, data={"status": "completed"})


def zombie(e: Evidence) -> None:
    replaced(e, 11, data={"fact": "tool_returned", "result": f"napped <fence {OLD}>"})


def two_ends(e: Evidence) -> None:
    replaced(e, 11, data={"fact": "run_ended", "status": "stopped"})


def after_the_end(e: Evidence) -> None:
    replaced(e, 11, run="r1", data={"fact": "tool_called", "call_id": "call-2"})


def of_nobody(e: Evidence) -> None:
    replaced(e, 9, run=None, data={"fact": "tool_called", "call_id": "call-2"})


def replayed_by_nobody(e: Evidence) -> None:
    answer = {"run": "r2", "origin": "r1"}
    e.asked = [
        *e.asked,
        Asked(op="replay", thread=T, run="r1", began=2.0, ended=2.1, status=202, answer=answer),
    ]


def settled_twice(e: Evidence) -> None:
    for seq in (2, 3):
        replaced(e, seq, data={"fact": "request_answered", "request": "q", "by": "p", "decision": "reply"})


def hole(e: Evidence) -> None:
    del e.seen[0].facts[3], e.seen[0].arrived[3]


def other_content(e: Evidence) -> None:
    e.seen[0].facts[3]["data"]["text"] = "something else"


def live_back(e: Evidence) -> None:
    e.seen[0].live.append((OLD, 3))


def live_back_after_a_gap(e: Evidence) -> None:
    e.seen[0].live += [(NEW, 2), GAP, (NEW, 2)]


def returned_by_a_later_stop(e: Evidence) -> None:
    """As if the stop of the second run had returned a message that came after it, and another stop followed."""
    later = [
        fact(14, "message_accepted", "r3", NEW, message="m-c"),
        fact(15, "message_returned", "r2", NEW, message="m-c", reason="stopped"),
        fact(16, "stop_requested", "r3", NEW),
    ]
    e.facts = {T: [*e.facts[T], *later]}
    e.asked = [
        *e.asked,
        sent("c", "r3", 14, 5.0),
        Asked(op="stop thread", thread=T, run="r3", began=6.0, ended=6.1, status=202),
    ]
    e.messages = {**e.messages, "c": {"state": "returned", "reason": "stopped"}}


def refused_for_nothing(e: Evidence) -> None:
    refused = Asked(op="send steer", thread=T, tag="z", began=1.0, ended=1.1, status=409)
    refused.answer = {"code": "thread_busy"}
    e.asked = [*e.asked, refused]


def not_found_any_more(e: Evidence) -> None:
    refused = Asked(op="stop thread", thread=T, began=1.0, ended=1.1, status=404)
    refused.answer = {"code": "not_found"}
    e.asked = [*e.asked, refused]


def failing_server(e: Evidence) -> None:
    e.failures = ["GET /v1/threads/thread-1 was answered with 500: {}"]


def failing_process(e: Evidence) -> None:
    e.errors = ['worker1.1.log: {"event": "attempt_broken", "level": "error"}']


def bare_traceback(e: Evidence) -> None:
    e.errors = ["worker1.1.log: Traceback (most recent call last):\n  ...\nKeyError: 1"]


def invalid(e: Evidence) -> None:
    e.events = [*e.events, Event(4.1, "invalid", 12, {"thread": T, "run": "r2", "why": "no result"})]


def stuck(e: Evidence) -> None:
    e.states = {T: "busy"}


LIES: list[tuple[Callable[[Evidence], None], str]] = [
    (shown_twice, "every accepted message is consumed once or returned"),
    (lost, "every accepted message is consumed once or returned"),
    (left_waiting, "every accepted message is consumed once or returned"),
    (refused_but_shown, "a refused or returned message is never shown"),
    (ended_unseen, "a completed run has shown every message that it was to take"),
    (told_differently, "a repeated send is one message"),
    (out_of_order, "messages stand in the order in which they were accepted"),
    (shown_out_of_order, "a run shows its messages in order"),
    (returned_for_nothing, "a stop returns only what came before it"),
    (returned_by_a_later_stop, "a stop returns only what came before it"),
    (overlapping, "no two attempts of a thread overlap"),
    (begun_late, "no call begins under an older fence"),
    (begun_just_after_for_ever, "no two attempts of a thread overlap"),
    (executed_again, "no call is executed twice"),
    (unrecorded, "every executed call is on the log"),
    (going_on_after_stop, "a stopped run does nothing more"),
    (stop_forgotten, "an acknowledged stop ends the run as stopped"),
    (zombie, "no write of a zombie"),
    (two_ends, "exactly one end per run"),
    (replayed_by_nobody, "a replay is one run that names its origin"),
    (settled_twice, "every request is settled once"),
    (after_the_end, "facts of a run stand within its attempts"),
    (of_nobody, "facts of a run stand within its attempts"),
    (hole, "facts are gap-free for every watcher and equal to the table"),
    (other_content, "facts are gap-free for every watcher and equal to the table"),
    (live_back, "live frames never go back"),
    (live_back_after_a_gap, "live frames never go back"),
    (invalid, "histories can be continued"),
    (refused_for_nothing, "who is refused has asked for it"),
    (not_found_any_more, "who is refused has asked for it"),
    (failing_server, "no process fails"),
    (failing_process, "no process fails"),
    (bare_traceback, "no process fails"),
    (stuck, "nothing is stuck"),
]


def test_an_honest_story_passes() -> None:
    assert judged(honest()) == []


@pytest.mark.parametrize(("lie", "rule"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_each_lie_is_found(lie: Callable[[Evidence], None], rule: str) -> None:
    evidence = honest()
    lie(evidence)
    violations = judged(evidence)
    assert rule in {violation.rule for violation in violations}
    assert rule in "\n".join(stories(violations, evidence))


def test_every_rule_has_a_lie() -> None:
    assert {rule for _, rule in LIES} == set(RULES)


def replayed() -> Evidence:
    """The first run again, when the second has ended: what the second consumed is left out."""
    evidence = honest()
    more = [
        fact(14, "message_delivered", "r2", NEW, message="m-b"),
        fact(15, "run_replayed", "r3", NEW, origin="r1", checkpoint="r1.1"),
        fact(16, "run_started", "r3", NEW + 1),
        fact(17, "attempt_closed", "r3", NEW + 1, outcome="completed"),
        fact(18, "run_ended", "r3", NEW + 1, status="completed"),
    ]
    # The second run takes its message in before it ends.
    order = [*FACTS[:10], more[0], *FACTS[10:], *more[1:]]
    facts = [{**copy.deepcopy(one), "seq": seq} for seq, one in enumerate(order, 1)]
    evidence.facts = {T: facts}
    evidence.seen[0].facts = copy.deepcopy(facts)
    evidence.seen[0].arrived = [float(one["seq"]) for one in facts]
    answer = {"run": "r3", "origin": "r1", "seq": 15, "thread": T}
    asked = Asked(op="replay", thread=T, run="r1", began=6.0, ended=6.1, tries=1, status=202, answer=answer)
    evidence.asked = [*evidence.asked, asked]
    again = call("model", "r3", NEW + 1, 12, 7.0, 7.5, tags=["a"], told=[], signs=[])
    evidence.events = [*evidence.events, *again]
    return evidence


def test_what_a_replay_has_left_out_is_shown_no_more() -> None:
    evidence = replayed()
    assert judged(evidence) == []
    shown = call("model", "r3", NEW + 1, 12, 7.6, 7.7, tags=["a", "b"], told=[], signs=[])
    evidence.events = [*evidence.events, *shown]
    [found] = judged(evidence)
    assert (found.rule, "left it out" in found.detail) == (
        "every accepted message is consumed once or returned",
        True,
    )


def test_a_replay_is_one_run_that_names_an_origin_which_has_ended() -> None:
    rule = "a replay is one run that names its origin"
    evidence = replayed()
    evidence.asked[-1].answer["run"] = "r2"
    assert rule in {found.rule for found in judged(evidence)}
    evidence = replayed()
    evidence.asked[-1].answer["origin"] = "r2"
    assert rule in {found.rule for found in judged(evidence)}
    evidence = replayed()
    replaced(evidence, 8, data={"fact": "noted"})
    assert rule in {found.rule for found in judged(evidence)}


def test_a_thawed_process_may_end_what_it_was_doing_but_not_for_long() -> None:
    evidence = honest()
    evidence.events = [*evidence.events, *call("tool", "r1", OLD, 11, 2.5, 3.5, tool="nap", id="call-2")]
    evidence.inflicted = [
        Inflicted(kind="freeze beyond the ttl", target="worker1", pids=(11,), began=2.6, ended=3.4)
    ]
    assert judged(evidence) == []
    evidence.inflicted = [
        Inflicted(kind="freeze beyond the ttl", target="worker1", pids=(11,), began=0.1, ended=1.9)
    ]
    assert "no two attempts of a thread overlap" in {violation.rule for violation in judged(evidence)}


def test_a_call_in_flight_may_go_on_for_a_ttl_when_its_holder_was_cut_off() -> None:
    evidence = honest()
    evidence.events = [*evidence.events, *call("tool", "r1", OLD, 11, 2.5, 5.9, tool="nap", id="call-2")]
    cut = Inflicted(kind="cut", target="worker1 -> postgres", pids=(11,), began=2.6, ended=2.7)
    evidence.inflicted = [cut]
    assert judged(evidence) == []
    evidence.events = [*evidence.events, *call("tool", "r1", OLD, 11, 2.4, 6.5, tool="nap", id="call-2")]
    assert "no two attempts of a thread overlap" in {violation.rule for violation in judged(evidence)}


def test_what_a_stop_returned_came_before_it() -> None:
    evidence = honest()
    replaced(evidence, 12, data={"fact": "message_returned", "message": "m-b", "reason": "stopped"})
    assert "a stop returns only what came before it" not in {found.rule for found in judged(evidence)}


def test_a_battle_in_which_nothing_works_has_shown_too_little() -> None:
    evidence = honest()
    evidence.asked = [Asked(op="send steer", thread=T, tag=str(n), began=0.0, status=409) for n in range(100)]
    outcome = counted(evidence, seed=1, seconds=10.0, spent={})
    assert outcome.too_little == "only 0 accepted operations, only 1 completed runs, only 0 faults"


def test_last_messages_do_not_count_nor_do_their_runs() -> None:
    evidence = honest()
    before = counted(evidence, seed=1, seconds=10.0, spent={})
    assert (before.accepted, before.completed) == ({"send steer": 2, "stop run": 1}, 1)
    evidence.asked = [*evidence.asked, sent(f"c{LAST_SPEAKER}-1", "r1", 1, 9.0)]
    after = counted(evidence, seed=1, seconds=10.0, spent={})
    assert (after.accepted, after.completed) == (before.accepted, 0)
