"""Groups on the page, in a browser: where the search is, and what counts as lag."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    cluster = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(cluster).create_topic(NewTopic("orders", 3, 3))
    cluster.tick()
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    cluster.group_commits["billing"] = {first: 1000}
    cluster.end_offsets = {first: 4118, second: 9000, third: 1882}
    cluster.start_offsets = {second: 1000}
    with hosted(cluster) as address:
        yield f"{address}/{PAGE}"


def test_the_search_is_above_the_list(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=groups")
    browser.wait_for("table[aria-label=Groups] tbody a", 60)
    below = browser.script(TOP, "nav[aria-label=Logyard]")
    search, table = (
        browser.script(TOP, where) for where in ("input[aria-label='Search groups']", "table[aria-label=Groups]")
    )
    assert below < search < below + 120
    assert search < table < search + 160


def test_partitions_without_a_commit_count(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=groups")
    browser.wait_for("table[aria-label=Groups] tbody a", 60)
    assert "13,000" in browser.text("table[aria-label=Groups]")  # 3,118 behind, 8,000 and 1,882 never read
    assert "2 partitions without a commit, with 9,882 records" in browser.text("[data-testid=lag-choice]")
    browser.screenshot(SHOTS / "groups-lag.png")
    browser.goto(f"{page}?view=group&group=billing")
    browser.wait_for("table[aria-label='Offsets of the group']", 60)
    rows = browser.script(
        "return [...document.querySelectorAll(\"table[aria-label='Offsets of the group'] tbody tr\")]"
        ".map((row) => row.innerText.split(String.fromCharCode(9)))"
    )
    assert [row[1:5] for row in rows] == [  # partition, committed, end, lag; the largest lag first
        ["1", "none", "9,000", "8,000"],
        ["0", "1,000", "4,118", "3,118"],
        ["2", "none", "1,882", "1,882"],
    ]
    browser.screenshot(SHOTS / "group-lag.png")
    browser.click("//label[.='Count partitions without a commit from their first record']")
    browser.wait_text("Lag\n3,118")
    assert "reset=latest" in browser.address()
    assert severe(browser.console()) == []
