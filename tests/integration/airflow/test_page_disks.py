"""Disks in a browser: how full they are, when they will be full, what mends them, and what a plan does to them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from logyard.admin.cluster.snapshot import NewTopic
from logyard.plugins.logyard_ui.history.sample import Sample
from logyard.plugins.logyard_ui.history.slots import slot_of
from logyard.plugins.logyard_ui.history.store import HistoryStore
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import pictures
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

GIB = 1 << 30
HOSTILE = "/disks/<img src=x onerror=globalThis.taken=1>"


def _filled(place: Path) -> HistoryStore:
    """Broker 1's disk has taken one GiB an hour for two days, the hostile one nothing.

    The plot is of the last hour by itself, and needs two samples of it, also where the page is opened minutes later.
    """
    store = HistoryStore(sessionmaker(create_engine(f"sqlite:///{place}")).begin)
    store.prepare()
    now = slot_of(time.time_ns() // 1_000_000)
    for minutes in (*range(48 * 60, 60, -60), *range(60, -1, -5)):
        slot = now - minutes
        store.claim("logyard_default", slot)
        disks = {1: {"/data/1": (200 * GIB, 60 * GIB + minutes * GIB // 60), HOSTILE: (10 * GIB, 5 * GIB)}}
        store.write("logyard_default", slot, Sample(brokers={1: 9 * GIB}, bytes=9 * GIB, disks=disks))
    return store


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(made).create_topic(NewTopic("orders", assignment={0: [1], 1: [1], 2: [2]}))
    made.tick()
    made.sizes = dict.fromkeys(made.assignments, 2 * GIB)
    made.disks = {
        (1, "/data/1"): (200 * GIB, 60 * GIB),
        (1, HOSTILE): (10 * GIB, 5 * GIB),
        (2, "/data/2"): (100 * GIB, 50 * GIB),
        (3, "/data/3"): (100 * GIB, 7 * GIB),
    }
    with hosted(made, acts=True, history=_filled(tmp_path_factory.mktemp("disks") / "history.db")) as address:
        yield f"{address}/{PAGE}"


def test_brokers_show_their_fullest_disk(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=brokers")
    browser.wait_text("93 %", 60)
    shown = browser.text()
    assert "50.0 GiB" in shown
    assert browser.script("return document.querySelectorAll('[data-bad]').length") == 1
    assert severe(browser.console()) == []


def test_a_broker_says_when_each_directory_is_full(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=broker&broker=1")
    browser.wait_for("[data-testid=history] canvas", 60)
    browser.wait_text("/data/1: full in 2.5 days at 24.0 GiB a day, over the last 2.0 days; 60.0 GiB free.")
    browser.wait_text(f"{HOSTILE}: 5.0 GiB free; it does not fill up, over the last 2.0 days.")
    assert browser.script("return globalThis.taken") is None
    assert severe(browser.console()) == []


def test_a_disk_that_is_full_soon_is_a_finding(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=findings")
    browser.wait_for("[data-testid=finding-disk_full] table", 60)
    shown = browser.text("[data-testid=finding-disk_full]")
    assert "/data/3: 93 % used, 7.0 GiB free" in shown
    assert "/data/1: 70 % used, 60.0 GiB free, full in 2.5 days" in shown


def test_a_plan_says_what_its_disks_get_and_refuses_what_cannot_fit(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=reassignments&drain=1&preview=1")
    browser.wait_text("Free after", 60)
    browser.wait_text("its disks will be")
    assert "Comes in" in browser.text()
    assert severe(browser.console()) == []


def test_pictures_of_the_disks(browser: Browser, page: str) -> None:
    pictures(browser, f"{page}?view=broker&broker=1", "disks", "[data-testid=history] canvas")
