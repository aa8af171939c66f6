"""Findings and the search in a browser: what is found, what mends it, how keys find a topic."""

from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.transactions.transactions import Producer
from logyard.broker.model import TopicPartition
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import SHOTS, pictures
from tests.support.page_steps import PAGE, buttons

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

HOSTILE = "<img src=x onerror=globalThis.taken=1>"
FOCUSED = "return document.activeElement.getAttribute('aria-label')"


def _cluster() -> MemoryCluster:
    made = MemoryCluster({1: "east", 2: "west", 3: None})
    client = MemoryClient(made)
    topics = {"orders": {0: [1, 2, 3], 1: [2, 3, 1]}, "alone": {0: [1]}, "single": {0: [2]}, "tight": {0: [2, 3]}}
    for name, assignment in topics.items():
        client.create_topic(NewTopic(name, assignment=assignment))
    for number in range(30):
        client.create_topic(NewTopic(f"orders.part-{number}", assignment={0: [1, 2 + number % 2]}))
    made.configs["tight"] = {"min.insync.replicas": "2", "retention.ms": "86400000"}
    made.tick()
    for tp in made.assignments:
        made.end_offsets[tp], made.record_times[tp], made.sizes[tp] = 10, 1 << 60, 5_000_000_000
    made.record_times[TopicPartition("alone", 0)] = 1
    made.producers[TopicPartition("orders", 1)] = [Producer(4000, 0, -1, 7, 1_795_312_700_000, 5)]
    made.group_commits = {"billing": {TopicPartition("orders", 0): 3}, HOSTILE: {TopicPartition("tight", 0): 1}}
    made.kill(3)
    for _ in range(4):
        made.tick()
    return made


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with hosted(_cluster(), acts=True) as address:
        yield f"{address}/{PAGE}"


def _ready(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=findings")
    browser.wait_for("[data-testid=finding-unread] table", 60)


def test_findings_are_told_with_what_mends_them(browser: Browser, page: str) -> None:
    _ready(browser, page)
    shown = browser.text()
    assert "1 partition, out of sync: broker 3" in shown
    assert "2 of 2 replicas" in shown
    assert "nothing for 365 days or longer" in shown
    assert "Looked for and not found: partitions without a leader" in shown
    assert {"Start broker 3", "Lower it", "Abort them", "Delete"} <= buttons(browser)
    browser.click("//*[@data-testid='finding-min_insync']//button[.='Lower it']")
    browser.wait_for("textarea[name=configs]")
    typed = browser.script("return document.querySelector('textarea[name=configs]').value")
    assert typed.splitlines() == ["min.insync.replicas=1", "retention.ms=86400000"]
    browser.click("//button[.='Review']")
    browser.wait_text("min.insync.replicas: 2 → 1")
    browser.click("//*[@role='dialog']//button[.='Back']")
    browser.click("//*[@role='dialog']//button[.='Cancel']")
    browser.click("//*[@data-testid='finding-replication_factor_1']//a[starts-with(., 'Plan 2 replicas, for all')]")
    browser.wait_for("//*[@aria-label='Difference'] | //*[contains(., 'partitions change')]", 30)
    assert "topics=alone%2C+single" in browser.address()
    assert severe(browser.console()) == []


def test_a_name_is_found_by_keys(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=brokers")
    browser.wait_for("table[aria-label=Brokers]", 60)
    browser.press("/")
    assert browser.script(FOCUSED) == "Find a topic, group or broker"
    browser.press("orders")
    browser.wait_for("//*[@role='option'][contains(., 'orders.part-6')]", 30)
    browser.wait_text("23 more topics")
    assert browser.script("return document.querySelector('[role=option][aria-selected=true]').innerText").startswith(
        "orders\n"
    )
    browser.screenshot(SHOTS / "search.png")
    browser.press("ArrowDown")
    browser.press("Enter")
    browser.wait_text("orders.part-0", 30)
    assert "topic=orders.part-0" in browser.address()
    browser.press("/")
    browser.press("img")
    browser.wait_for(f"//*[@role='option'][contains(., '{HOSTILE}')]", 30)
    browser.press("Escape")
    browser.wait_gone("//*[@role='listbox']")
    assert browser.script("return globalThis.taken ?? null") is None
    assert severe(browser.console()) == []


def test_pictures_of_the_findings(browser: Browser, page: str) -> None:
    pictures(browser, f"{page}?view=findings", "findings", "[data-testid=finding-unread] table")
