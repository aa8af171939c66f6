"""Plots of a month of history in a browser: of the cluster, a topic, a group, a broker; light, dark, on a phone."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.history.sample import GroupPoint, Sample, TopicPoint
from logyard.plugins.logyard_ui.history.slots import slot_of, surplus
from logyard.plugins.logyard_ui.history.store import HistoryStore
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import pictures
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

DAYS = 33
FIGURES = "return [...document.querySelectorAll('[data-testid=history] figure')].map((one) => one.ariaLabel)"
# How many points of the canvas are not transparent: something is drawn.
DRAWN = """
return [...document.querySelectorAll('[data-testid=history] canvas')].map((canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let drawn = 0;
  for (let at = 3; at < data.length; at += 4) drawn += data[at] > 0;
  return drawn;
});
"""


def _filled(place: Path) -> HistoryStore:
    """Traffic in waves of a day; a group that fell behind and is catching up now."""
    open_session = sessionmaker(create_engine(f"sqlite:///{place}")).begin
    store = HistoryStore(open_session)
    store.prepare()
    with open_session() as session:  # one commit for all: each would wait for the disk
        _fill(HistoryStore(lambda: nullcontext(session)))
    return store


def _fill(store: HistoryStore) -> None:
    now = slot_of(time.time_ns() // 1_000_000)
    every = range(now - DAYS * 24 * 60, now + 1)
    dropped = set(surplus(every, now))
    end = 0
    for slot in every:
        end += round(6_000 * (1.2 + math.sin(slot / 1440 * 2 * math.pi)))
        if slot not in dropped and not now - 40 < slot < now - 30:  # nobody looked for ten minutes
            lag = max(0, 90_000 - 2_000 * (slot - now + 30)) if slot > now - 45 else 500
            topics = {"orders": TopicPoint(end, 1_000_000, 3 << 30, 9 << 30)}
            sample = Sample(topics, {"billing": GroupPoint({"orders": (end - lag, lag)})}, {1: 9 << 30}, 9 << 30)
            store.claim("logyard_default", slot)
            store.write("logyard_default", slot, sample)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = MemoryCluster({1: None})
    MemoryClient(made).create_topic(NewTopic("orders", 1, 1))
    made.tick()
    made.group_commits["billing"] = {TopicPartition("orders", 0): 3}
    with hosted(made, history=_filled(tmp_path_factory.mktemp("history") / "history.db")) as address:
        yield f"{address}/{PAGE}"


def _all_drawn(browser: Browser, canvases: int) -> bool:
    """Whether there are so many canvases, and each has something on it."""
    drawn = browser.script(DRAWN)
    return len(drawn) == canvases and all(points > 1_000 for points in drawn)


def test_a_group_is_said_to_catch_up(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?group=billing")
    browser.wait_for("[data-testid=history] canvas", 60)
    assert browser.script(FIGURES) == ["Records", "Lag"]
    assert "fewer each second: caught up in" in browser.text("[data-testid=history]")
    assert _all_drawn(browser, 2)
    assert severe(browser.console()) == []


def test_the_time_is_in_the_address(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?topic=orders&hours=720")
    browser.wait_for("[data-testid=history] canvas", 60)
    assert browser.script(FIGURES) == ["Records", "Bytes, about", "Lag", "Bytes on disk, all replicas"]
    assert browser.script("return document.querySelector('[data-testid=history] select').value") == "720"
    assert _all_drawn(browser, 4)
    browser.goto(f"{page}?view=broker&broker=1")
    browser.wait_for("[data-testid=history] canvas", 60)
    assert browser.script(FIGURES) == ["Bytes on disk, all replicas"]
    assert severe(browser.console()) == []


def test_pictures_of_the_history(browser: Browser, page: str) -> None:
    pictures(browser, f"{page}?topic=orders&hours=24", "history", "[data-testid=history] canvas")
