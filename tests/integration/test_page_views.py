"""Views that need no Airflow, in a real browser, light and dark: old consumers, a topic's transactions and rights."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.acls import acls
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.configs.entities import Entity
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.broker.model import TopicPartition
from tests.support import airflow_home
from tests.support.browser import Browser, browser_or_skip, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, make_app
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


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.long), True], ids=["light", "dark"])
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


LOOKS = [("light", (1440, 900), False), ("dark", (1440, 900), True), ("phone", (500, 900), False)]
LONG = "User:CN=loader.west.example,OU=Data,O=Example Corporation,L=Amsterdam,C=NL"


@pytest.fixture(scope="module")
def rights() -> Iterator[tuple[str, MemoryCluster]]:
    """The page over a cluster with ACLs and quotas."""
    browser_or_skip()
    airflow_home.prepare()
    cluster = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(cluster)
    for topic in ("orders.created", "untouched"):
        client.create_topic(NewTopic(topic, 2, 3))
    cluster.tick()
    orders = {"topic": "orders.", "pattern": "prefixed"}
    for acl in (
        {**orders, "principal": LONG, "operation": ["Write", "Describe", "Create"]},
        {"topic": "orders.created", "principal": "User:alice", "operation": "Read", "host": "10.0.0.7"},
        {"topic": "*", "principal": f"User:{HOSTILE}", "operation": "All", "permission": "deny"},
    ):
        client.create_acls(acls.parse(acl))
    client.alter_quotas(Entity(("users",), ("alice",)), {"consumer_byte_rate": 10485760.0})
    with hosted(cluster) as address:
        yield address, cluster


@pytest.mark.parametrize(
    ("look", "size", "dark"),
    [pytest.param(*look, id=look[0], marks=[] if look[0] == "phone" else [pytest.mark.long]) for look in LOOKS],
)
def test_who_may_what_on_a_topic(
    rights: tuple[str, MemoryCluster], tmp_path: Path, look: str, size: tuple[int, int], dark: bool
) -> None:
    address, _ = rights
    with Browser.start(tmp_path, size, dark) as browser:
        browser.goto(f"{address}/{PAGE}?view=topic&topic=orders.created")
        browser.wait_for("table[aria-label=Rights]", 60)
        rows = browser.script(
            "return [...document.querySelectorAll('table[aria-label=Rights] tbody tr')].map((row) => row.innerText)"
        )
        told = [" ".join(row.split()) for row in rows]
        assert told[0] == f"may not User:{HOSTILE} All all topics anywhere", "what is denied comes first"
        assert f"may {LONG} Create, Describe, Write topics that begin with orders. anywhere" in told
        assert "may User:alice Read this topic 10.0.0.7" in told
        assert len(told) == 3
        assert "Quotas of users: alice: reads 10.0 MiB/s" in browser.text()
        browser.script("document.querySelector('table[aria-label=Rights]').scrollIntoView()")
        browser.screenshot(SHOTS / f"rights-{look}.png")
        # The table may scroll; the page does not get wider than the window.
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.script(wide) <= 0
        browser.goto(f"{address}/{PAGE}?view=topic&topic=untouched")
        browser.wait_for("table[aria-label=Rights]", 60)
        assert browser.script("return document.querySelectorAll('table[aria-label=Rights] tbody tr').length") == 1
        assert browser.script("return globalThis.taken ?? null") is None
        assert severe(browser.console()) == []


def test_who_may_not_see_rights_is_told_and_sees_the_rest(
    rights: tuple[str, MemoryCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's user lacks Describe on the cluster: the page says so where the rights would be."""

    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(MemoryClient, "acls", refuse)
    cluster = MemoryCluster({1: None})
    MemoryClient(cluster).create_topic(NewTopic("t", 2, 1))
    cluster.tick()
    with hosted(cluster) as address, Browser.start(tmp_path) as browser:
        browser.goto(f"{address}/{PAGE}?view=topic&topic=t")
        browser.wait_for("table[aria-label=Partitions]", 60)
        browser.wait_text("it needs Describe on the cluster")
        assert browser.find("table[aria-label=Rights]") == []
        browser.script("[...document.querySelectorAll('h2')].at(-1).scrollIntoView()")
        browser.screenshot(SHOTS / "rights-refused.png")
        assert severe(browser.console()) == []


def test_a_reader_without_the_connection_sees_no_rights(
    rights: tuple[str, MemoryCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a connection that Airflow does not let the reader see, nothing is told, not even that it is there."""
    _, cluster = rights
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_CONNECTIONS", "another")
    viewer = PageClient(make_app(cluster))
    for path in ("/api/topic?conn_id=logyard_default&name=orders.created", "/api/topic?conn_id=none&name=orders"):
        answer = viewer.answer(path)
        assert answer.status_code == 404
        assert "alice" not in answer.text
