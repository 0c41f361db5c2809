"""What a person does on the page, and what they see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.page.browser import Browser, Tab

# How far to the right anything reaches, or would if one scrolled there.
WIDTH: Final = """Math.max(...[...document.querySelectorAll("*")].map((each) => {
  const {left, right} = each.getBoundingClientRect();
  const scrolls = ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
  return scrolls ? Math.max(right, left + each.scrollWidth) : right;
}))"""


@asynccontextmanager
async def chat(chromium: Browser, url: str, **size: int) -> AsyncIterator[Tab]:
    """Open the page in a tab of its own; nothing may have gone wrong in it by the end."""
    async with chromium.tab(**size) as tab:
        await tab.open(url)
        await tab.sees("connected", "#link")
        yield tab
        assert tab.complaints == []


async def say(tab: Tab, text: str) -> None:
    """Send a message."""
    await tab.write(text)
    await tab.press("Send", "#send")


async def texts(tab: Tab, selector: str) -> list[str]:
    """Return the texts of all elements of a kind, as they are and not as they are laid out."""
    found: list[str] = await tab.js(
        f"[...document.querySelectorAll('{selector}')].map(each => each.textContent)"
    )
    return found
