"""The tests of transactions (tests/integration) on Apache Kafka's brokers, and on a cluster of both kinds."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from tests.integration.test_transaction_zombies import (  # noqa: F401  # and these
    test_a_zombie_that_asks_for_an_epoch_ends_what_is_open_and_gets_none,
    test_producers_that_vanish_half_way_through_a_request,
    zombie_beside_its_successor,
)
from tests.integration.test_transactions import (  # noqa: F401  # pytest runs them here too
    TRANSACTIONS,
    test_a_copy_is_exactly_once_whoever_is_killed,
    test_a_second_producer_fences_the_first,
    test_a_timeout_that_is_too_long_is_refused,
    test_a_transaction_over_topics_and_nothing_at_all,
    test_a_transaction_that_takes_too_long_is_aborted,
    test_aiokafka,
    test_an_administrator_fences_a_producer,
    test_kafka_python,
    test_offsets_move_with_the_transaction,
    test_one_request_in_flight_over_a_single_broker,
    test_what_is_committed_is_read_and_nothing_else,
    topic,
)
from tests.reference.both_kinds import BothKinds
from tests.reference.steps import Side, Step, both
from tests.support import kafka
from tests.support.copying import coordinator
from tests.support.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=["KKK", "KOO"])
def yard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers of these kinds: ids and topics are spread, so either kind coordinates and leads some."""
    kafka.jars_or_skip()
    with kafka.running(tmp_path_factory.mktemp("transactions"), request.param, TRANSACTIONS) as cluster:
        yield cluster


@pytest.fixture(params=["KOO-O", "KOO-K", "KKO-O", "KKO-K"])
def own_yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealCluster]:
    """Three brokers of these kinds, to be killed at will; the coordinator of all transactions is of the last kind.

    Killed coordinators are followed by the next broker, which is of the other kind.
    """
    kafka.jars_or_skip()
    kinds, _, coordinating = request.param.partition("-")
    with (
        kafka.running(tmp_path / "cluster", kinds, TRANSACTIONS) as cluster,
        closing(BothKinds(cluster, kinds)) as both,
    ):
        (first, *_), (second, *_) = both.of(coordinating), both.of("K" if coordinating == "O" else "O")
        placed = [first, second, *({0, 1, 2} - {first, second})]
        keys = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        both.admin.create_topic(
            NewTopic("__transaction_state", assignment=dict.fromkeys(range(4), placed), configs=keys)
        )
        assert coordinator(cluster) == first
        yield cluster


def test_a_zombie_is_refused_at_every_request(yard: RealCluster, topic: str) -> None:  # noqa: F811
    """With the same codes. In Kafka a refused TxnOffsetCommit takes what is pending of its producer id along, and so
    the offset of its successor is lost though that commits; with a group on a broker of ours it stays."""
    zombie_beside_its_successor(yard, topic, commits_beside=False)


def test_javas_producer_and_kafkas_tools(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Java's transactional producer, its committed reader and kafka-transactions: on ours as on Apache Kafka."""
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("java")
    to = "--bootstrap-server {bootstrap}"
    placed = "0:1:2,1:2:0,2:0:1,0:2:1 --config cleanup.policy=compact"
    produced = (
        "--topic t --num-records 3000 --record-size 50 --throughput -1 --transactional-id perf "
        "--transaction-duration-ms 200 --producer-props bootstrap.servers={bootstrap} acks=all"
    )
    committed = "--isolation-level read_committed --from-beginning --timeout-ms 15000"
    steps = [
        Step("topics", f"{to} --create --topic __transaction_state --replica-assignment {placed}", quiet=True),
        Step("topics", f"{to} --create --topic t --replica-assignment 0:1:2,1:2:0"),
        Step("producer-perf-test", produced, figures=True, quiet=True),
        Step("transactions", f"{to} list", figures=True),
        Step("transactions", f"{to} describe --transactional-id perf", figures=True),
        Step("transactions", f"{to} describe --transactional-id none", refused=True),
        Step("transactions", f"{to} describe-producers --topic t --partition 0", figures=True),
        Step("transactions", f"{to} find-hanging --topic t --max-transaction-timeout 0"),
        Step("transactions", f"{to} find-hanging --broker-id 1"),
        Step("transactions", f"{to} abort --topic t --partition 0 --start-offset 5", refused=True),
        Step("console-consumer", f"{to} --topic t {committed} --property print.value=false", figures=True),
    ]
    with (
        kafka.running(home / "ours", "OOO", TRANSACTIONS) as ours,
        kafka.running(home / "kafka", "KKK", TRANSACTIONS) as theirs,
    ):
        sides = []
        for name, cluster in (("ours", ours), ("kafka", theirs)):
            (home / f"{name}-files").mkdir()
            sides.append(Side(name, cluster, home / f"{name}-files"))
        differences = both(sides, steps)
    assert not differences, "\n\n".join(differences)
