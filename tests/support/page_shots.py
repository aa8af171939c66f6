"""Pictures of the page's views in light, in dark and on a phone, for people to look at.

`make proof` opens a view in each of these ways. Elsewhere it is opened once, on a phone, and then made wide and dark:
nothing is cut off in either size, and opening it takes most of the time.
"""

from pathlib import Path

from tests.support.browser import Browser
from tests.support.lengths import IS_PROOF
from tests.support.page_steps import settled

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
_WIDE, _PHONE = (1440, 900), (390, 844)
# Elements of the page that reach over the right edge of the window, but those within a box that scrolls by itself.
_CUT = """
const root = document.querySelector('[data-testid=logyard]');
const scrolls = (box) =>
  box && box !== root && (/auto|scroll/.test(getComputedStyle(box).overflowX) || scrolls(box.parentElement));
return [...root.querySelectorAll('button, a, input, h1, h2, p, table, svg, canvas')]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one.parentElement))
  .map((one) => `${one.tagName} ${one.innerText ?? ''}`.slice(0, 60));
"""


# A picture shows a view down to its end, unless that is further down than this.
_TALLEST = 3600
_NEEDED = """
const root = document.querySelector('[data-testid=logyard]');
return Math.ceil(root.getBoundingClientRect().top + root.scrollHeight);
"""
# Buttons off the edge, in a box that scrolls too: on a phone nobody would find them. Headers that sort may be there.
_LOST = """
return [...document.querySelectorAll('[data-testid=logyard] button')]
  .filter((one) => !one.closest('th') && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => `${one.innerText ?? ''}`.slice(0, 60));
"""
# Tables of which hardly a row is seen, because what is above them takes the room.
_SQUEEZED = """
return [...document.querySelectorAll('[data-testid=logyard] table[aria-label]')]
  .filter((one) => one.parentElement.clientHeight < Math.min(one.scrollHeight, 170))
  .map((one) => one.ariaLabel);
"""
# Light first: before it has opened a page, a browser keeps no theme for it.
_WAYS = (*([("light", "light", _WIDE)] if IS_PROOF else []), ("phone", "light", _PHONE), ("dark", "dark", _WIDE))
_KEPT = "try { localStorage.setItem('theme', arguments[0]) } catch { /* it shows no page */ }"
_THEME = "document.documentElement.className = arguments[0]"
_OFF = """
const box = document.querySelector('[role=dialog]').getBoundingClientRect();
return [...document.querySelectorAll('[role=dialog] :is(button, input, textarea, label)')]
  .filter((one) => one.getBoundingClientRect().right > Math.min(box.right, innerWidth) + 1)
  .map((one) => `${one.tagName} ${one.innerText ?? ''}`.slice(0, 60));
"""


def dialog_pictures(browser: Browser, name: str) -> None:
    """Keep `name`-dark, -phone (and -light) of the open dialog; nothing is off its edge."""
    for way, theme, size in _WAYS:
        browser.resize(*size)
        browser.script(_THEME, theme)
        browser.screenshot(SHOTS / f"{name}-{way}.png")
        assert browser.script(_OFF) == [], f"{name}, {way}: off the edge"
    browser.resize(*_WIDE)
    browser.script("document.documentElement.className = 'light'")


def pictures(browser: Browser, address: str, name: str, shown: str) -> None:
    """Show the address in each way, wait for `shown`, and keep `name`-dark, -phone (and -light); nothing is cut."""
    for way, theme, size in _WAYS:
        browser.resize(*size)
        if IS_PROOF or way == "phone":
            browser.script(_KEPT, theme)
            browser.goto(address)
        else:
            browser.script(_THEME, theme)
        browser.wait_for(shown, 60)
        settled(browser)
        width, least = size
        for _ in range(2):  # plots and tables grow with the window
            browser.resize(width, min(max(least, browser.script(_NEEDED)), _TALLEST))
            browser.script("return new Promise((done) => setTimeout(done, 300))")
        browser.screenshot(SHOTS / f"{name}-{way}.png")
        assert browser.script("return document.documentElement.className").strip() == theme, way
        assert browser.script(_CUT) == [], f"{name}, {way}: cut off"
        assert browser.script(_LOST) == [], f"{name}, {way}: buttons off the edge"
        assert browser.script(_SQUEEZED) == [], f"{name}, {way}: a table without room"
    browser.resize(*_WIDE)
    browser.script(_KEPT, "light")
