"""When a directory is full, by its history; the samples that this needs; what a sample keeps of the disks."""

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from logyard.plugins.logyard_ui.history.disk_forecast import DAY_S, GROWS, STEADY, TOO_LITTLE, forecasts
from logyard.plugins.logyard_ui.history.sample import Sample
from logyard.plugins.logyard_ui.history.series import Subject, series
from logyard.plugins.logyard_ui.history.store import HistoryStore
from logyard.plugins.logyard_ui.history.taking import take
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

GIB = 1 << 30
TOTAL = 1000 * GIB


def points(*used: int, total: int = TOTAL, every_s: int = 3600) -> list[tuple[int, Sample]]:
    return [(n * every_s, Sample(disks={1: {"/a": (total, total - each)}})) for n, each in enumerate(used)]


def test_a_disk_that_grows_is_full_when_the_line_says() -> None:
    dice = random.Random(1)
    grown = [n * GIB + dice.randint(0, GIB // 50) for n in range(49)]
    [found] = forecasts(points(*grown))
    assert (found.broker, found.path, found.state, found.span_s) == (1, "/a", GROWS, 48 * 3600)
    assert found.per_day == pytest.approx(24 * GIB, rel=0.01)
    assert found.full_in_s == pytest.approx((1000 - 48) * 3600, rel=0.01)


def test_too_little_history_is_said() -> None:
    assert [one.state for one in forecasts(points(1, 2, 3, 4, 5))] == [TOO_LITTLE]
    assert [one.state for one in forecasts(points(*range(50), every_s=60))] == [TOO_LITTLE]
    [one] = forecasts(points(1))
    assert (one.state, one.span_s, one.full_in_s) == (TOO_LITTLE, 0, None)
    assert forecasts([]) == []
    assert forecasts([(0, Sample())]) == []


@pytest.mark.parametrize("used", [[5 * GIB] * 10, [n * GIB for n in range(20, 0, -1)], list(range(100, 120))])
def test_what_does_not_fill_up_is_said(used: list[int]) -> None:
    [found] = forecasts(points(*used))
    assert (found.state, found.full_in_s) == (STEADY, None)


def test_a_disk_of_another_size_begins_anew() -> None:
    before, after = points(*[n * GIB for n in range(20)]), points(*[GIB] * 3, total=2 * TOTAL)
    moved = [(20 * 3600 + time, sample) for time, sample in after]
    [found] = forecasts([*before, *moved])
    assert (found.state, found.total, found.span_s) == (TOO_LITTLE, 2 * TOTAL, 2 * 3600)


def test_gaps_and_directories_that_are_gone_do_no_harm() -> None:
    grown = points(*[n * GIB for n in range(24)])
    grown[5] = (grown[5][0], Sample())
    grown[7] = (grown[7][0], Sample(disks={1: {"/gone": (9, 9)}}))
    [found] = forecasts(grown)
    assert (found.state, found.per_day) == (GROWS, 24 * GIB)
    full = points(*[TOTAL - 6 + n for n in range(7)])
    assert forecasts(full)[0].full_in_s == 0


def test_another_clusters_disk_of_the_same_size_counts_for_nothing() -> None:
    """The connection was edited: its broker 1 is another machine."""
    before = [(time, replace(sample, cluster="one")) for time, sample in points(*range(10))]
    moved = [(10**6 + time, replace(sample, cluster="two")) for time, sample in points(*range(500, 503))]
    assert [one.state for one in forecasts([*before, *moved])] == [TOO_LITTLE]


def test_a_brokers_disks_are_plotted_once_a_volume() -> None:
    seen = [(0, Sample(disks={1: {"/a": (1000, 400), "/b": (1000, 400), "/c": (500, 100)}})), (60, Sample())]
    found = series(seen, Subject("broker", "1"), 60)["series"]
    assert (found["disk_used"], found["disk_total"]) == ([1000.0, None], [1500.0, None])


def test_a_sample_has_the_disks_that_brokers_tell_of() -> None:
    cluster = MemoryCluster({1: None, 2: None})
    cluster.disks = {(1, "/a"): (1000, 400), (2, "/b"): (10, 0)}
    assert take(MemoryClient(cluster)).disks == {1: {"/a": (1000, 400)}, 2: {"/b": (10, 0)}}


def test_one_sample_of_each_window_is_read_and_the_last(tmp_path: Path) -> None:
    sessions: Callable[[], AbstractContextManager[Any]] = sessionmaker(
        create_engine(f"sqlite:///{tmp_path / 'history.db'}")
    ).begin
    store = HistoryStore(sessions)
    store.prepare()
    for slot in (3, 10, 11, 19, 20, 25, 26):
        assert store.claim("c", slot)
        store.write("c", slot, Sample(bytes=slot))
    store.claim("c", 27)  # without a sample
    assert [(slot, sample.bytes) for slot, sample in store.samples("c", 5, 10)] == [(10, 10), (20, 20), (26, 26)]
    assert list(store.samples("other", 0, 10)) == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (TOO_LITTLE, "/a: 1.0 GiB free; too little history to say when it is full."),
        (STEADY, "/a: 1.0 GiB free; it does not fill up, over the last 3.0 days."),
        (GROWS, "/a: full in 2.0 days at 512 MiB a day, over the last 3.0 days; 1.0 GiB free."),
    ],
)
def test_it_is_told_in_words(pure: Any, state: str, said: str) -> None:
    one = {"path": "/a", "free": GIB, "state": state, "span_s": 3 * DAY_S, "per_day": GIB // 2, "full_in_s": 2 * DAY_S}
    assert pure("history_plots.js", f"m.diskForecast({json.dumps(one)})") == said
