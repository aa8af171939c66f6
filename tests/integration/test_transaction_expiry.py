"""Producers that brokers have forgotten: of a partition, of a transactional id; their clients go on (facts §17.10)."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.test_transactions import TRANSACTIONS, started
from tests.support.copying import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, FIND_COORDINATOR, pair_of
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import WAIT_S, read, transactional
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(300)

FORGETFUL = {
    **TRANSACTIONS,
    "transactional.id.expiration.ms": "12000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.check.interval.ms": "500",
}
SOON_MS, NEVER_MS = 3_000, 3_600_000
UNKNOWN_ID = 105


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers; a transactional id expires after twelve seconds, a producer of a partition as each test says."""
    yield from started(tmp_path_factory.mktemp("expiry") / "cluster", FORGETFUL)


def expire_producers_after(yard: RealCluster, ms: int) -> None:
    """Set `producer.id.expiration.ms` while the brokers run."""
    entry = ConfigEntry("producer.id.expiration.ms", str(ms), incremental_operation=AlterConfigOpType.SET)
    admin = yard.admin()
    for broker in range(3):  # librdkafka takes one broker a request
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def producers(yard: RealCluster, topic: str) -> list[tuple[int, int]]:
    """The producers that partition 0's leader knows, with their epochs."""
    leader = int(yard.describe(topic)[0].leader)
    fields = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    (found,) = ask(yard.address(leader), DESCRIBE_PRODUCERS, 0, fields).topics[0].partitions
    assert found.error_code == 0
    return [(one.producer_id, one.producer_epoch) for one in found.active_producers]


def is_unknown(yard: RealCluster, transactional_id: str) -> bool:
    fields = {"key": transactional_id, "key_type": 1}
    node = ask(yard.bootstrap.split(",")[0], FIND_COORDINATOR, 2, fields).node_id
    (found,) = ask(
        yard.address(node), DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}
    ).transaction_states
    return bool(found.error_code == UNKNOWN_ID)


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.long
def test_a_producer_without_transactions_goes_on(forgetful: RealCluster) -> None:
    """And a changed time counts at once, and after a restart."""
    expire_producers_after(forgetful, SOON_MS)
    forgetful.create("plain", 1, 3, min_insync_replicas="2")
    producer = Producer({"bootstrap.servers": forgetful.bootstrap, "enable.idempotence": True})
    send(producer, "plain", b"1")
    (known,) = producers(forgetful, "plain")
    eventually(lambda: not producers(forgetful, "plain"), "it is forgotten")
    expire_producers_after(forgetful, NEVER_MS)
    send(producer, "plain", b"2")
    assert producers(forgetful, "plain") == [known]
    time.sleep(SOON_MS / 1000 + 1.5)
    assert producers(forgetful, "plain") == [known]
    expire_producers_after(forgetful, SOON_MS)
    leader = int(forgetful.describe("plain")[0].leader)
    forgetful.cluster.stop_broker(leader)
    forgetful.cluster.start_broker(leader)
    eventually(lambda: forgetful.isrs_full("plain"), "it is back")
    eventually(lambda: not producers(forgetful, "plain"), "it is forgotten")
    assert [message.value() for message in read(forgetful.bootstrap, "plain")] == [b"1", b"2"]


def test_a_transaction_after_its_id_was_forgotten(forgetful: RealCluster) -> None:
    """The partition still knows the producer. Its client has to abort, and gets a new producer id."""
    expire_producers_after(forgetful, NEVER_MS)
    forgetful.create("kept", 1, 3, min_insync_replicas="2")
    producer = transactional(forgetful.bootstrap, "forgotten")
    producer.begin_transaction()
    send(producer, "kept", b"first")
    producer.abort_transaction(WAIT_S)
    (known,) = producers(forgetful, "kept")
    eventually(lambda: is_unknown(forgetful, "forgotten"), "the id is forgotten")
    assert producers(forgetful, "kept") == [known]
    producer.begin_transaction()
    producer.produce("kept", b"refused", partition=0)
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(WAIT_S)
    assert failed.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    send(producer, "kept", b"second", b"third")
    producer.commit_transaction(WAIT_S)
    assert [message.value() for message in read(forgetful.bootstrap, "kept")] == [b"second", b"third"]
    assert pair_of(forgetful, "forgotten") in producers(forgetful, "kept")


def test_a_transaction_after_the_partition_forgot_its_producer(forgetful: RealCluster) -> None:
    """The coordinator still knows the id: the next client of it gets the same producer id, and the next epoch."""
    expire_producers_after(forgetful, SOON_MS)
    forgetful.create("forgetting", 1, 3, min_insync_replicas="2")
    producer = transactional(forgetful.bootstrap, "remembered")
    producer.begin_transaction()
    send(producer, "forgetting", b"first")
    (known,) = producers(forgetful, "forgetting")
    producer.abort_transaction(WAIT_S)
    eventually(lambda: not producers(forgetful, "forgetting"), "it is forgotten")
    assert not is_unknown(forgetful, "remembered")
    before = pair_of(forgetful, "remembered")
    producer = transactional(forgetful.bootstrap, "remembered")
    producer.begin_transaction()
    send(producer, "forgetting", b"second", b"third")
    producer.commit_transaction(WAIT_S)
    assert producers(forgetful, "forgetting") == [(known[0], before[1] + 1)]
    assert [message.value() for message in read(forgetful.bootstrap, "forgetting")] == [b"second", b"third"]
