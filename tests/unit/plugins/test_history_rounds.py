"""Rounds of samples that take minutes, those in which something fails, and what is drawn of what they leave."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import sessionmaker

from logyard.admin.ports import DescribingClient
from logyard.admin.settings import ClusterSettings
from logyard.plugins.logyard_ui.history import slots
from logyard.plugins.logyard_ui.history.sample import Sample, TopicPoint
from logyard.plugins.logyard_ui.history.sampler import Sampler
from logyard.plugins.logyard_ui.history.series import Subject, series
from logyard.plugins.logyard_ui.history.store import SAMPLES, HistoryStore
from tests.support.memory_clients import MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock

ONE = {"c": ClusterSettings(bootstrap=("memory:1",))}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return create_engine(f"sqlite:///{tmp_path / 'h.db'}")


@pytest.fixture
def store(engine: Engine) -> HistoryStore:
    return HistoryStore(sessionmaker(engine).begin)


class Slow(MemoryConnector):
    """A cluster whose look takes so long."""

    def __init__(self, cluster: MemoryCluster, clock: Clock, seconds: float) -> None:
        super().__init__(cluster)
        self._clock, self._seconds = clock, seconds

    def cluster(self, settings: ClusterSettings) -> DescribingClient:
        self._clock.now += self._seconds
        return super().cluster(settings)


def sampler(store: HistoryStore, connector: MemoryConnector, clock: Clock) -> Sampler:
    return Sampler(store, connector, lambda: ONE, lambda: round(clock.now * 1000), clock)


def taken(store: HistoryStore) -> list[int]:
    return [slot for slot, _ in store.samples("c", 0)]


@pytest.mark.parametrize("first", [1000, 1001])
def test_whenever_rounds_begin_old_samples_are_thinned_out(
    store: HistoryStore, cluster: MemoryCluster, first: int
) -> None:
    """None of those that begin in odd minutes begins in the tenth."""
    clock = Clock()
    one = sampler(store, MemoryConnector(cluster), clock)
    for minute in range(first, first + 8 * 60, 2):
        clock.now = minute * 60.0
        one.round()
    found = taken(store)
    old = [slot for slot in found if minute - slot >= 180 + 10]
    assert len(found) - len(old) > 80
    assert len(old) > 20
    assert len({slot // 10 for slot in old}) == len(old)


@pytest.mark.parametrize("first", [999, 1000, 1001])
def test_a_slow_cluster_has_its_turn_whenever_rounds_begin(
    store: HistoryStore, cluster: MemoryCluster, first: int
) -> None:
    """15 s: one look in three minutes; here every round begins in the same one of the three."""
    clock = Clock()
    one = sampler(store, Slow(cluster, clock, 15.0), clock)
    for minute in range(first, first + 30, 3):
        clock.now = minute * 60.0
        one.round()
    assert taken(store) == list(range(first, first + 30, 3))


def test_servers_share_the_turns_of_a_slow_cluster(store: HistoryStore, cluster: MemoryCluster) -> None:
    """Each knows how long it takes once it has looked; then they look once in three minutes together."""
    clock = Clock()
    two = [sampler(store, Slow(cluster, clock, 15.0), clock) for _ in range(2)]
    for minute in range(999, 1030):
        clock.now = minute * 60.0
        two[minute % 2].round()
    found = [slot for slot in taken(store) if slot > 1002]
    assert found
    assert len({slots.first_of_turn(slot, 15.0) for slot in found}) == len(found) == 9


def test_what_cannot_be_sampled_is_thinned_out_all_the_same(store: HistoryStore, cluster: MemoryCluster) -> None:
    class Odd(MemoryConnector):
        def cluster(self, settings: ClusterSettings) -> DescribingClient:
            raise KeyError("no error of ours")

    clock = Clock()
    well, odd = sampler(store, MemoryConnector(cluster), clock), sampler(store, Odd(cluster), clock)

    def rounds(one: Sampler, first: int, minutes: int) -> None:
        for minute in range(first, first + minutes):
            clock.now = minute * 60.0
            one.round()

    rounds(well, 1000, 60)
    assert len(taken(store)) == 60
    rounds(odd, 1060, 260)
    assert len(taken(store)) == 6


def test_a_table_that_is_dropped_is_made_anew(engine: Engine, store: HistoryStore, cluster: MemoryCluster) -> None:
    clock = Clock()
    one = sampler(store, MemoryConnector(cluster), clock)

    def round_at(minute: int) -> str:
        clock.now = minute * 60.0
        one.round()
        return one.problem

    assert round_at(1000) == ""
    SAMPLES.drop(engine)
    assert "is not kept" in round_at(1001)
    assert round_at(1002) == ""
    assert taken(store) == [1002]


def test_a_sample_that_took_long_is_written_though_its_claim_was_dropped(store: HistoryStore) -> None:
    store.prepare()
    assert store.claim("c", 10)
    store.thin_out("c", 20)  # by another server, which takes whoever has claimed it for dead
    store.write("c", 10, Sample())
    assert list(store.samples("c", 0)) == [(10, Sample())]


def test_one_sample_is_claimed_in_a_turn_of_several_slots(store: HistoryStore) -> None:
    store.prepare()
    assert store.claim("c", 12, 10)
    assert not store.claim("c", 13, 10)
    assert not store.claim("c", 12, 12)
    assert store.claim("c", 20, 20)
    assert store.claim("d", 13, 10)


def test_where_samples_are_thinned_out_is_no_gap() -> None:
    kept: set[int] = set()
    for now in range(3 * 24 * 60):
        kept.add(now)
        if now % 10 == 0:
            kept -= set(slots.surplus(kept, now))
        if now > 3 * 24 * 60 - 60:  # the border of two tiers is at another place of the hour
            points = [(minute * 60, Sample({"t": TopicPoint(minute * 60, 1, 1, 1)})) for minute in sorted(kept)]
            found = series(points, Subject("topic", "t"), now * 60)["series"]["records_in"]
            assert set(found[1:]) == {1.0}
