"""The page's forms over real brokers, in a browser: what they would refuse is said at the field; nothing is cut off."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from tests.support.browser import Browser, severe
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE, settled
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
TOPIC = "taken"
# Headers whose text does not fit, in each order that a click gives, and tables that have to be scrolled sideways; and
# what sticks out of a narrow screen.
CUT = """
const boxes = [...document.querySelectorAll('table')].map((table) => table.parentElement);
return [...document.querySelectorAll('th'), ...boxes].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.innerText.slice(0, 60));
"""
OUTSIDE = """
return [...document.querySelectorAll('[data-testid=logyard] :is(button, input, h1, h2, label), [role=dialog] button')]
  .filter((one) => !one.closest('table, nav') && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module")
def page(cluster: RealCluster) -> Iterator[str]:
    cluster.create(TOPIC, partitions=2)
    cluster.consume(TOPIC, 0, 0.1)
    with hosted(None, bootstrap=cluster.bootstrap, acts=True) as address:
        yield f"{address}/{PAGE}"


@pytest.mark.parametrize(
    ("filled", "field", "said"),
    [
        ({"topic": TOPIC}, "topic", "exists"),
        ({"topic": "new", "replication_factor": "9"}, "replication_factor", "available brokers"),
        ({"topic": "new", "configs": "no.such.setting=1"}, "configs", "no.such.setting"),
        pytest.param({"topic": ".."}, "topic", "'.' or '..'", marks=pytest.mark.long),
        pytest.param(
            {"topic": "new", "configs": "retention.ms=abc"}, "configs", "retention.ms", marks=pytest.mark.long
        ),
    ],
    ids=["exists", "replicas", "setting", "dots", "value"],
)
def test_what_brokers_would_refuse_is_said_at_its_field(
    browser: Browser, page: str, filled: dict[str, str], field: str, said: str
) -> None:
    browser.goto(f"{page}?view=topics")
    browser.click("//button[.='Create topic']", 60)
    for name, text in filled.items():
        browser.fill(f"[name={name}]", text)
    browser.click("//*[@role='dialog']//button[.='Review']")
    error = "return document.querySelector('[role=dialog] [name=' + arguments[0] + ']').parentElement.innerText"
    eventually(lambda: said in browser.script(error, field), f"{field}: {said}")
    browser.screenshot(SHOTS / f"refused-{field}.png")
    # A change takes the answer back, and what brokers take is reviewed.
    browser.fill("[name=topic]", "fine")
    for name in ("replication_factor", "configs"):
        browser.fill(f"[name={name}]", "1" if name == "replication_factor" else "retention.ms=1000")
    assert said not in browser.script(error, field)
    browser.click("//*[@role='dialog']//button[.='Review']")
    browser.wait_for("//*[@role='dialog']//button[.='Create it']")


def test_a_bad_setting_of_an_existing_topic_is_said_too(browser: Browser, page: str, cluster: RealCluster) -> None:
    browser.goto(f"{page}?view=topic&topic={TOPIC}")
    browser.click("//button[.='Settings' and not(@disabled)]", 60)
    browser.fill("textarea[name=configs]", "max.message.bytes=-5")
    browser.click("//*[@role='dialog']//button[.='Review']")
    browser.wait_text("max.message.bytes")
    browser.wait_for("//*[@role='dialog']//*[contains(@class, 'errorText') or contains(@class, 'error-text')]", 20)
    assert not browser.find("//button[.='Change them']")
    assert severe([entry for entry in browser.console() if "favicon" not in str(entry)]) == []


def test_a_plan_without_a_goal_asks_for_one(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=reassignments")
    browser.click("//button[.='Show the difference']", 60)
    browser.wait_text("Choose a goal.", 30)


def test_one_switch_shows_internal_topics_everywhere(browser: Browser, page: str, cluster: RealCluster) -> None:
    cluster.produce(TOPIC, [(b"k", b"v")])
    _commit(cluster)
    browser.goto(f"{page}?view=topics")
    browser.wait_for(f"//a[.='{TOPIC}']", 60)
    for view in ("Replica map", "Topics"):
        browser.click(f"//nav[@aria-label='Logyard']//a[.='{view}']")
        browser.wait_for(f"//a[.='{TOPIC}']", 60)
        assert not browser.find("//a[.='__consumer_offsets']"), view
    browser.click("//label[.='Include internal topics']")
    for view in ("Replica map", "Topics"):
        browser.click(f"//nav[@aria-label='Logyard']//a[.='{view}']")
        browser.wait_for("//a[.='__consumer_offsets']", 60)


def test_no_header_is_cut(browser: Browser, page: str, cluster: RealCluster) -> None:
    _commit(cluster)
    browser.resize(1440, 900)
    for view in ("view=topics", f"view=topic&topic={TOPIC}", "view=brokers", "view=groups", "view=broker&broker=1"):
        browser.goto(f"{page}?{view}")
        browser.wait_for("th", 60)
        settled(browser)
        heads = len(browser.find("th button"))
        assert browser.script(CUT) == [], view
        for number in range(heads):
            browser.script("document.querySelectorAll('th button')[arguments[0]].click()", number)
            assert browser.script(CUT) == [], (view, number)


@pytest.mark.long
def test_nothing_is_off_the_edge_of_a_phone(browser: Browser, page: str) -> None:
    browser.resize(390, 844)
    try:
        for view in ("", "view=topics", f"view=topic&topic={TOPIC}", "view=brokers", "view=map", "view=reassignments"):
            browser.goto(f"{page}?{view}")
            browser.wait_for("nav[aria-label=Logyard]", 60)
            settled(browser)
            browser.screenshot(SHOTS / f"phone-{view.split('&')[0].removeprefix('view=') or 'overview'}.png")
            assert browser.script(OUTSIDE) == [], view
        browser.goto(f"{page}?view=topics")
        browser.click("//button[.='Create topic']", 60)
        browser.wait_for("//*[@role='dialog']//button[.='Review']")
        browser.screenshot(SHOTS / "phone-create-topic.png")
        assert browser.script(OUTSIDE) == []
    finally:
        browser.resize(1440, 900)


def _commit(cluster: RealCluster) -> None:
    """Let the brokers make __consumer_offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "forms", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    finally:
        consumer.close()
