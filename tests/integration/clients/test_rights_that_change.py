"""Stock clients while rights come and go: patterns, internal topics, assignments, wildcards, transactional ids."""

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions, ResourceType
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition
from kafka.errors import TopicAuthorizationFailedError

from tests.support.guarded_broker import GuardedBroker as World
from tests.support.guarded_broker import read, refused
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.timeout(120)

T, G, X, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER
Op = AclOperation
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("rights")) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"


# -- consuming


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.DESCRIBE], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.WRITE], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.READ], None),
    ],
)
def test_an_assigned_partition_needs_the_topic(
    world: World, name: str, operations: list[AclOperation], told: str | None
) -> None:
    world.create(name, events=1)
    world.allow(world.acl(G, name, Op.READ), *(world.acl(T, name, each) for each in operations))
    with closing(world.consumer(name)) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        assert read(consumer, 1) == (told or [b"0"])


@pytest.mark.parametrize("on_cluster", [True, False])
def test_reading_creates_a_topic_by_the_right_to_create(world: World, name: str, on_cluster: bool) -> None:
    world.allow(world.acl(T, name, Op.READ), world.acl(G, name, Op.READ))
    create = world.acl(C, "kafka-cluster", Op.CREATE) if on_cluster else world.acl(T, name, Op.CREATE)
    with closing(KafkaConsumer(**world.kafka_python(), group_id=name, metadata_max_age_ms=500)) as consumer:
        consumer.assign([Partition(name, 0)])
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert consumer.poll(100) == {}  # kafka-python logs the refusal, and asks again
        assert name not in world.admin.list_topics(timeout=10).topics
        world.allow(create)
        eventually(lambda: (consumer.poll(100), name in world.admin.list_topics(timeout=10).topics)[1], "the topic")
    world.take_away(create)


@pytest.mark.parametrize(
    ("operation", "excludes", "sees"), [(Op.READ, True, False), (Op.READ, False, True), (Op.DESCRIBE, False, True)]
)
def test_a_pattern_meets_internal_topics_if_the_client_wants_them(
    world: World, name: str, operation: AclOperation, excludes: bool, sees: bool
) -> None:
    """The broker says which topics are internal; kafka-python leaves these out unless it is told otherwise."""
    world.create(name, events=1)
    world.allow(world.acl(T, name, Op.READ), world.acl(G, name, Op.READ))
    options = {"group_id": name, "auto_offset_reset": "earliest", "exclude_internal_topics": excludes}
    with closing(KafkaConsumer(**world.kafka_python(), **options, metadata_max_age_ms=3000)) as consumer:
        consumer.subscribe(pattern=f"^({re.escape(name)}|{OFFSETS})$")
        eventually(lambda: consumer.poll(100), "the record")
        assert consumer.subscription() == {name}  # the other may not be seen, and that is no error
        internal = world.acl(T, OFFSETS, operation)
        world.allow(internal)
        try:
            until = time.monotonic() + 5
            if operation is Op.DESCRIBE:
                with pytest.raises(TopicAuthorizationFailedError):
                    # After a rebalance; with metadata twice a second it had none that ended on a busy machine.
                    eventually(lambda: consumer.poll(1000) and False, "the refusal", 80)
            elif sees:
                eventually(lambda: consumer.poll(100) is not None and OFFSETS in consumer.subscription(), "it")
            else:
                while time.monotonic() < until:
                    consumer.poll(100)
            assert (OFFSETS in consumer.subscription()) is sees
        finally:
            world.take_away(internal)


def test_who_has_no_right_may_still_close_a_consumer(world: World, name: str) -> None:
    started = time.monotonic()
    world.consumer(name).close()
    KafkaConsumer(**world.kafka_python(), group_id=name).close()
    assert time.monotonic() - started < 20


# -- administration


def test_the_wildcard_manages_every_topic(world: World, name: str) -> None:
    world.create(name, events=1)
    bob = AdminClient(world.options("bob"))
    more, gone = [NewPartitions(name, 2)], [TopicPartition(name, 0, 1)]

    def partitions() -> str:
        return refused(bob.create_partitions(more)[name].result, 15)

    def records() -> str:
        return refused(next(iter(bob.delete_records(gone).values())).result, 15)

    def topic() -> str:
        return refused(bob.delete_topics([name])[name].result, 15)

    shown = world.acl(T, name, Op.DESCRIBE, user="bob")
    world.allow(shown)
    assert {partitions(), records(), topic()} == {"TOPIC_AUTHORIZATION_FAILED"}
    rights = [world.acl(T, "*", each, user="bob") for each in (Op.ALTER, Op.DELETE)]
    world.allow(*rights)
    bob.create_partitions(more)[name].result(20)
    assert next(iter(bob.delete_records(gone).values())).result(20).low_watermark == 1
    bob.delete_topics([name])[name].result(20)
    world.take_away(*rights, shown)


# -- producing


def test_an_idempotent_producer_loses_its_right_and_gets_it_again(world: World, name: str) -> None:
    world.create(name)
    write, describe = world.acl(T, name, Op.WRITE), world.acl(T, name, Op.DESCRIBE)
    world.allow(write)
    told: list[str | None] = []
    producer = Producer(world.options("alice", **{"enable.idempotence": True, "message.timeout.ms": 20_000}))

    def sent() -> str | None:
        try:
            producer.produce(name, b"v", on_delivery=lambda error, _: told.append(error and error.name()))
        except KafkaException as error:  # of a topic that it has been refused already
            return str(error.args[0].name())
        producer.flush(30)
        return told[-1]

    assert sent() is None
    world.take_away(write)
    world.allow(describe)
    assert [sent(), sent()] == ["TOPIC_AUTHORIZATION_FAILED"] * 2
    world.allow(write)
    eventually(lambda: sent() is None, "a record that is taken again")


@pytest.mark.parametrize("before", ["record", "offsets", "end"])
def test_an_id_that_is_taken_away_in_mid_transaction(world: World, name: str, before: str) -> None:
    world.create(name)
    of_id = world.acl(X, name, Op.WRITE)
    world.allow(world.acl(T, name, Op.WRITE), world.acl(T, name, Op.READ), world.acl(G, name, Op.READ), of_id)
    told: list[str | None] = []
    # Without a function for errors the library raises the fatal one wherever it serves callbacks, in a delivery's too.
    heard = {"error_cb": lambda _: None}
    producer = Producer(world.options("alice", **{"transactional.id": name}, **heard))
    producer.init_transactions(20)
    producer.begin_transaction()

    def produce() -> None:
        producer.produce(name, b"v", on_delivery=lambda error, _: told.append(error and error.name()))

    if before == "end":
        produce()
        assert producer.flush(20) == 0
    world.take_away(of_id)
    with closing(world.consumer(name)) as consumer:
        if before == "record":
            produce()
            error = refused(producer.commit_transaction, 15)
        elif before == "offsets":
            group = consumer.consumer_group_metadata()
            error = refused(producer.send_offsets_to_transaction, [TopicPartition(name, 0, 1)], group, 15)
        else:
            error = refused(producer.commit_transaction, 15)
        assert error == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        if before == "record":
            producer.purge()
            producer.flush(5)
            assert told[0] is not None
        if before == "offsets":
            world.allow(world.acl(G, name, Op.DESCRIBE))
            assert [one.offset for one in consumer.committed([TopicPartition(name, 0)], timeout=10)] == [-1001]
