"""Views that need no Airflow, in a real browser, light and dark: old consumers, and the transactions of a topic."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.broker.model import TopicPartition
from tests.support import airflow_home
from tests.support.browser import Browser, browser_or_skip, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    browser_or_skip()
    airflow_home.prepare()
    cluster = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(cluster).create_topic(NewTopic("t", 2, 3))
    cluster.tick()
    cluster.group_commits["readers"] = {T0: 3}
    cluster.end_offsets.update({T0: 100, T1: 100})
    now = time.time_ns() // 1_000_000
    cluster.producers[T0] = [Producer(7, 0, -1, 1, now, 60), Producer(5, 1, -1, 1, now - 10**7, 40)]
    cluster.transactions[HOSTILE] = Transaction(HOSTILE, 1, 7, 0, "Ongoing", 60_000, now, (T0,))
    cluster.znodes.make("/consumers/old-reports/offsets/t/0", b"77")
    cluster.znodes.make(f"/consumers/{HOSTILE}/offsets/t/1", b"<b>no number")
    with hosted(cluster) as address:
        known = Connections()
        known.add("logyard_default", extra='{"zookeeper": "zk:2181"}')
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_old_consumers_and_open_transactions(page: str, tmp_path: Path, dark: bool) -> None:
    theme = "dark" if dark else "light"
    with Browser.start(tmp_path, dark=dark) as browser:
        browser.goto(f"{page}/{PAGE}?view=groups")
        browser.wait_for("table[aria-label='Old consumers']", 60)
        shown = browser.text("table[aria-label='Old consumers']")
        assert "old-reports" in shown
        assert "23" in shown.split()
        assert HOSTILE in shown
        browser.screenshot(SHOTS / f"old-consumers-{theme}.png")
        browser.goto(f"{page}/{PAGE}?view=topic&topic=t")
        browser.wait_for("table[aria-label='Open transactions']", 60)
        rows = browser.script(
            "return [...document.querySelectorAll(\"table[aria-label='Open transactions'] tbody tr\")]"
            ".map((row) => row.innerText)"
        )
        assert ["hangs" in row for row in rows] == [True, False]
        assert [row.split()[-1] for row in rows] == ["yes", "–"]
        assert HOSTILE in rows[1]
        browser.screenshot(SHOTS / f"open-transactions-{theme}.png")
        assert browser.script("return globalThis.taken ?? null") is None
        assert severe(browser.console()) == []
