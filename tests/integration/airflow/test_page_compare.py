"""Settings side by side, suggested names, and a group's deletion as far as its review, in a browser."""

from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import pictures
from tests.support.page_steps import PAGE
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

HOSTILE = "<img src=x onerror=globalThis.taken=1>"
TABLE = "table[aria-label='Settings compared']"
OFFERED = "return [...document.querySelectorAll('datalist option')].map((option) => option.value)"


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    for name in ("orders", "payments", "refunds"):
        client.create_topic(NewTopic(name, 2, 3))
    made.tick()
    made.configs["payments"] = {"cleanup.policy": "compact", "retention.ms": HOSTILE}
    made.broker_config = {1: {"log.retention.ms": "1000", "num.io.threads": "8"}, 2: {"num.io.threads": "8"}, 3: {}}
    made.group_commits["billing"] = {TopicPartition("orders", 0): 3}
    with hosted(made, acts=True) as address:
        yield f"{address}/{PAGE}"


def test_topics_are_compared_and_names_are_suggested(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?topic=orders")
    browser.click("//section[.//h2[.='Settings']]//a[.='Compare']", 60)
    browser.wait_for(TABLE, 30)
    browser.fill("input[aria-label='Add topics']", "pay")
    eventually(lambda: browser.script(OFFERED) == ["payments"], "the name is suggested")
    browser.fill("input[aria-label='Add topics']", "payments")
    browser.click("//button[.='Add']")
    browser.wait_text("2 settings differ", 30)
    rows = browser.script(f'return [...document.querySelectorAll("{TABLE} tbody tr")].map((row) => row.innerText)')
    assert [row.split()[0] for row in rows] == ["cleanup.policy", "retention.ms"]
    assert HOSTILE in rows[1]
    assert "name=orders&name=payments" in browser.address()
    browser.click("//button[@aria-label='Leave out orders']")
    browser.wait_gone("//button[@aria-label='Leave out orders']")
    assert browser.script("return globalThis.taken ?? null") is None
    assert severe(browser.console()) == []


def test_a_group_is_deleted_once_its_name_is_typed(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?group=billing")
    browser.click("//button[.='Delete']", 60)
    browser.wait_text("Group billing is deleted, with its committed offsets of 1 partition.")
    delete = "//*[@role='dialog']//button[.='Delete it']"
    assert browser.find(f"{delete}[@disabled]")
    browser.fill("[role=dialog] input", "billing")
    browser.wait_for(f"{delete}[not(@disabled)]")
    browser.click("//*[@role='dialog']//button[.='Cancel']")


def test_pictures_of_brokers_compared(browser: Browser, page: str) -> None:
    pictures(browser, f"{page}?view=compare&of=brokers&name=1&name=2&name=3", "compare", TABLE)
