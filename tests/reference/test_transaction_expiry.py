"""The tests of forgotten producers (tests/integration) on Apache Kafka's brokers."""

from collections.abc import Iterator

import pytest

from tests.integration.test_transaction_expiry import (  # noqa: F401  # pytest runs them here too
    FORGETFUL,
    test_a_producer_without_transactions_goes_on,
    test_a_transaction_after_its_id_was_forgotten,
    test_a_transaction_after_the_partition_forgot_its_producer,
)
from tests.support import kafka
from tests.support.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    kafka.jars_or_skip()
    with kafka.running(tmp_path_factory.mktemp("expiry"), "KKK", FORGETFUL) as cluster:
        yield cluster
