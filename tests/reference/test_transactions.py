"""The tests of transactions (tests/integration) on Apache Kafka's brokers, and on a cluster of both kinds."""

from collections.abc import Iterator

import pytest

from tests.integration.test_transactions import (  # noqa: F401  # pytest runs them here too
    TRANSACTIONS,
    test_a_second_producer_fences_the_first,
    test_a_timeout_that_is_too_long_is_refused,
    test_a_transaction_over_topics_and_nothing_at_all,
    test_a_transaction_that_takes_too_long_is_aborted,
    test_aiokafka,
    test_kafka_python,
    test_offsets_move_with_the_transaction,
    test_what_is_committed_is_read_and_nothing_else,
    topic,
)
from tests.support import kafka
from tests.support.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=["KKK", "KOO"])
def yard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers of these kinds: ids and topics are spread, so either kind coordinates and leads some."""
    kafka.jars_or_skip()
    with kafka.running(tmp_path_factory.mktemp("transactions"), request.param, TRANSACTIONS) as cluster:
        yield cluster
