"""The history: what is kept and dropped, rates, who takes a sample, the route, and what is plotted."""

import json
import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import DescribingClient
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.history import slots
from logyard.plugins.logyard_ui.history.sample import (
    GROUPS_MAX,
    TOPICS_MAX,
    GroupPoint,
    Sample,
    TopicPoint,
    pack,
    unpack,
)
from logyard.plugins.logyard_ui.history.sampler import Sampler
from logyard.plugins.logyard_ui.history.series import Subject, series
from logyard.plugins.logyard_ui.history.store import SAMPLES, HistoryStore
from logyard.plugins.logyard_ui.history.taking import take
from logyard.plugins.logyard_ui.plugin import LogyardPlugin, begin_history
from logyard.plugins.logyard_ui.views.history import POINTS_MAX, read_history
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import PageClient

pytestmark = pytest.mark.airflow

T0 = TopicPartition("t", 0)
DISKS = Sample(disks={1: {"/a": (10**13, 7), "/b": (5, 4)}})
SAMPLE = Sample(
    {"t": TopicPoint(90, 50, 5_000, 15_000)}, {"g": GroupPoint({"t": (40, 50)})}, {1: 7_000, 2: 8_000}, 15_000
)


@pytest.fixture
def sessions(tmp_path: Path) -> Callable[[], AbstractContextManager[Any]]:
    engine = create_engine(f"sqlite:///{tmp_path / 'history.db'}", connect_args={"timeout": 30})
    return sessionmaker(engine).begin


@pytest.fixture
def store(sessions: Callable[[], AbstractContextManager[Any]]) -> HistoryStore:
    made = HistoryStore(sessions)
    made.prepare()
    made.prepare()  # another process does so too
    return made


def test_a_sample_is_packed_and_bounded() -> None:
    assert unpack(pack(SAMPLE)) == SAMPLE
    assert unpack(pack(DISKS)) == DISKS
    many = Sample(
        {f"topic-{n}": TopicPoint(n, n, n, n) for n in range(2_000)},
        {f"group-{n}": GroupPoint({"t": (n, n)}) for n in range(1_000)},
        {1: 5},
        2_000_000,
    )
    kept = unpack(pack(many))
    assert kept is not None
    assert (len(kept.topics), len(kept.groups), kept.bytes) == (TOPICS_MAX, GROUPS_MAX, 2_000_000)
    assert min(point.bytes for point in kept.topics.values()) == 2_000 - TOPICS_MAX
    assert len(pack(many)) < 20_000


def test_samples_of_earlier_versions_are_read() -> None:
    earlier = {"t": {"t": [90, 50, 5_000, 15_000]}, "g": {"g": {"t": [40, 50]}}, "b": {"1": 7_000, "2": 8_000}}
    data = zlib.compress(json.dumps({**earlier, "s": 15_000}).encode())
    assert unpack(data) == SAMPLE
    assert unpack(data, Subject("broker", "1").only) == replace(SAMPLE, topics={}, groups={})


ENDLESS = zlib.compress(b'{"t":{},"g":{},"b":{},"s":Infinity}')


@pytest.mark.parametrize("data", [b"", b"nonsense", pack(SAMPLE)[:-3], pack(SAMPLE)[5:], ENDLESS])
def test_damaged_bytes_are_no_sample(data: bytes) -> None:
    assert unpack(data) is None


@given(st.sets(st.integers(0, 60_000), max_size=400), st.integers(0, 60_000))
def test_what_remains_is_bounded_and_nothing_recent_is_dropped(taken: set[int], now: int) -> None:
    dropped = slots.surplus(taken, now)
    kept = taken - set(dropped)
    past = {slot for slot in kept if slot <= now}
    assert len(past) <= slots.KEPT_MAX
    assert {slot for slot in taken if now - slot < 180} <= kept
    assert all(now - slot < 35 * 24 * 60 for slot in kept)
    assert slots.surplus(kept, now) == []  # a second time drops nothing


def test_a_month_of_samples_is_thinned_out() -> None:
    kept: set[int] = set()
    for now in range(40 * 24 * 60):
        kept.add(now)
        if now % 60 == 0:
            kept -= set(slots.surplus(kept, now))
    assert len(kept) <= slots.KEPT_MAX + 60
    recent = sorted(slot for slot in kept if now - slot < 180)
    assert recent == list(range(now - 179, now + 1))
    assert min(kept) <= now - 34 * 24 * 60


def test_what_took_long_is_read_less_often() -> None:
    assert [slots.first_of_turn(slot, 6.0) for slot in range(10)] == list(range(10))
    assert [slots.first_of_turn(slot, 15.0) for slot in range(10)] == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


