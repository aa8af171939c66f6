"""A real cluster of three brokers over a real ZooKeeper, shared by the tests of one session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.support import zookeeper_classes
from tests.support.real_cluster import RealCluster
from tests.support.zookeeper import QUICK_JAVA

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.enable": "false",
}


@pytest.fixture(scope="session", autouse=True)
def _quick_starts() -> None:
    """What Java starts for a short time uses the quick compiler alone, as our operators' jobs do: ZooKeeper, which each
    cluster starts, then takes half of the CPU until it serves."""
    for name in ("SPARK_SUBMIT_OPTS", "MAVEN_OPTS"):
        os.environ.setdefault(name, QUICK_JAVA)
    if "JDK_JAVA_OPTIONS" not in os.environ:
        os.environ["JDK_JAVA_OPTIONS"] = zookeeper_classes.java_options()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers that every test may use but must leave alive."""
    with Running(tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RealCluster]:
    """Three brokers of the test's own, to be killed at will."""
    with Running(tmp_path / "cluster", 3) as running:
        yield running


class Running:
    def __init__(self, directory: Path, brokers: int) -> None:
        self._cluster = LocalCluster(directory)
        self._brokers = brokers

    def __enter__(self) -> RealCluster:
        self._cluster.start(Settings(self._brokers, None, None, CONFIG))
        return RealCluster(self._cluster)

    def __exit__(self, *failure: object) -> None:
        self._cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them; what takes long comes first, so that workers end at about the same time."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: not _is_large(item))


def _is_large(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("spark", "airflow"))
