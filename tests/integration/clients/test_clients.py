"""Stock clients, unmodified, against three real brokers."""

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewPartitions, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from tests.support.real_cluster import RealCluster, eventually


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_librdkafka_round_trip_and_identical_replicas(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 3, 3)
    sent = [(str(n).encode(), f"value {n}".encode()) for n in range(5000)]
    acknowledged = cluster.produce(topic, sent, **{"compression.type": "lz4"})
    assert len(acknowledged) == 5000
    read = cluster.consume(topic, 5000)
    assert {(m.partition(), m.value()): m.offset() for m in read} == acknowledged
    for partition in range(3):
        digests = eventually(
            lambda p=partition: (d := cluster.digests(topic, p)) and len(set(d.values())) == 1 and d, "equal replicas"
        )
        assert len(digests) == 3


def test_group_of_two_shares_partitions_and_resumes(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 4, 3)
    # With keys, so that every partition has records: a member without any has no offset to commit.
    cluster.produce(topic, [(str(n).encode(), str(n).encode()) for n in range(400)])
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "enable.auto.commit": False,
    }
    first, second = Consumer(conf), Consumer(conf)
    seen: list[bytes] = []
    for member in (first, second):
        member.subscribe([topic])

    def both_assigned() -> bool:
        for member in (first, second):
            seen.extend(m.value() for m in member.consume(100, 0.2) if m.error() is None)
        parts = [{tp.partition for tp in member.assignment()} for member in (first, second)]
        return parts[0] | parts[1] == {0, 1, 2, 3} and not parts[0] & parts[1] and all(parts)

    eventually(both_assigned, "two members share four partitions", 60)

    def all_read() -> bool:
        both_assigned()
        # A partition without records has no position (a negative one).
        positions = [max(tp.offset, 0) for member in (first, second) for tp in member.position(member.assignment())]
        return len(set(seen)) == 400 and sum(positions) == 400

    eventually(all_read, "everything read")
    for member in (first, second):
        member.commit(asynchronous=False)
        member.close()
    cluster.produce(topic, [(None, b"later")])
    third = Consumer(conf)
    third.subscribe([topic])
    resumed = eventually(lambda: [m.value() for m in third.consume(10, 1.0) if m.error() is None], "resumed", 60)
    third.close()
    assert resumed == [b"later"]


def test_kafka_python_produces_and_consumes(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 2, 3)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    futures = [producer.send(topic, str(n).encode(), key=b"k") for n in range(100)]
    offsets = [future.get(timeout=20).offset for future in futures]
    producer.close()
    assert offsets == list(range(100))
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=f"kp-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=15_000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == 100:
            break
    consumer.close()
    assert values == [str(n).encode() for n in range(100)]


async def test_aiokafka_produces_and_consumes_in_a_group(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 2, 3)
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        for n in range(50):
            await producer.send_and_wait(topic, str(n).encode(), partition=n % 2)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=f"aio-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        values = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(50)]
    finally:
        await consumer.stop()
    assert sorted(values) == sorted(str(n).encode() for n in range(50))


def test_admin_describes_alters_grows_and_deletes(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 2, 3, retention_ms="86400000")
    admin = cluster.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(20)
    assert config["retention.ms"].value == "86400000"
    assert config["cleanup.policy"].value == "delete"
    changed = ConfigResource(
        ResourceType.TOPIC, topic, set_config={"retention.ms": "1000", "max.message.bytes": "5000"}
    )
    admin.alter_configs([changed])[changed].result(20)
    eventually(
        lambda: admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "1000", "altered"
    )
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    eventually(lambda: len(cluster.describe(topic)) == 5, "five partitions")
    admin.delete_topics([topic], operation_timeout=20)[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "topic gone")
    eventually(lambda: not cluster.replica_dirs(topic, 0), "files gone")


def test_bad_config_is_refused_with_its_name(cluster: RealCluster, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        cluster.create(topic, 1, 1, retention_ms="soon")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in refused.value.args[0].str()


def test_compacted_topic_refuses_a_record_without_a_key(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 1, 3, cleanup_policy="compact")
    assert cluster.produce(topic, [(None, b"keyless")]) == {}
    assert len(cluster.produce(topic, [(b"k", b"keyed")])) == 1


def test_topic_is_created_by_use(cluster: RealCluster, topic: str) -> None:
    acknowledged = eventually(lambda: cluster.produce(topic, [(b"k", b"v")]), "auto-created")
    assert len(acknowledged) == 1
