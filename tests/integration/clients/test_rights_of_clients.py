"""What a stock client sees of ACLs on a broker of ours, case by case as Kafka's AuthorizerIntegrationTest has them.

docs/security-cases.md names Kafka's case for each test.
"""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions, NewTopic, ResourceType
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as Partition
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from tests.support.guarded_broker import GuardedBroker as World
from tests.support.guarded_broker import read, refused
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.timeout(120)

T, G, X, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER
Op = AclOperation


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("rights")) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"


def sent(world: World, topic: str, user: str = "alice", more: dict[str, Any] | None = None) -> str | None:
    """Produce one record; returns the error's name, None if it was taken."""
    told: list[str | None] = []
    producer = Producer(world.options(user, **{"message.timeout.ms": 15_000, **(more or {})}))
    producer.produce(topic, b"v", on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(20)
    return told[0]


# -- producing


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.DESCRIBE], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.READ], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.WRITE], None),
        ([Op.ALL], None),
    ],
)
def test_producing(world: World, name: str, operations: list[AclOperation], told: str | None) -> None:
    world.create(name)
    if operations:
        world.allow(*(world.acl(T, name, each) for each in operations))
    assert sent(world, name) == told


def test_prefixes_the_wildcard_and_a_deny(world: World, name: str) -> None:
    for topic in (f"{name}-a", f"{name}-b"):
        world.create(topic)
    world.allow(world.acl(T, name, Op.WRITE, prefixed=True), world.acl(T, f"{name}-b", Op.WRITE, deny=True))
    assert [sent(world, f"{name}-{each}") for each in "ab"] == [None, "TOPIC_AUTHORIZATION_FAILED"]
    everything = world.acl(T, "*", Op.WRITE, user="bob")
    world.allow(everything)
    assert sent(world, f"{name}-b", "bob") is None
    world.take_away(everything)
    assert sent(world, f"{name}-b", "bob") == "TOPIC_AUTHORIZATION_FAILED"


def test_hosts(world: World, name: str) -> None:
    world.create(name)
    world.allow(world.acl(T, name, Op.WRITE, host="10.1.1.1"))
    assert sent(world, name) == "TOPIC_AUTHORIZATION_FAILED"
    world.allow(world.acl(T, name, Op.WRITE, host="127.0.0.1"))
    assert sent(world, name) is None
    world.allow(world.acl(T, name, Op.WRITE, host="127.0.0.1", deny=True))
    assert sent(world, name) == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("on_cluster", [True, False])
def test_a_topic_that_does_not_exist_needs_create(world: World, name: str, on_cluster: bool) -> None:
    world.allow(world.acl(T, name, Op.WRITE))
    told = sent(world, name, more={"message.timeout.ms": 4000, "allow.auto.create.topics": True})
    assert told in ("TOPIC_AUTHORIZATION_FAILED", "_MSG_TIMED_OUT", "_UNKNOWN_TOPIC")
    assert name not in world.admin.list_topics(timeout=10).topics
    create = world.acl(C, "kafka-cluster", Op.CREATE) if on_cluster else world.acl(T, name, Op.CREATE)
    world.allow(create)
    assert sent(world, name) is None
    world.take_away(create)


def test_an_idempotent_producer_needs_write_on_some_topic(world: World, name: str) -> None:
    world.create(name)
    told: list[str] = []
    options = {"enable.idempotence": True, "message.timeout.ms": 20_000}
    producer = Producer(world.options("bob", **options, error_cb=lambda error: told.append(error.name())))
    outcome: list[str | None] = []
    producer.produce(name, b"v", on_delivery=lambda error, _: outcome.append(error and error.name()))
    producer.poll(1)
    # Kafka's clients try again, so that a right which comes later is enough; librdkafka gives up.
    eventually(lambda: producer.poll(0.1) is not None and (told or outcome), "an answer")
    assert {*told, *outcome} & {"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"}
    write = world.acl(T, name, Op.WRITE, user="bob")
    world.allow(write)
    assert sent(world, name, "bob", options) is None
    world.take_away(write)


# -- consuming


