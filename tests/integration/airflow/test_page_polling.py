"""How often an open page asks, in a browser."""

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

from tests.support.browser import Browser
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE, settled
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]


@pytest.fixture
def page() -> Iterator[str]:
    with hosted(MemoryCluster({1: None})) as address:
        yield f"{address}/{PAGE}"


def test_a_hidden_tab_asks_for_nothing(browser: Browser, page: str) -> None:
    browser.goto(page)
    browser.wait_for("nav[aria-label=Logyard]", 60)
    settled(browser)
    asked = "return performance.getEntriesByType('resource').filter((e) => e.name.includes('/logyard/api/')).length"
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"
    before = browser.script(asked)
    eventually(lambda: browser.script(asked) > before, "it looks again")
    browser.script(f"const [hidden] = arguments; {hide.replace('arguments[0]', 'hidden')}", True)
    time.sleep(1)
    hidden = browser.script(asked)
    time.sleep(7)
    assert browser.script(asked) == hidden
    browser.script(
        f"const [hidden] = arguments; {hide.replace('arguments[0]', 'hidden')}"
        "document.dispatchEvent(new Event('visibilitychange'))",
        False,
    )
    eventually(lambda: browser.script(asked) > hidden, "it looks again when it is seen")
