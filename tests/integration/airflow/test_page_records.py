"""Records on the page, in a browser over real brokers: found, opened, searched; and who may not look."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytest.importorskip("airflow.sdk")

from tests.support.browser import Browser, severe
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE
from tests.support.real_cluster import RealCluster
from tests.support.schema_registry import framed, registry

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
TOPIC = "looked-at"
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
TEXT = "return document.querySelector('table[aria-label=Records]').textContent"
ROWS = "return [...document.querySelectorAll('table[aria-label=Records] tbody tr')].map((row) => row.innerText)"


@pytest.fixture(scope="module")
def filled(cluster: RealCluster) -> RealCluster:
    cluster.create(TOPIC, partitions=2, compression_type="zstd")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "gzip"})
    for number in range(30):
        value = json.dumps({"order": number, "card": {"number": f"4111-{number}"}, "note": HOSTILE}).encode()
        producer.produce(TOPIC, value, b"order-%d" % number, partition=number % 2, headers=[("trace", b"t%d" % number)])
    producer.produce(TOPIC, None, b"gone", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "lookers", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 1, 7)], asynchronous=False)
    finally:
        consumer.close()
    return cluster


@pytest.fixture(scope="module")
def page(filled: RealCluster) -> Iterator[str]:
    with hosted(None, bootstrap=filled.bootstrap) as address:
        yield f"{address}/{PAGE}"


def test_records_are_found_and_opened(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?topic={TOPIC}")
    browser.click("//a[.='Records']", 60)
    browser.wait_text("Nothing was read yet.")
    browser.click("//button[.='Look']")
    browser.wait_for("table[aria-label=Records]", 30)
    rows = browser.script(ROWS)
    assert len(rows) == 20
    assert "null" in next(row for row in rows if "gone" in row)
    browser.click("(//table[@aria-label='Records']//tr[contains(., 'order-29')]//summary)[1]")
    browser.wait_text('"number": "4111-29"')
    assert "trace: t29" in browser.text()
    assert HOSTILE in browser.text()
    browser.screenshot(SHOTS / "records.png")
    browser.fill("input[name=text]", "4111-7")
    browser.click("//button[.='Look']")
    browser.wait_text("1 record of 31 that were read")
    assert "order-7" in browser.script(ROWS)[0]
    browser.goto(f"{page}?view=records&topic={TOPIC}&start=offset&at=3&limit=20&partition=1&look=1")
    browser.wait_for("table[aria-label=Records]", 60)
    assert [row.split("\t")[:2] for row in browser.script(ROWS)][:2] == [["1", "3"], ["1", "4"]]
    assert browser.script("return globalThis.taken ?? null") is None
    assert severe(browser.console()) == []


def test_the_newest_records_are_followed(browser: Browser, filled: RealCluster, page: str) -> None:
    filled.create("followed", partitions=1)
    filled.produce("followed", [(b"k", b"first")])
    browser.goto(f"{page}?view=records&topic=followed")
    browser.click("//label[.='Follow']", 60)
    browser.click("//button[.='Look']")
    browser.wait_text("Followed by a look every 5 s", 30)
    assert len(browser.script(ROWS)) == 1
    filled.produce("followed", [(b"k", b"second")])
    browser.wait_text("second", 30)
    assert ["second" in row for row in browser.script(ROWS)] == [True, False]
    browser.screenshot(SHOTS / "records-followed.png")
    assert severe(browser.console()) == []


def test_the_brokers_own_topic_is_in_words(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=records&topic=__consumer_offsets&key=lookers&look=1")
    browser.wait_for("table[aria-label=Records]", 60)
    assert f"group lookers, partition {TOPIC}-1" in browser.text("table[aria-label=Records]")
    assert "committed offset 7" in browser.text("table[aria-label=Records]")
    browser.screenshot(SHOTS / "records-in-words.png")


def test_a_phone_shows_records_too(browser: Browser, page: str) -> None:
    browser.resize(390, 844)
    try:
        browser.goto(f"{page}?view=records&topic={TOPIC}&look=1")
        browser.wait_for("table[aria-label=Records]", 60)
        browser.screenshot(SHOTS / "phone-records.png")
        assert browser.script("return document.querySelector('form').getBoundingClientRect().right <= innerWidth")
    finally:
        browser.resize(1440, 900)


def test_fields_are_hidden(browser: Browser, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", '[{"topics": "looked.*", "fields": ["card.number"]}]')
    browser.goto(f"{page}?view=records&topic={TOPIC}&limit=20&look=7")
    browser.wait_text("Fields of this topic are hidden from you.", 60)
    shown = browser.script("return document.querySelector('table[aria-label=Records]').textContent")
    assert "4111" not in shown
    assert '"order": 29' in shown


def test_a_registry_s_records_are_shown_by_their_schemas(
    browser: Browser, cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "by-schema"
    cluster.create(topic, partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number, name in ((1, b"eve"), (17, b"bob")):
        producer.produce(topic, framed(number, bytes([2 * len(name)]) + name + b"\x0c4111-1"), b"k%d" % number)
    assert producer.flush(30) == 0
    fields = [{"name": "customer", "type": "string"}, {"name": "card", "type": "string"}]
    schema = {"schema": json.dumps({"type": "record", "name": "Order", "fields": fields})}
    with registry({1: schema}) as served:
        with hosted(None, bootstrap=cluster.bootstrap, schema_registry_url=served.url) as address:
            monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", "")
            browser.goto(f"{address}/{PAGE}?view=records&topic={topic}&look=1")
            browser.wait_for("table[aria-label=Records]", 60)
            browser.click("(//table[@aria-label='Records']//tr[contains(., 'eve')]//summary)[1]")
            browser.wait_text('"card": "4111-1"')
            assert "Not decoded: schema 17 is not there." in browser.script(TEXT)
            browser.screenshot(SHOTS / "records-by-schema.png")
            monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", '[{"topics": "by-.*", "fields": ["card"]}]')
            browser.goto(f"{address}/{PAGE}?view=records&topic={topic}&look=2")
            browser.wait_text("Fields of this topic are hidden from you.", 60)
            assert "eve" in browser.script(TEXT)
            assert "4111" not in browser.script(TEXT)
        assert sorted(served.asked) == ["/schemas/ids/1", "/schemas/ids/17"]
    assert severe(browser.console()) == []


def test_a_viewer_sees_no_record(browser: Browser, filled: RealCluster) -> None:
    with hosted(None, bootstrap=filled.bootstrap, role="VIEWER") as address:
        browser.goto(f"{address}/{PAGE}?topic={TOPIC}")
        browser.wait_for("table[aria-label=Partitions]", 60)
        assert not browser.find("//a[.='Records']")
        browser.goto(f"{address}/{PAGE}?view=records&topic={TOPIC}&look=1")
        browser.wait_text("You have no permission for this", 60)
        assert "order-" not in browser.text()