@pytest.mark.parametrize(
    ("on_topic", "on_group", "told"),
    [
        ([Op.READ], [Op.READ], None),
        ([], [Op.READ], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.DESCRIBE], [Op.READ], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.WRITE], [Op.READ], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.READ], [], "GROUP_AUTHORIZATION_FAILED"),
        ([Op.READ], [Op.DESCRIBE], "GROUP_AUTHORIZATION_FAILED"),
    ],
)
def test_consuming_in_a_group(
    world: World, name: str, on_topic: list[AclOperation], on_group: list[AclOperation], told: str | None
) -> None:
    world.create(name, events=3)
    acls = [*(world.acl(T, name, each) for each in on_topic), *(world.acl(G, name, each) for each in on_group)]
    if acls:
        world.allow(*acls)
    with closing(world.consumer(name)) as consumer:
        consumer.subscribe([name])
        assert read(consumer, 3) == (told or [b"0", b"1", b"2"])


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.DESCRIBE], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.WRITE], "TOPIC_AUTHORIZATION_FAILED"),
        ([Op.READ], None),
    ],
)
def test_consuming_by_itself(world: World, name: str, operations: list[AclOperation], told: str | None) -> None:
    """Without a group, which librdkafka cannot do: no right on a group is needed."""
    world.create(name, events=3)
    if operations:
        world.allow(*(world.acl(T, name, each) for each in operations))
    with closing(
        KafkaConsumer(**world.kafka_python(), group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    ) as consumer:
        consumer.assign([Partition(name, 0)])
        if told is None:
            assert [message.value for _, message in zip(range(3), consumer, strict=False)] == [b"0", b"1", b"2"]
        else:
            # It needs Describe, and where there is none, kafka-python says so here only.
            ask = consumer.position if not operations else lambda *_, **__: next(consumer)
            with pytest.raises(TopicAuthorizationFailedError):
                ask(Partition(name, 0), timeout_ms=20_000)


def test_offsets_need_the_group(world: World, name: str) -> None:
    world.create(name, events=1)
    world.allow(world.acl(T, name, Op.READ))
    at = Partition(name, 0)
    # librdkafka looks for the coordinator until its time is over, and does not say why.
    with closing(KafkaConsumer(**world.kafka_python(), group_id=name, enable_auto_commit=False)) as consumer:
        consumer.assign([at])
        with pytest.raises(GroupAuthorizationFailedError):
            consumer.committed(at)
        describe, may_read = world.acl(G, name, Op.DESCRIBE), world.acl(G, name, Op.READ)
        world.allow(describe)
        assert consumer.committed(at) is None
        with pytest.raises(GroupAuthorizationFailedError):
            consumer.commit({at: OffsetAndMetadata(1, "", -1)})
        world.allow(may_read)
        consumer.commit({at: OffsetAndMetadata(1, "", -1)})
        assert consumer.committed(at) == 1
        world.take_away(world.acl(T, name, Op.READ))
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.commit({at: OffsetAndMetadata(1, "", -1)})


def test_a_pattern_meets_only_what_may_be_described(world: World, name: str) -> None:
    """What may not be described is no error; what may only be described is one."""
    for topic in ("read", "hidden", "shown"):
        world.create(f"{name}-{topic}", events=1)
    world.allow(world.acl(T, f"{name}-read", Op.READ), world.acl(G, name, Op.READ))
    with closing(world.consumer(name, more={"topic.metadata.refresh.interval.ms": 500})) as consumer:
        consumer.subscribe([f"^{name}-.*"])
        assert read(consumer, 1) == [b"0"]
        assert read(consumer, 1, timeout_s=3) == []
        world.allow(world.acl(T, f"{name}-shown", Op.DESCRIBE))
        # The group is balanced anew, so that what was read may come again before the error.
        assert read(consumer, 100) == "TOPIC_AUTHORIZATION_FAILED"


def test_internal_topics_need_rights_too(world: World, name: str) -> None:
    with closing(world.consumer(name, "admin")) as consumer:
        consumer.committed([TopicPartition("none", 0)], timeout=10)  # so that it is there
    with closing(KafkaConsumer(**world.kafka_python(), group_id=None)) as consumer:
        assert "__consumer_offsets" not in consumer.topics()
        consumer.assign([Partition("__consumer_offsets", 0)])
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.position(Partition("__consumer_offsets", 0), timeout_ms=10_000)
        may_read = world.acl(T, "__consumer_offsets", Op.READ)
        world.allow(may_read)
        assert consumer.position(Partition("__consumer_offsets", 0), timeout_ms=20_000) >= 0
        world.take_away(may_read)


# -- transactions


def test_a_transactional_producer_needs_its_id(world: World, name: str) -> None:
    world.create(name)
    world.allow(world.acl(T, name, Op.WRITE))
    told = refused(Producer(world.options("alice", **{"transactional.id": name})).init_transactions, 15)
    assert told == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    world.allow(world.acl(X, name, Op.DESCRIBE))  # enough to find the coordinator
    told = refused(Producer(world.options("alice", **{"transactional.id": name})).init_transactions, 15)
    assert told == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    world.allow(world.acl(X, name, Op.WRITE))
    producer = Producer(world.options("alice", **{"transactional.id": name}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"v")
    producer.commit_transaction(20)


def test_a_refused_topic_can_be_aborted_and_the_producer_goes_on(world: World, name: str) -> None:
    for topic in (name, f"{name}-closed"):
        world.create(topic)
    world.allow(world.acl(T, name, Op.WRITE), world.acl(X, name, Op.WRITE))
    producer = Producer(world.options("alice", **{"transactional.id": name}))
    producer.init_transactions(20)
    producer.begin_transaction()
    told: list[str | None] = []
    producer.produce(f"{name}-closed", b"v", on_delivery=lambda error, _: told.append(error and error.name()))
    assert refused(producer.commit_transaction, 20)
    producer.abort_transaction(20)
    assert told
    assert told[0] is not None
    producer.begin_transaction()
    producer.produce(name, b"later")
    producer.commit_transaction(20)
    with closing(world.consumer(name, "admin", {"isolation.level": "read_committed"})) as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert read(consumer, 1) == [b"later"]


def test_offsets_in_a_transaction_need_the_group(world: World, name: str) -> None:
    world.create(name, events=1)
    acls = [world.acl(T, name, Op.READ), world.acl(T, name, Op.WRITE), world.acl(X, name, Op.WRITE)]
    world.allow(*acls)
    producer = Producer(world.options("alice", **{"transactional.id": name}))
    producer.init_transactions(20)
    with closing(world.consumer(name)) as consumer:
        group = consumer.consumer_group_metadata()
        for rights in ([], [world.acl(G, name, Op.DESCRIBE)]):
            if rights:
                world.allow(*rights)
            producer.begin_transaction()
            at = [TopicPartition(name, 0, 1)]
            told = refused(producer.send_offsets_to_transaction, at, group, 15)
            assert told == "GROUP_AUTHORIZATION_FAILED"
            producer.abort_transaction(20)
        world.allow(world.acl(G, name, Op.READ))
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(name, 0, 1)], group, 20)
        producer.commit_transaction(20)
        assert [one.offset for one in consumer.committed([TopicPartition(name, 0)], timeout=10)] == [1]


