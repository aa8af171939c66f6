"""Several clusters side by side, in a browser: each with its health, and the way to it."""

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import pictures
from tests.support.page_steps import PAGE
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

TABLE = "table[aria-label=Clusters]"
ROWS = f"return [...document.querySelectorAll('{TABLE} tbody tr')].map((row) => row.innerText.split('\\t'))"
TAB = "//nav[@aria-label='Logyard']//a[.='Clusters']"


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None})
    MemoryClient(made).create_topic(NewTopic("orders", 3, 2))
    made.tick()
    return made


@pytest.fixture
def page(cluster: MemoryCluster) -> Iterator[str]:
    with hosted(cluster, acts=True) as address:
        yield f"{address}/{PAGE}"


def test_all_clusters_are_in_one_table(
    browser: Browser, cluster: MemoryCluster, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, extra in (("KAFKA_WEST", {}), ("WRONG", {"security_protocol": "PIGEON"})):
        fields = {"conn_type": "logyard", "host": "memory:2", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(fields))
    browser.goto(page)
    browser.click(TAB, 60)
    eventually(lambda: len(rows := browser.script(ROWS)) == 3 and "…" not in str(rows), "three clusters are read")
    shown = {row[0]: row[1:] for row in browser.script(ROWS)}
    assert [shown["kafka_west"][at] for at in (0, 1, 2, 3, 4, 5, 6)] == [
        *("Healthy", "Broker 1", "2", "1", "3", "0", "0"),
    ]
    assert shown["wrong"][0] == "Unreachable"
    assert shown["wrong"][1:8] == ["–"] * 7
    assert "PIGEON" in shown["wrong"][8]
    pictures(browser, f"{page}?view=clusters", "clusters", f"{TABLE} tbody td")
    cluster.kill(2)
    for _ in range(4):
        cluster.tick()
    eventually(lambda: "Warning" in str(browser.script(ROWS)), "a missing broker is a warning", 30)
    browser.click("//a[.='kafka_west']")
    browser.wait_text("Unhealthy partitions", 30)
    assert "conn_id=kafka_west" in browser.address()
    assert [entry for entry in severe(browser.console()) if "502" not in entry] == []


def test_one_cluster_needs_no_table(browser: Browser, page: str) -> None:
    browser.goto(page)
    browser.wait_text("every replica is in sync", 60)
    assert not browser.find(TAB)
