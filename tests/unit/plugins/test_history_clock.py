"""Samples of a cluster on a machine whose clock is set."""

from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from logyard.admin.settings import ClusterSettings
from logyard.plugins.logyard_ui.history.sampler import KEPT_ALL_S, Sampler
from logyard.plugins.logyard_ui.history.store import HistoryStore
from tests.support.memory_clients import MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock

YEAR_S = 365 * 86_400.0


def test_a_clock_that_is_set_for_a_while_drops_no_history(cluster: MemoryCluster, tmp_path: Path) -> None:
    """It is a year later for some minutes, and all that is kept would be too old."""
    store, clock, ahead_s = (
        HistoryStore(sessionmaker(create_engine(f"sqlite:///{tmp_path / 'h.db'}")).begin),
        Clock(),
        0.0,
    )
    settings = ClusterSettings(bootstrap=("memory:1",))

    def wall_ms() -> int:
        return round((clock.now + ahead_s) * 1000)

    sampler = Sampler(store, MemoryConnector(cluster), lambda: {"c": settings}, wall_ms, clock)

    def kept_after(minutes: int) -> set[int]:
        for _ in range(minutes):
            clock.now += 60
            sampler.round()
        return {slot for slot, _ in store.samples("c", 0)}

    clock.now = 100 * 3600.0
    before = kept_after(20)
    assert len(before) == 20
    ahead_s = YEAR_S
    assert before < kept_after(20)
    ahead_s = 0.0
    assert before < kept_after(20)
    ahead_s = YEAR_S  # it is a year later indeed
    assert not before & kept_after(round(KEPT_ALL_S / 60) + 60)
