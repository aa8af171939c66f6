"""The page's history in PostgreSQL: the table is made once, a slot is taken once, whoever asks at the same moment."""

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from sqlalchemy import create_engine, select
from sqlalchemy.orm import sessionmaker

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import ClusterSettings
from logyard.plugins.logyard_ui.history.sample import GroupPoint, Sample, TopicPoint
from logyard.plugins.logyard_ui.history.sampler import Sampler
from logyard.plugins.logyard_ui.history.store import SAMPLES, HistoryStore
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.needed import lacks
from tests.support.postgres import running_postgres

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(180)]

SAMPLE = Sample({"t": TopicPoint(9, 5, 5_000, 15_000)}, {"g": GroupPoint({"t": (4, 5)})}, {1: 7_000}, 15_000)
SERVERS, SLOTS, MINUTE_MS = 3, 25, 60_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_postgres() as found:
        if found is None:
            lacks("PostgreSQL is not installed (Debian: postgresql)")
        yield found


@pytest.fixture
def sessions(address: str) -> Iterator[Callable[[], Any]]:
    engine = create_engine(address)
    SAMPLES.drop(engine, checkfirst=True)
    yield sessionmaker(engine).begin
    engine.dispose()


def test_samples_are_written_read_and_thinned_out(sessions: Callable[[], Any]) -> None:
    store = HistoryStore(sessions)
    store.prepare()
    store.prepare()
    for slot in (5, 11, 12, 1_000):
        assert store.claim("c", slot)
        assert not store.claim("c", slot)
        store.write("c", slot, SAMPLE)
    assert store.claim("c", 900)  # whoever claimed it died
    assert list(store.samples("c", 6)) == [(11, SAMPLE), (12, SAMPLE), (1_000, SAMPLE)]
    assert [slot for slot, _ in store.samples("c", 0, 10)] == [5, 11, 1_000]
    assert store.thin_out("c", 1_000) == 1
    with sessions() as session:
        assert sorted(session.scalars(select(SAMPLES.c.slot))) == [5, 11, 1_000]
    store.forget(60_000)
    assert list(store.samples("c", 0)) == []


def _serve(address: str, ready: Any, taken: Any, problems: Any) -> None:
    """One API server's sampler, as fast as it can: it makes the table, and looks at every slot."""
    cluster = MemoryCluster({1: None})
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: (1,)}))
    client.snapshot()
    now = [0]
    store = HistoryStore(sessionmaker(create_engine(address)).begin)
    listing = {name: ClusterSettings(bootstrap=("memory:1",)) for name in ("east", "west")}
    sampler = Sampler(store, MemoryConnector(cluster), lambda: listing, lambda: now[0])
    claimed, claim = 0, store.claim

    def counting(conn_id: str, slot: int, first: int | None = None) -> bool:
        nonlocal claimed
        won = claim(conn_id, slot, first)
        claimed += won
        return won

    store.claim = counting  # type: ignore[method-assign]
    try:
        for slot in range(SLOTS):
            now[0] = slot * MINUTE_MS
            ready.wait(60)
            sampler.round()
        taken.put(claimed)
    except Exception as problem:
        problems.put(repr(problem))
        ready.abort()
        taken.put(0)


def test_several_servers_take_each_sample_once(address: str, sessions: Callable[[], Any]) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready, taken, problems = spawn.Barrier(SERVERS), spawn.Queue(), spawn.Queue()
    servers = [spawn.Process(target=_serve, args=(address, ready, taken, problems)) for _ in range(SERVERS)]
    for server in servers:
        server.start()
    shares = [taken.get(timeout=120) for _ in servers]
    for server in servers:
        server.join(30)
    assert problems.empty(), problems.get()
    assert sum(shares) == 2 * SLOTS
    store = HistoryStore(sessions)
    for name in ("east", "west"):
        assert [slot for slot, _ in store.samples(name, 0)] == list(range(SLOTS))