def test_an_id_that_is_taken_away_ends_no_transaction(world: World, name: str) -> None:
    world.create(name)
    of_id = world.acl(X, name, Op.WRITE)
    world.allow(world.acl(T, name, Op.WRITE), of_id)
    producer = Producer(world.options("alice", **{"transactional.id": name}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"v")
    assert producer.flush(20) == 0
    world.take_away(of_id)
    assert refused(producer.commit_transaction, 15) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


# -- administration


def test_topics_are_managed_by_rights_on_them(world: World, name: str) -> None:
    alice = AdminClient(world.options("alice"))
    topic = f"{name}-mine"
    create = {topic: NewTopic(topic, 1, 1)}
    assert refused(alice.create_topics(list(create.values()))[topic].result, 15) == "TOPIC_AUTHORIZATION_FAILED"
    world.allow(*(world.acl(T, name, each, prefixed=True) for each in (Op.CREATE, Op.DESCRIBE)))
    alice.create_topics(list(create.values()))[topic].result(20)
    more = [NewPartitions(topic, 2)]
    assert refused(alice.create_partitions(more)[topic].result, 15) == "TOPIC_AUTHORIZATION_FAILED"
    gone = [TopicPartition(topic, 0, 0)]
    assert refused(next(iter(alice.delete_records(gone).values())).result, 15) == "TOPIC_AUTHORIZATION_FAILED"
    assert refused(alice.delete_topics([topic])[topic].result, 15) == "TOPIC_AUTHORIZATION_FAILED"
    world.allow(*(world.acl(T, name, each, prefixed=True) for each in (Op.ALTER, Op.DELETE)))
    alice.create_partitions(more)[topic].result(20)
    next(iter(alice.delete_records(gone).values())).result(20)
    alice.delete_topics([topic])[topic].result(20)


def test_groups_are_seen_and_deleted_by_rights_on_them(world: World, name: str) -> None:
    world.create(name, events=1)
    with closing(world.consumer(name, "admin")) as consumer:
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    alice = AdminClient(world.options("alice"))

    def listed() -> list[str]:
        return [group.group_id for group in alice.list_consumer_groups().result(20).valid]

    def committed() -> Any:
        wanted = [ConsumerGroupTopicPartitions(name)]
        return alice.list_consumer_group_offsets(wanted)[name].result(15)

    assert name not in listed()
    assert refused(alice.describe_consumer_groups([name])[name].result, 15) == "GROUP_AUTHORIZATION_FAILED"
    assert refused(committed) == "GROUP_AUTHORIZATION_FAILED"
    assert refused(alice.delete_consumer_groups([name])[name].result, 15) == "GROUP_AUTHORIZATION_FAILED"
    world.allow(world.acl(G, name, Op.DESCRIBE))
    assert name in listed()
    assert alice.describe_consumer_groups([name])[name].result(20).group_id == name
    # All offsets of the group, but not of topics that may not be described.
    assert committed().topic_partitions == []
    world.allow(world.acl(T, name, Op.DESCRIBE))
    assert [(one.topic, one.offset) for one in committed().topic_partitions] == [(name, 1)]
    assert refused(alice.delete_consumer_groups([name])[name].result, 15) == "GROUP_AUTHORIZATION_FAILED"
    world.allow(world.acl(G, name, Op.DELETE))
    alice.delete_consumer_groups([name])[name].result(20)
