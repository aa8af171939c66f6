"""Three brokers of Apache Kafka in ZooKeeper mode, for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.integration.conftest import CONFIG
from tests.support import kafka
from tests.support.real_cluster import RealCluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with kafka.running(tmp_path_factory.mktemp("kafka") / "cluster", "KKK", CONFIG) as running:
        yield running