def _at(minute: int, end: int, done: int, *, size: int = 1_000, lag: int = 0) -> tuple[int, Sample]:
    topic = TopicPoint(end, 100, size, 3 * size)
    return minute * 60, Sample({"t": topic}, {"g": GroupPoint({"t": (done, lag)})}, {1: size}, 3 * size)


def drawn(points: list[tuple[int, Sample]], subject: Subject) -> dict[str, Any]:
    return series(iter(points), subject, points[-1][0] if points else 0)


def test_rates_are_differences_and_stop_at_gaps_and_resets() -> None:
    points = [_at(1, 0, 0), _at(2, 600, 60), _at(3, 660, 0), _at(4, 0, 120), _at(60, 6_000, 240)]
    found = drawn(points, Subject("topic", "t"))
    assert found["times"] == [60, 120, 180, 240, 3_600]
    assert found["series"]["records_in"] == [None, 10.0, 1.0, None, None]  # made anew, then a gap
    assert found["series"]["records_out"] == [None, 1.0, None, 2.0, None]  # offsets were reset
    assert found["series"]["bytes_in"] == [None, 100.0, 10.0, None, None]
    assert found["series"]["bytes"] == [3_000.0] * 5
    assert drawn(points, Subject("cluster"))["series"]["records_in"] == found["series"]["records_in"]
    assert drawn(points, Subject("broker", "1"))["series"]["bytes"] == [1_000.0] * 5
    unknown = [None] * 5
    everything = {"bytes": unknown, "disk_used": unknown, "disk_total": unknown}
    assert drawn(points, Subject("broker", "9"))["series"] == everything
    assert drawn([], Subject("cluster"))["times"] == []


def test_points_that_were_chosen_far_apart_are_no_gap() -> None:
    points = [_at(minute, minute * 60, 0) for minute in (0, 120, 240)]
    assert drawn(points, Subject("topic", "t"))["series"]["records_in"] == [None, None, None]
    found = series(points, Subject("topic", "t"), 240 * 60, 120 * 60)
    assert found["series"]["records_in"] == [None, 1.0, 1.0]


def test_an_edited_connection_makes_no_rate_of_two_clusters() -> None:
    one = [(time, replace(sample, cluster="one")) for time, sample in (_at(1, 0, 0), _at(2, 60, 60))]
    two = [(time, replace(sample, cluster="two")) for time, sample in (_at(3, 10**9, 10**9), _at(4, 10**9, 10**9))]
    assert drawn([*one, *two], Subject("cluster"))["series"]["records_in"] == [None, 1.0, None, 0.0]
    now = drawn([*one, *two], Subject("group", "g"))["now"]
    assert (now["lag_rate"], now["last_commit_s"]) == (0.0, None)
    gone = [(time, replace(sample, groups={})) for time, sample in two]
    assert drawn([*one, *gone], Subject("group", "g"))["now"] is None
    early = _at(0, 0, 0)  # of a version that kept no id
    assert drawn([early, *one], Subject("topic", "t"))["series"]["records_in"] == [None, 0.0, 1.0]


def test_only_what_is_drawn_is_unpacked() -> None:
    data = pack(replace(SAMPLE, topics={**SAMPLE.topics, "u": TopicPoint(1, 1, 1, 1)}, cluster="id"))
    for subject in (Subject("cluster"), Subject("topic", "t"), Subject("group", "g"), Subject("broker", "1")):
        whole, part = unpack(data), unpack(data, subject.only)
        assert whole is not None
        assert part is not None
        assert drawn([(60, part)], subject) == drawn([(60, whole)], subject)
    topic, broker = unpack(data, Subject("topic", "u").only), unpack(data, Subject("broker", "1").only)
    assert topic is not None
    assert broker is not None
    assert (list(topic.topics), dict(topic.groups["g"].topics)) == (["u"], {})
    assert (broker.topics, broker.groups, broker.brokers, broker.cluster) == ({}, {}, {1: 7_000, 2: 8_000}, "id")


def test_a_topic_or_group_that_appears_makes_no_rate_jump() -> None:
    (_, before), (_, after) = _at(1, 0, 0), _at(2, 60, 60)
    old = Sample(dict(after.topics) | {"old": TopicPoint(10**9, 1, 1, 1)}, {"h": GroupPoint({"t": (10**9, 0)})}, {}, 0)
    both = Sample(old.topics, dict(after.groups) | dict(old.groups), {}, 0)
    found = drawn([(60, before), (120, both), (180, after)], Subject("cluster"))["series"]
    assert (found["records_in"], found["records_out"]) == ([None, 1.0, 0.0], [None, 1.0, 0.0])


