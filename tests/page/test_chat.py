"""The page as a person uses it, with the scripted agent behind it."""

from pathlib import Path

import pytest

from tests.page.browser import MISSING, Browser, executable
from tests.page.chats import WIDTH, chat, say, texts
from tests.page.conftest import Site

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(executable() is None, reason=MISSING),  # before any server is started for it
]


async def test_an_answer_is_shown_as_it_is_said(chromium: Browser, site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with chat(chromium, site.url) as tab:
        await say(tab, f'spell ["Half an "] | hold {gate} | say answer.')
        await tab.sees("Half an", ".answer")
        assert await texts(tab, ".answer .text") == ["Half an "]
        await tab.sees("Stop", "#buttons")
        gate.touch()
        await tab.sees("Half an answer.", ".answer")
        await tab.until("document.querySelector('.answer').ariaBusy === 'false'")
        await tab.until("document.getElementById('stop').hidden")
        assert await texts(tab, ".answer .text") == ["Half an answer."]


async def test_nothing_is_lost_or_doubled_when_the_network_is_gone_for_a_while(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with chat(chromium, site.far_url) as tab:
        steps = f'spell ["one "] | hold {first} | spell ["two "] | hold {second} | say three'
        await say(tab, f'say Adding. | call add {{"a": 1, "b": 2}};;{steps}')
        await tab.sees("one", ".answer")
        site.network.cut()
        await tab.sees("offline", "#link")
        first.touch()
        await say(tab, "sent while away")
        await tab.sees("sending", "#log")
        site.network.mend()
        await tab.sees("connected", "#link")
        await tab.sees("one two", ".answer")
        second.touch()
        await tab.sees("heard: sent while away", "#log")
        assert await texts(tab, ".answer .text") == ["Adding.", "one two three", "heard: sent while away"]
        assert len(await texts(tab, ".mine")) == 2
        # That the server was away is what the browser itself complains of.
        tab.complaints = [each for each in tab.complaints if "ERR_" not in each and "WebSocket" not in each]


async def test_what_was_done_offline_counts_once(chromium: Browser, site: Site, tmp_path: Path) -> None:
    async with chat(chromium, site.far_url) as tab:
        site.network.cut()
        await tab.sees("offline", "#link")
        await say(tab, "the first message of a chat")
        await tab.sees("sending", "#log")
        site.network.mend()
        await tab.sees("heard: the first message of a chat", ".answer")
        assert await texts(tab, ".mine .text") == ["the first message of a chat"]
        assert (await texts(tab, "#threads a span")).count("the first message of a chat") == 1
        tab.complaints = [each for each in tab.complaints if "ERR_" not in each and "WebSocket" not in each]


async def test_an_approval_is_given(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, 'call pay {"amount": 3, "to": "Ada"};;say paid')
        await tab.sees('"amount": 3', ".request")
        await tab.sees("waits for you", "#threads")
        await tab.press("Approve", ".request button")
        await tab.sees("local allowed", ".request")
        await tab.sees("paid", ".answer")
        assert await texts(tab, ".call summary") == ["paydone"]
        assert "paid 3 to Ada" in (await texts(tab, ".call pre"))[1]


async def test_arguments_are_changed_before_they_are_allowed(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, 'call pay {"amount": 3};;say done')
        await tab.sees("pay", ".request")
        await tab.press("Edit", ".request button")
        await tab.write("not JSON", ".request textarea")
        await tab.press("Approve with changes", ".request button")
        await tab.sees("not JSON", ".request .alert")
        await tab.write('{"amount": 12345678901234567890, "to": "Grace"}', ".request textarea")
        await tab.press("Approve with changes", ".request button")
        await tab.sees('"amount": 12345678901234567890', ".request")
        await tab.sees("done", ".answer")
        assert "paid 12345678901234567890 to Grace" in (await texts(tab, ".call pre"))[1]


async def test_an_approval_is_rejected_with_a_reason(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, 'call pay {"amount": 3};;say then not')
        await tab.sees("pay", ".request")
        await tab.press("Reject", ".request button")
        await tab.write("too dear", ".request input")
        await tab.press("Reject", ".request button")
        await tab.sees("local rejected", ".request")
        await tab.sees("too dear", ".request")
        await tab.sees("then not", ".answer")


async def test_a_question_is_answered(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, 'call ask {"question": "Which colour?"};;say I see;;say no')
        await tab.sees("Which colour?", ".request")
        await tab.write("green", ".request textarea")
        await tab.press("Reply", ".request button")
        await tab.sees("local answered", ".request")
        await tab.sees("green", ".request")
        await tab.sees("I see", ".answer")


async def test_a_message_to_a_paused_run_is_its_answer(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, 'call ask {"question": "Which colour?"};;say I see;;say no')
        await tab.sees("Which colour?", ".request")
        await tab.write("blue")
        await tab.enter()
        await tab.sees("I see", ".answer")
        await tab.sees("local answered", ".request")
        assert await tab.js("document.querySelector('.request').dataset.state") == "answered"


async def test_a_run_is_stopped_and_what_it_did_not_read_comes_back(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    async with chat(chromium, site.url) as tab:
        await say(tab, f"say on it | hold {tmp_path / 'never'}")
        await tab.sees("on it", ".answer")
        await say(tab, "too late")
        await tab.sees("will be read at the next step", "#log")
        await tab.press("Stop", "#stop")
        await tab.sees("stopped", ".item.note")
        await tab.sees("not read (stopped)", "#log")
        await tab.press("Send again", ".mine button")
        await tab.sees("heard: too late", "#log")


async def test_a_message_waits_for_the_next_run_if_it_is_told_to(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with chat(chromium, site.url) as tab:
        await say(tab, f"hold {gate} | say the first")
        await tab.until("document.getElementById('onbusy').checkVisibility()")
        await tab.js("document.getElementById('onbusy').value = 'queue'")
        await say(tab, "and then")
        await tab.sees("waits for the next run", "#log")
        gate.touch()
        await tab.sees("heard: and then", "#log")
        # Wherever it stands: before the answer that it waited behind while that is live, after it once it is read anew.
        await tab.until(
            "[...document.querySelectorAll('.mine')].some(each => each.innerText.includes('and then')"
            " && each.querySelector('.state').innerText.includes('read'))"
        )


async def test_two_tabs_show_the_same_and_so_does_a_page_that_was_loaded_again(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with chat(chromium, site.url) as tab:
        await say(tab, f'say Adding. | call add {{"a": 1, "b": 2}};;spell ["That "] | hold {gate} | say is 3')
        await tab.sees("That", ".answer")
        async with chat(chromium, await tab.js("location.href")) as other:
            await other.sees("That", ".answer")
            await say(other, "from the other tab")
            await tab.sees("from the other tab", "#log")
            gate.touch()
            for each in (tab, other):
                await each.sees("heard: from the other tab", "#log")
            same = await texts(tab, ".item .text, .item pre")
            assert same == await texts(other, ".item .text, .item pre")
        await tab.call("Page.reload")
        await tab.sees("heard: from the other tab", "#log")
        assert await texts(tab, ".item .text, .item pre") == same


async def test_one_goes_from_thread_to_thread(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url) as tab:
        for number in ("first", "second"):
            await tab.press("New chat", "nav a")
            await tab.until("document.querySelectorAll('.item').length === 0")
            await say(tab, f"this is the {number} of two")
            await tab.sees(f"heard: this is the {number} of two", ".answer")
            # Until it is in the list, the list may still move under the pointer.
            await tab.sees(f"this is the {number} of two", "nav a")
        await tab.press("this is the first of two", "nav a")
        await tab.sees("heard: this is the first of two", ".answer")
        await tab.sees("this is the first of two", "#title")
        assert len(await texts(tab, ".item")) == 2


HOSTILE = (
    "<img src=x onerror=alert(1)> <script>alert(2)</script> &amp; \u0001 \u2400 \u202etxt.exe "
    "\u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f680 "
)
IS_AT_END = """(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight < 2)(
  document.getElementById("scroll"))"""


async def test_what_people_say_is_text_and_never_more(chromium: Browser, site: Site) -> None:
    text = HOSTILE + "W" * 500
    async with chat(chromium, site.url, width=320, height=640) as tab:
        await say(tab, text)
        await tab.sees("heard: <img", ".answer")
        assert await texts(tab, ".mine .text") == [text]
        assert await texts(tab, ".answer .text") == [f"heard: {text}"]
        assert await tab.js("document.querySelectorAll('img, #log script').length") == 0
        assert await tab.js(WIDTH) <= 320


async def test_it_fits_a_phone(chromium: Browser, site: Site) -> None:
    async with chat(chromium, site.url, width=320, height=640) as tab:
        await say(tab, f'say Now. | call pay {{"amount": 3, "to": "{"A" * 200}"}}')
        await tab.sees('"amount": 3', ".request")
        await tab.until(IS_AT_END)
        await tab.resize(640, 320)
        await tab.until(IS_AT_END)
        await tab.resize(320, 640)
        await tab.press("Edit", ".request button")
        await tab.press("Reject", ".request button")
        assert await tab.js(WIDTH) <= 320
        small = await tab.js(
            "[...document.querySelectorAll('button, input, select, nav a')]"
            ".filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 44).map(e => e.outerHTML)"
        )
        assert small == []
        await tab.press("Threads", "#menu")
        await tab.sees("say Now.", "nav")
        assert await tab.js(WIDTH) <= 320
