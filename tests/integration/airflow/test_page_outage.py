"""The page while brokers are away: what is old is shown as old, what to do is said once, and its button is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from tests.support.browser import Browser
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(made).create_topic(NewTopic("orders", 4, 3))
    made.tick()
    return made


@pytest.fixture
def page(cluster: MemoryCluster) -> Iterator[str]:
    with hosted(cluster, acts=True) as address:
        yield f"{address}/{PAGE}"


def test_old_values_are_shown_as_old(browser: Browser, cluster: MemoryCluster, page: str) -> None:
    browser.goto(page)
    browser.wait_text("every replica is in sync", 60)
    assert _figures(browser)["Brokers"][0] == "3"
    cluster.running = set()
    browser.wait_text("No broker answers", 30)
    shown = _figures(browser)
    unknown = ("Controller", "Brokers", "Under-replicated", "Offline", "Not preferred", "Moving")
    assert {shown[name][0] for name in unknown} == {"–"}
    assert shown["Topics"][0] == "1"
    assert shown["Topics"][1].startswith("as of ")  # and dimmed:
    faint = "return getComputedStyle(document.querySelector('[data-testid=stale] > :last-child')).opacity"
    assert browser.script(faint) == "0.5"
    assert "not known" in browser.text("table[aria-label=Controllers]")
    assert "now" not in browser.text("table[aria-label=Controllers]").split()
    browser.screenshot(SHOTS / "outage.png")
    # One sentence, once: who, since when, what to do; no error of a library, and nothing of a login that worked.
    text = browser.text("[data-testid=logyard]")
    assert text.count("No broker answers") == 1
    assert "last read at" in text
    assert "broker 1 (host1:9092), broker 2 (host2:9092), broker 3 (host3:9092). Start them" in text
    assert not {"Error", "Errno", "credentials", "password"} & set(text.replace("[", " ").split())
    # A list that was read before stays, dimmed; nothing repeats what the page says above it.
    for view in ("topics", "brokers", "groups", "map"):
        browser.goto(f"{page}?view={view}")
        browser.wait_text("No broker answers", 30)
        eventually(lambda: "Nothing is known of" in browser.text() or browser.find("[data-testid=stale]"), view)
        assert browser.text().lower().count("no broker answer") == 1, view


def test_a_missing_broker_is_started_by_its_name(browser: Browser, cluster: MemoryCluster, page: str) -> None:
    cluster.kill(2)
    for _ in range(4):
        cluster.tick()
    browser.goto(page)
    browser.wait_for("//button[.='Start broker 2']", 60)
    colour = (
        "return getComputedStyle(document.evaluate(arguments[0], document, null, 9).singleNodeValue).backgroundColor"
    )
    plain, main = (browser.script(colour, f"//button[.='{name}']") for name in ("Create topic", "Start broker 2"))
    assert plain != main  # what helps now stands out
    browser.screenshot(SHOTS / "broker-missing.png")
    browser.click("//button[.='Start broker 2']")
    browser.click("//*[@role='dialog']//button[.='Review']")
    browser.wait_text("The run starts broker 2")
    assert "ended first" in browser.text()
    browser.screenshot(SHOTS / "start-broker-review.png")
    browser.wait_for("//*[@role='dialog']//button[.='Start broker 2']")
    browser.click("//*[@role='dialog']//button[.='Back']")
    browser.click("//*[@role='dialog']//label[.='Only report what is wrong']")
    browser.click("//*[@role='dialog']//button[.='Review']")
    browser.wait_for("//*[@role='dialog']//button[.='Only report']")
    assert "changes nothing" in browser.text()


def _figures(browser: Browser) -> dict[str, list[str]]:
    """Label → what is below it."""
    script = "return [...document.querySelectorAll('[data-testid=figure]')].map((one) => one.innerText)"
    shown = ([line for line in text.splitlines() if line] for text in browser.script(script))
    return {label: rest for label, *rest in shown}