def test_when_a_group_is_caught_up() -> None:
    found = drawn([_at(1, 0, 0, lag=900), _at(2, 0, 60, lag=600), _at(3, 0, 60, lag=300)], Subject("group", "g"))
    assert found["now"] == {"at_s": 180, "lag": 300, "lag_rate": -5.0, "caught_up_s": 60, "last_commit_s": 120}
    assert found["series"] == {"records_out": [None, 1.0, 0.0], "lag": [900.0, 600.0, 300.0]}
    grows = drawn([_at(1, 0, 0, lag=0), _at(2, 0, 0, lag=60)], Subject("group", "g"))["now"]
    assert (grows["lag_rate"], grows["caught_up_s"], grows["last_commit_s"]) == (1.0, None, None)
    assert drawn([_at(1, 0, 0)], Subject("group", "g"))["now"]["lag_rate"] is None
    assert drawn([_at(1, 0, 0)], Subject("group", "other"))["now"] is None


def test_one_of_many_takes_a_sample(sessions: Callable[[], AbstractContextManager[Any]], store: HistoryStore) -> None:
    won: list[bool] = []

    def claim() -> None:
        won.append(HistoryStore(sessions).claim("c", 7))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]
    assert store.claim("other", 7)


def test_samples_are_written_read_and_thinned_out(
    sessions: Callable[[], AbstractContextManager[Any]], store: HistoryStore
) -> None:
    for slot in (5, 11, 12, 1_000):
        assert store.claim("c", slot)
        store.write("c", slot, SAMPLE)
    assert store.claim("c", 900)  # whoever claimed it died
    assert [slot for slot, _ in store.samples("c", 6)] == [11, 12, 1_000]
    assert list(store.samples("d", 0)) == []
    store.thin_out("c", 1_000)
    assert [slot for slot, _ in store.samples("c", 0)] == [5, 11, 1_000]
    with sessions() as session:
        assert 900 not in session.scalars(select(SAMPLES.c.slot)).all()
    store.forget(60_000)
    assert list(store.samples("c", 0)) == []


def test_a_cluster_is_sampled(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).create_topic(NewTopic("lone", assignment={0: [3]}))
    cluster.tick()
    cluster.group_commits["lost"] = {TopicPartition("lone", 0): 1}
    cluster.end_offsets[TopicPartition("t", 1)] = 4
    found = take(MemoryClient(cluster))
    assert found.topics["t"] == TopicPoint(13, 12, 600, 1_800)
    assert set(found.topics) == {"lone", "t", "u"}
    assert found.groups == {"readers": GroupPoint({"t": (3, 6)}), "lost": GroupPoint({"lone": (1, 0)})}
    assert found.bytes == sum(found.brokers.values()) == 1_800 + 600
    cluster.kill(3)
    for _ in range(4):
        cluster.tick()
    found = take(MemoryClient(cluster))
    assert set(found.topics) == {"t", "u"}
    assert set(found.groups) == {"readers"}  # a lag without the lost partition would be too small


def test_a_long_history_is_read_in_few_points(store: HistoryStore) -> None:
    """Each is a sample of the whole cluster: all of a month, unpacked for each viewer, took minutes and gigabytes."""
    last = 7 * 24 * 60
    for slot in range(0, last + 1, 10):
        store.claim("c", slot)
        store.write("c", slot, replace(SAMPLE, topics={"t": TopicPoint(slot * 60, 1, 1, 1)}))
    found = read_history(store, "c", last, 7 * 24, Subject("topic", "t"))
    assert len(found["times"]) <= POINTS_MAX + 2
    assert found["times"][-1] == last * 60
    assert set(found["series"]["records_in"][1:]) == {1.0}


