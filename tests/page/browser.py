"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # as root there is none, and what it loads is our own page
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
MISSING: Final = "no Chromium here: install one, or name it in CHROMIUM"
START_S_MAX: Final = 30.0
WAIT_S: Final = 30.0
LOOK_S: Final = 0.02


def executable() -> str | None:
    """Return where a Chromium is, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A running browser. Calls and events of all its tabs go over one connection."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._last_id = 0
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._last_id += 1
        id = self._last_id
        self._calls[id] = asyncio.get_running_loop().create_future()
        message = {"id": id, "method": method, "params": params}
        await self._devtools.send(json.dumps(message | ({"sessionId": session} if session else {})))
        async with asyncio.timeout(WAIT_S):
            return await self._calls[id]

    async def _read(self) -> None:
        async for text in self._devtools:
            message = json.loads(text)
            if (call := self._calls.pop(message.get("id", 0), None)) is not None:
                if "error" in message:
                    call.set_exception(AssertionError(f"DevTools: {message['error']}"))
                else:
                    call.set_result(message["result"])
            elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                tab.note(message["method"], message["params"])

    @asynccontextmanager
    async def tab(self, *, width: int = 1000, height: int = 800) -> AsyncIterator["Tab"]:
        """Open a tab of a person of their own, and close it."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tab.call(f"{domain}.enable")
            # Otherwise a tab in the background draws nothing.
            await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
            await tab.resize(width, height)
            yield tab
        finally:
            del self._tabs[tab.session]
            await self.call("Target.disposeBrowserContext", browserContextId=context)

    async def close(self) -> None:
        """End it."""
        with suppress(Exception):
            await self.call("Browser.close")
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Tab:
    """One page; `complaints` is what its console said that is wrong."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self.session = session
        self.complaints: list[str] = []

    def note(self, event: str, params: dict[str, Any]) -> None:
        """Take an event of the browser."""
        match event:
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.complaints.append(json.dumps(params["args"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        return await self._browser.call(method, self.session, **params)

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be a screen of this size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, url: str) -> None:
        """Load a page and return when its scripts have begun."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def js(self, expression: str) -> Any:
        """Return what an expression is, once it is settled if it is a promise."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, *, within: float = WAIT_S) -> Any:
        """Return what an expression is as soon as it is something."""
        end = time.monotonic() + within
        while not (found := await self.js(expression)):
            assert time.monotonic() < end, f"not in time: {expression}; the page shows: {await self.text()}"
            await asyncio.sleep(LOOK_S)
        return found

    async def text(self, selector: str = "body") -> str:
        """Return the text that a person sees in an element."""
        return str(await self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def sees(self, text: str, selector: str = "body", *, within: float = WAIT_S) -> None:
        """Wait until a person sees a text in an element of a kind."""
        where, what = json.dumps(selector), json.dumps(text)
        found = f"[...document.querySelectorAll({where})].some(each => each.innerText.includes({what}))"
        await self.until(found, within=within)

    async def write(self, text: str, selector: str = "#text") -> None:
        """Type a text into a field, in the place of what is there."""
        await self.until(f"document.querySelector({json.dumps(selector)})?.checkVisibility()")
        await self.js(f"document.querySelector({json.dumps(selector)}).select()")
        await self.call("Input.insertText", text=text)

    async def press(self, label: str, selector: str = "button") -> None:
        """Click where a button of this name is."""
        await self.js(f"{FIND}({json.dumps(label)}, {json.dumps(selector)}) && true")
        found = await self.until(f"{FIND}({json.dumps(label)}, {json.dumps(selector)})")
        for type in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=type, button="left", clickCount=1, **found)

    async def enter(self) -> None:
        """Press Enter."""
        for type in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=type, key="Enter", code="Enter", text="\r")

    async def picture(self, file: Path) -> None:
        """Save what the page looks like."""
        shot = await self.call("Page.captureScreenshot")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(shot["data"]))


# Where the last element of this kind that has this text and can be pressed is, scrolled into sight.
FIND: Final = """((label, selector) => {
  const found = [...document.querySelectorAll(selector)].findLast((each) =>
    each.innerText.trim().startsWith(label) && each.checkVisibility() && !each.disabled && !each.closest("[inert]"));
  found?.scrollIntoView({block: "center"});
  const box = found?.getBoundingClientRect();
  return box && {x: box.x + box.width / 2, y: box.y + box.height / 2};
})"""


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    """Run a browser for as long as the block lasts."""
    path = executable()
    assert path is not None
    process = await asyncio.create_subprocess_exec(
        path, *FLAGS, f"--user-data-dir={folder}", stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        url = await _devtools_url(process)
        async with connect(url, max_size=None, ping_interval=None) as devtools:
            running = Browser(devtools)
            draining = asyncio.create_task(_drained(process))
            try:
                yield running
            finally:
                await running.close()
                await _ended(process)
                draining.cancel()
                await asyncio.gather(draining, return_exceptions=True)
    finally:
        await _ended(process)


async def _devtools_url(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(START_S_MAX):
        while line := (await process.stderr.readline()).decode(errors="replace"):
            said += line
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                return found[1]
    raise AssertionError(f"the browser did not start: {said[-3000:]}")


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Read on, so that what it writes never holds it up."""
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for its end; end it if it takes long."""
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
