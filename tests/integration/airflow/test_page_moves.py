"""Moves on the page, in a browser: a planned one is no warning, and its throttle is asked for once."""

from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE, settled

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None}, ticks_to_move=1_000_000)
    MemoryClient(made).create_topic(NewTopic("orders", assignment={0: (1, 2), 1: (2, 1)}))
    made.tick()
    made.sizes = dict.fromkeys(made.assignments, 1 << 20)
    return made


@pytest.fixture
def page(cluster: MemoryCluster) -> Iterator[str]:
    with hosted(cluster, acts=True) as address:
        yield f"{address}/{PAGE}"


def test_a_planned_move_is_no_warning(browser: Browser, cluster: MemoryCluster, page: str) -> None:
    MemoryClient(cluster).alter_reassignments({TopicPartition("orders", 0): (2, 3)})
    browser.goto(page)
    browser.wait_text("every replica is in sync", 60)
    script = "return [...document.querySelectorAll('[data-testid=figure]')].map((one) => one.innerText)"
    shown = {text.splitlines()[0]: text.split()[-1] for text in browser.script(script)}
    assert (shown["Under-replicated"], shown["Moving"]) == ("0", "1")
    assert "Healthy" in browser.text("[data-testid=logyard]")
    browser.goto(f"{page}?topic=orders")
    browser.wait_for("table[aria-label=Partitions] tbody td", 60)
    assert "Replicas each\n2" in browser.text()  # without the one that comes
    assert "+3 −1" in " ".join(browser.text("table[aria-label=Partitions]").split())
    assert browser.script("return document.querySelectorAll('table[aria-label=Partitions] [data-bad]').length") == 0
    assert severe(browser.console()) == []


def test_bytes_say_whose_they_are(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?topic=orders")
    browser.wait_for("table[aria-label=Partitions] tbody td", 60)
    settled(browser)
    assert {"Bytes, all replicas", "Bytes at the leader"} <= set(browser.text().replace("\t", "\n").split("\n"))


def test_the_throttle_is_asked_for_once(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=reassignments&topics=orders&drain=2&throttle=1000000&preview=1")
    browser.wait_for("table[aria-label='Partitions that change']", 60)
    browser.click("//button[.='Run this plan' and not(@disabled)]")
    browser.wait_for("//*[@role='dialog']//button[.='Move them']")
    assert browser.find("[role=dialog] input") == []
    sent = browser.script("return document.querySelector('[role=dialog] pre').textContent")
    assert '"throttle": 1000000' in sent


def test_what_is_typed_after_the_difference_was_shown_is_not_left_out(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=reassignments&topics=orders&drain=2&preview=1")
    browser.wait_for("//button[.='Run this plan' and not(@disabled)]", 60)
    throttle = "//label[starts-with(., 'Throttle')]/following::input[1]"
    browser.fill(throttle, "2000000")
    browser.wait_text("show the difference again to run them", 30)
    assert browser.find("//button[.='Run this plan' and @disabled]")
    browser.click("//button[.='Show the difference']")
    browser.wait_for("//button[.='Run this plan' and not(@disabled)]", 30)
    assert "show the difference again" not in browser.text()
    browser.click("//button[.='Run this plan']")
    browser.wait_for("//*[@role='dialog']//button[.='Move them']")
    assert '"throttle": 2000000' in browser.script("return document.querySelector('[role=dialog] pre').textContent")


def test_what_a_dead_broker_holds_is_not_known(browser: Browser, cluster: MemoryCluster, page: str) -> None:
    cluster.kill(2)
    for _ in range(4):
        cluster.tick()
    browser.goto(f"{page}?view=reassignments&topics=orders&preview=1")
    browser.wait_text("Brokers before and after", 60)
    table = browser.text("table[aria-label='Brokers before and after']")
    row = next(line for line in table.splitlines() if line.startswith("Broker 2"))
    assert "B" not in row.removeprefix("Broker 2, not alive")