def test_viewers_share_one_reading(viewer: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []
    real = HistoryStore.samples
    monkeypatch.setattr(HistoryStore, "samples", lambda *a: readings.append(a) or real(*a))
    for _ in range(5):
        viewer.json("/api/history?kind=topic&name=t")
    assert len(readings) == 1
    viewer.json("/api/history?kind=topic&name=u")
    viewer.json("/api/history?kind=topic&name=t&hours=2")
    assert len(readings) == 3


def test_two_samplers_share_the_slots(store: HistoryStore, cluster: MemoryCluster) -> None:
    now = 60_000 * 100
    settings = ClusterSettings(bootstrap=("memory:1",))

    def sampler() -> Sampler:
        return Sampler(store, MemoryConnector(cluster), lambda: {"c": settings}, lambda: now)

    two = [sampler(), sampler()]
    for minute in range(5):
        now = 60_000 * (100 + minute)
        for one in two:
            one.round()
            one.round()  # the same minute
        cluster.end_offsets[T0] += 60
    found = read_history(store, "c", 104, 2, Subject("topic", "t"))
    assert found["times"] == [60 * slot for slot in range(100, 105)]
    assert found["series"]["records_in"] == [None, 1.0, 1.0, 1.0, 1.0]
    assert found["problem"] is None


@pytest.mark.parametrize(("fails_after_s", "slots"), [(0, [100, 100]), (90, [101, 103])])
def test_a_cluster_that_is_down_leaves_a_gap_and_the_others_go_on(
    store: HistoryStore, cluster: MemoryCluster, fails_after_s: int, slots: list[int]
) -> None:
    """Under the time of their own sample: else their rates would be doubled in one minute and missing in the next."""
    now = 60_000 * 100
    down = MemoryCluster({1: None})
    down.running = set()

    class Both(MemoryConnector):
        def cluster(self, settings: ClusterSettings) -> MemoryClient:
            nonlocal now
            is_down = settings.bootstrap == ("down:1",)
            now += 1000 * fails_after_s * is_down
            return MemoryClient(down if is_down else cluster)

    listed = {"a": ClusterSettings(bootstrap=("down:1",)), "c": ClusterSettings(bootstrap=("memory:1",))}
    sampler = Sampler(store, Both(cluster), lambda: listed, lambda: now)
    for _ in slots:
        sampler.round()
    assert list(store.samples("a", 0)) == []
    assert [slot for slot, _ in store.samples("c", 0)] == sorted({*slots})


def test_whatever_one_cluster_leads_to_the_others_are_sampled(
    store: HistoryStore, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(MemoryConnector):
        def cluster(self, settings: ClusterSettings) -> DescribingClient:
            if settings.bootstrap == ("odd:1",):
                raise KeyError("no error of ours")
            return super().cluster(settings)

    now = 60_000 * 100
    listed = {"a": ClusterSettings(bootstrap=("odd:1",)), "c": ClusterSettings(bootstrap=("memory:1",))}
    sampler = Sampler(store, Odd(cluster), lambda: listed, lambda: now)
    for minute in range(3):
        now = 60_000 * (100 + minute)
        sampler.round()
    assert [slot for slot, _ in store.samples("c", 0)] == [100, 101, 102]
    assert sampler.problem == "the history of a is not kept: KeyError"
    assert len([one for one in caplog.records if sampler.problem in one.getMessage()]) == 1
    del listed["a"]
    now = 60_000 * 103
    sampler.round()
    assert sampler.problem == ""


def test_without_a_table_the_page_says_so(sessions: Callable[[], AbstractContextManager[Any]]) -> None:
    bare = HistoryStore(sessions)
    with pytest.raises(DBAPIError):
        bare.claim("c", 1)
    found = read_history(bare, "c", 100, 1, Subject("cluster"))
    assert (found["times"], found["problem"]) == ([], "no history is kept yet")


def test_the_route_and_its_bounds(viewer: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert viewer.json("/api/history?kind=topic&name=t")["times"] == []
    for query in ("kind=broker&name=x", "kind=broker", "kind=other", "hours=0", "hours=9999"):
        assert viewer.answer(f"/api/history?{query}").status_code == 422, query
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_HISTORY", "False")
    assert viewer.json("/api/history")["problem"] == "no history is kept: [logyard] page_history is off"


def test_it_begins_with_the_api_server_and_stands_in_no_requests_way(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr("logyard.plugins.logyard_ui.history.process.Sampler.start", lambda _: begun.append(1))
    app = object()
    assert begin_history(app) is app
    assert begun == [1]
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_HISTORY", "False")
    begin_history(app)
    assert begun == [1]
    assert [one["middleware"] for one in LogyardPlugin.fastapi_root_middlewares] == [begin_history]


def test_what_is_plotted_and_said(pure: Any) -> None:
    data = {
        "series": {
            "records_in": [2, 1],
            "records_out": [None, 3],
            "lag": [5, 4],
            "bytes": [None, None],
        }
    }
    now = {"lag": 300, "lag_rate": -5.0, "caught_up_s": 60, "last_commit_s": None}
    asked = (
        f"[m.plots({json.dumps(data)}).map((one) => [one.title, one.lines]), m.short(0.25), m.short(12345),"
        f" m.short(3.2e6), m.short(null), m.lagNow(null), m.lagNow({json.dumps(now)}),"
        f" m.lagNow({json.dumps(now | {'lag_rate': 2.0})}), m.lagNow({json.dumps(now | {'lag_rate': 0})}),"
        f" m.lagNow({json.dumps(now | {'lag': 0})}), m.lagNow({json.dumps(now | {'lag_rate': None})})]"
    )
    still = "Its offsets have not moved in this time."
    assert pure("history_plots.js", asked) == [
        [["Records", [["in", [2, 1]]]], ["Lag", [["records", [5, 4]]]]],
        *("0.3", "12.3 k", "3.2 M", "–", ""),
        f"300 records behind, 5 fewer each second: caught up in 60 s. {still}",
        f"300 records behind, 2 more each second: it does not catch up. {still}",
        f"300 records behind, and it stays so. {still}",
        f"Caught up. {still}",
        f"300 records behind. {still}",
    ]
