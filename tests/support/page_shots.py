"""Pictures of the page's views in light, in dark and on a phone, for people to look at."""

from pathlib import Path

from tests.support.browser import Browser

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


def pictures(browser: Browser, address: str, name: str, shown: str) -> None:
    """Open the address in each way, wait for `shown`, and keep `name`-light, -dark, -phone; nothing is cut."""
    for way, theme, size in (("light", "light", _WIDE), ("dark", "dark", _WIDE), ("phone", "light", _PHONE)):
        browser.resize(*size)
        browser.script("localStorage.setItem('theme', arguments[0])", theme)
        browser.goto(address)
        browser.wait_for(shown, 60)
        browser.screenshot(SHOTS / f"{name}-{way}.png")
        assert browser.script("return document.documentElement.className").strip() == theme, way
        assert browser.script(_CUT) == [], f"{name}, {way}: cut off"
    browser.resize(*_WIDE)
    browser.script("localStorage.setItem('theme', 'light')")
