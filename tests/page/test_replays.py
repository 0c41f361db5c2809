"""What the page shows of a run that was run again: the fold, and a page on real processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.page.browser import MISSING, Browser, Tab, executable
from tests.page.chats import WIDTH, chat, say
from tests.page.conftest import Site
from tests.page.folds import fact, folded, start, texts

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(executable() is None, reason=MISSING),  # before any server is started for it
]


@pytest.mark.parametrize(
    ("end", "where"),
    [
        ({"status": "completed", "output": "four"}, 0),
        ({"status": "completed", "output": 4}, 1),
        ({"status": "failed", "reason": "error"}, 1),
        ({"status": "stopped", "reason": "person"}, 1),
    ],
    ids=lambda value: str(value),
)
async def test_the_last_item_of_a_run_is_its_end(module: Tab, end: dict[str, Any], where: int) -> None:
    other = fact("model_called", 1, text="before") | {"run": "other"}
    state = await folded(module, other, fact("model_called", 2, text="four"), fact("run_ended", 3, **end))
    ends = [item.get("ends") for item in state["items"][1:]]
    assert ends == [None] * where + ["run"]
    # One that has said nothing has no such item, and takes nobody else's.
    silent = await folded(module, other, fact("run_ended", 2, status="completed"))
    assert [item.get("ends") for item in silent["items"]] == [None]


def replayed(seq: int, checkpoint: str) -> dict[str, Any]:
    """Return the first fact of a replay."""
    return fact("run_replayed", seq, origin="run", checkpoint=checkpoint, by="ada")


def asked(text: str, seq: int) -> list[dict[str, Any]]:
    """Return what a message leaves behind that starts a run."""
    accepted = fact("message_accepted", seq, message=text, by="ada", content=text, disposition="started")
    return [accepted, fact("run_started", seq + 1), fact("message_delivered", seq + 2, message=text)]


async def shown(module: Tab, frames: list[Any], **places: int) -> list[str]:
    """Return what is shown once it is known where checkpoints are; what is left out is in brackets."""
    state = await folded(module, *frames)
    items = await module.js(
        f"import('/page/folding.js').then(({{placed}}) => Object.entries({json.dumps(places)}).reduce("
        f"(state, [checkpoint, after]) => placed(state, checkpoint, after), {json.dumps(state)}).items)"
    )
    texts = [item.get("text", item["type"]) for item in items]
    return [f"[{text}]" if item.get("left") else text for text, item in zip(texts, items, strict=True)]


AGAIN = "run again by ada; the conversation goes on here"


async def test_what_a_replay_leaves_out_is_marked(module: Tab) -> None:
    frames = [
        *asked("one", 1), fact("model_called", 4, text="first"), fact("run_ended", 5, status="stopped"),
        replayed(6, "c"), fact("run_started", 7), fact("model_called", 8, text="second"),
    ]  # fmt: skip
    assert await shown(module, frames) == ["one", "first", "stopped", AGAIN, "second"]
    marked = ["one", "[left]", "[first]", "[stopped]", AGAIN, "second"]
    assert await shown(module, frames, c=2) == marked
    # Live text comes after the fact that it follows, and belongs to the one that it becomes.
    live = start("first", seq=3)
    assert await shown(module, [*frames[:3], live, *frames[3:]], c=2) == marked


async def test_messages_belong_where_the_agent_was_shown_them(module: Tab) -> None:
    later = [
        fact("message_accepted", seq, message=f"m{seq}", by="ada", content=f"m{seq}", disposition="steered")
        for seq in (4, 5)
    ]
    answer = fact("model_called", 6, text="first")
    delivered = [fact("message_delivered", seq, message=f"m{seq - 3}") for seq in (7, 8)]
    frames = [*asked("one", 1), *later, answer, *delivered, fact("run_ended", 9), replayed(10, "c")]
    # They came before the checkpoint at 5, and the agent was shown them behind it.
    assert await shown(module, frames, c=5) == ["one", "[left]", "[m4]", "[m5]", "[first]", AGAIN]
    # What is shown is written down before it is said to be delivered.
    assert await shown(module, frames, c=6) == ["one", "m4", "m5", "first", AGAIN]


async def test_a_branch_that_is_gone_back_to_is_in_the_conversation_again(module: Tab) -> None:
    says = [fact("model_called", seq, text=f"at {seq}") for seq in (2, 3, 5, 7)]
    frames = [*says[:2], replayed(4, "a"), says[2], replayed(6, "b"), says[3]]
    both = ["[left]", "[at 2]", "[at 3]", AGAIN, "[left]", "[at 5]", AGAIN, "at 7"]
    assert await shown(module, frames, a=1, b=4) == both
    # The second one goes on from within what the first one had left.
    back = ["at 2", "[left]", "[at 3]", f"[{AGAIN}]", "[at 5]", AGAIN, "at 7"]
    assert await shown(module, frames, b=2) == await shown(module, frames, a=1, b=2) == back
    # As long as it is not known where the newest one goes on, nothing is said.
    assert "[left]" not in await shown(module, frames, a=1)


async def test_a_change_of_members_is_told(module: Tab) -> None:
    def change(access: str | None) -> dict[str, Any]:
        return fact("member_changed", 1, member="bob", access=access, before=None, by="ada")

    assert await texts(module, change("read"), change(None)) == ["ada let bob read", "ada removed bob"]


# Each line of the conversation as a person sees it; what is left out is in brackets, what can be pressed in angles.
LINES = """[...document.querySelectorAll(".item")].map((item) => {
  const parts = [...item.querySelectorAll("p.text, p, .rerun")].filter((part) => part.checkVisibility());
  const text = parts.map((part) => part.matches(".rerun") ? `<${part.textContent}>` : part.textContent).join(" ");
  return item.classList.contains("left") ? `[${text || item.textContent}]` : text;
})"""
LEFT = "[left out of the conversation]"
GOES_ON = "run again by local; the conversation goes on here"


async def test_a_run_is_run_again(chromium: Browser, site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f'spell ["One "] | hold {gate} | say two'
    async with chat(chromium, site.url) as tab, chat(chromium, site.url) as other:
        await say(tab, script)
        await tab.sees("One", ".answer")
        assert await tab.js(LINES) == [script, "One "]
        await tab.press("Stop", "#stop")
        await tab.sees("Run again", ".note")
        await other.open(await tab.js("location.href"))
        await other.sees("Run again", ".note")
        gate.touch()
        await tab.press("Run again", ".rerun")
        marked = [script, LEFT, "[One ]", "[stopped]", GOES_ON, "One two <Run again>"]
        shows = f"JSON.stringify({LINES}) === {json.dumps(json.dumps(marked, separators=(',', ':')))}"
        # As it happens, to somebody who did not ask for it, and to whoever comes later.
        for each in (tab, other):
            await each.until(shows)
        await tab.call("Page.reload")
        await tab.until(shows)


async def test_a_completed_run_is_run_again_on_a_phone(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url, width=320, height=640) as tab:
        await say(tab, 'call add {"a": 1, "b": 2};;say That is 3')
        await tab.press("Run again", ".rerun")
        await tab.sees(GOES_ON, ".note")
        await tab.until("document.querySelectorAll('.answer').length === 2")
        await tab.sees("Run again", ".answer")
        assert await tab.js("document.querySelectorAll('.left').length") == 3
        assert await tab.js(WIDTH) <= 320


async def test_a_refusal_is_told(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, "say for the last time")
        await tab.sees("Run again", ".answer")
        change = "{method: 'PATCH', body: '{\"status\": \"archived\"}', headers: {'Content-Type': 'application/json'}}"
        assert await tab.js(f"fetch('v1/threads/' + location.hash.slice(1), {change}).then(({{ok}}) => ok)")
        await tab.press("Run again", ".rerun")
        await tab.sees("this thread is archived", "#alert")
        # The browser itself complains of every refusal.
        tab.complaints = [each for each in tab.complaints if "/replay" not in each]
