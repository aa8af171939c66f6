"""Transactions of stock clients, on three real brokers: committed as a whole or not at all, whoever dies meanwhile."""

import asyncio
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as TheirPlace

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.integration.conftest import CONFIG
from tests.support.copying import BATCH, FIND_COORDINATOR, copy_while_they_are_killed, frozen, killed, pair_of
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import WAIT_S, Copier, read, transactional, values
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

TRANSACTIONS = {
    **CONFIG,
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
INIT_PRODUCER_ID = 22


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers that look for timed-out transactions often; tests leave them alive."""
    yield from started(tmp_path_factory.mktemp("transactions") / "cluster")


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[RealCluster]:
    """The same, to be killed at will."""
    yield from started(tmp_path / "cluster")


def started(directory: Path, config: Mapping[str, str] = TRANSACTIONS) -> Iterator[RealCluster]:
    cluster = LocalCluster(directory)
    try:
        cluster.start(Settings(3, None, None, dict(config)))
        yield RealCluster(cluster)
    finally:
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


@pytest.fixture
def topic(yard: RealCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    yard.create(name, 3, 3, min_insync_replicas="2")
    return name


def produce(producer: Producer, topic: str, prefix: str, count: int = 30) -> list[bytes]:
    """Send to every partition in turn, and wait until all is written."""
    sent = [f"{prefix}-{number}".encode() for number in range(count)]
    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(WAIT_S) == 0
    return sent


def test_what_is_committed_is_read_and_nothing_else(yard: RealCluster, topic: str) -> None:
    producer = transactional(yard.bootstrap, f"id-{topic}")
    kept: list[bytes] = []
    for number in range(6):
        producer.begin_transaction()
        sent = produce(producer, topic, f"n{number}")
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            kept += sent
    assert values(yard.bootstrap, topic) == Counter(kept)
    assert len(values(yard.bootstrap, topic, committed=False)) == 6 * 30
    # An open transaction holds back what others commit behind it.
    producer.begin_transaction()
    time.sleep(0.01)
    opened_at = int(time.time() * 1000)
    opened = produce(producer, topic, "open")
    other = transactional(yard.bootstrap, f"other-{topic}")
    other.begin_transaction()
    behind = produce(other, topic, "behind")
    other.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter(kept)
    told = [where(yard, topic, isolation, opened_at) for isolation in ("read_committed", "read_uncommitted")]
    assert told[0].end < told[1].end
    assert (told[0].by_time, told[1].by_time) == (-1, told[0].end), "the first offset that is not decided"
    producer.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter([*kept, *opened, *behind])
    again = where(yard, topic, "read_committed", opened_at)
    assert (again.end, again.by_time) == (told[1].end + 1, told[0].end), "its marker is the last"


class Place(NamedTuple):
    """What ListOffsets tells of partition 0: its end, and the first offset of that time."""

    end: int
    by_time: int


def where(yard: RealCluster, topic: str, isolation: str, ms: int) -> Place:
    conf = {"bootstrap.servers": yard.bootstrap, "group.id": "unused", "isolation.level": isolation}
    with closing(Consumer(conf)) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S, cached=False)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, ms)], WAIT_S)
        return Place(end, found.offset)


def test_a_transaction_over_topics_and_nothing_at_all(yard: RealCluster, topic: str) -> None:
    second = f"{topic}-second"
    yard.create(second, 3, 3)
    producer = transactional(yard.bootstrap, f"id-{topic}")
    producer.begin_transaction()
    producer.commit_transaction(WAIT_S)  # nothing is in it
    producer.begin_transaction()
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    sent = {name: produce(producer, name, "v") for name in (topic, second)}
    producer.commit_transaction(WAIT_S)
    for name, expected in sent.items():
        assert values(yard.bootstrap, name) == Counter(expected)


def test_offsets_move_with_the_transaction(yard: RealCluster, topic: str) -> None:
    source = f"{topic}-source"
    yard.create(source, 1, 3)
    yard.produce(source, [(None, str(n).encode()) for n in range(20)])
    producer = transactional(yard.bootstrap, f"id-{topic}")
    conf = {"bootstrap.servers": yard.bootstrap, "group.id": f"g-{topic}", "enable.auto.commit": False}
    with closing(Consumer(conf)) as consumer:
        place = TopicPartition(source, 0)
        for offset, ends, expected in ((5, "abort", -1001), (7, "commit", 7), (12, "abort", 7), (20, "commit", 20)):
            producer.begin_transaction()
            produce(producer, topic, f"upto{offset}", 3)
            places = [TopicPartition(source, 0, offset, f"{ends} {offset}")]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            getattr(producer, f"{ends}_transaction")(WAIT_S)
            (found,) = consumer.committed([place], WAIT_S)
            assert (found.offset, found.metadata) == (expected, None if expected < 0 else f"commit {expected}")
        assert len(values(yard.bootstrap, topic)) == 6


@pytest.mark.parametrize("step", ["begin", "send", "offsets", "commit"])
def test_a_second_producer_fences_the_first(yard: RealCluster, topic: str, step: str) -> None:
    """Whatever the first does next."""
    first = transactional(yard.bootstrap, f"id-{topic}")
    first.begin_transaction()
    produce(first, topic, "lost")
    if step == "begin":
        first.abort_transaction(WAIT_S)
    second = transactional(yard.bootstrap, f"id-{topic}")  # aborts what the first has begun
    if step == "begin":
        first.begin_transaction()
    if step in ("begin", "send"):
        first.produce(topic, b"late", partition=0)
    assert ends_fenced(first, TopicPartition(topic, 0, 1) if step == "offsets" else None)
    second.begin_transaction()
    kept = produce(second, topic, "kept")
    second.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter(kept)


def ends_fenced(producer: Producer, offset: TopicPartition | None = None) -> bool:
    """Whether a producer that commits hears that it is fenced. If it is told to abort, it hears it then."""
    with closing(Consumer({"bootstrap.servers": "unused:1", "group.id": "g"})) as consumer:
        member = consumer.consumer_group_metadata()
    offsets = [] if offset is None else [offset]
    steps: list[Callable[[], None]] = [
        *([partial(producer.send_offsets_to_transaction, offsets, member, WAIT_S)] if offsets else []),
        partial(producer.commit_transaction, WAIT_S),
        partial(producer.abort_transaction, WAIT_S),
    ]
    error = None
    for step in steps:
        try:
            step()
        except KafkaException as problem:
            error = problem.args[0]
            if not error.txn_requires_abort():
                break
    return error is not None and bool(error.fatal()) and error.name() == "_FENCED"


@pytest.mark.parametrize("committed", [True, False])
def test_an_administrator_fences_a_producer(yard: RealCluster, topic: str, committed: bool) -> None:
    """As `fenceProducers` of Kafka's admin client does: InitProducerId for the id, without a pair."""
    producer = transactional(yard.bootstrap, f"id-{topic}")
    producer.begin_transaction()
    sent = produce(producer, topic, "before")
    if committed:
        producer.commit_transaction(WAIT_S)
    key = {"key": f"id-{topic}", "key_type": 1}
    coordinating = yard.address(ask(yard.bootstrap.split(",")[0], FIND_COORDINATOR, 2, key).node_id)
    fields = {"transactional_id": key["key"], "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    eventually(lambda: ask(coordinating, INIT_PRODUCER_ID, 4, fields).error_code == 0, "it is fenced")
    if committed:
        producer.begin_transaction()
        producer.produce(topic, b"after", partition=0)
    assert ends_fenced(producer)
    assert values(yard.bootstrap, topic) == Counter(sent if committed else [])


def test_one_request_in_flight_over_a_single_broker(yard: RealCluster, topic: str) -> None:
    yard.create(f"{topic}-1", 1, 1)
    conf = {"max_in_flight_requests_per_connection": 1, "batch_num_messages": 10}
    producer = transactional(yard.bootstrap, f"id-{topic}", **conf)
    for name, ends in (("lost", "abort"), ("kept", "commit"), ("lost-too", "abort"), ("kept-too", "commit")):
        producer.begin_transaction()
        for number in range(100):
            producer.produce(f"{topic}-1", f"{name}-{number}".encode())
        getattr(producer, f"{ends}_transaction")(WAIT_S)
    kept = [f"{name}-{n}".encode() for name in ("kept", "kept-too") for n in range(100)]
    assert [m.value() for m in read(yard.bootstrap, f"{topic}-1")] == kept


def test_a_producer_that_lost_a_batch_goes_on_in_a_new_epoch(own_yard: RealCluster) -> None:
    """KIP-360: it aborts, and asks for the next epoch with its pair."""
    own_yard.create("lone", 1, 1)
    own_yard.create("safe", 2, 3, min_insync_replicas="2")
    producer = transactional(own_yard.bootstrap, "bumped", message_timeout_ms=4_000, transaction_timeout_ms=300_000)
    producer.begin_transaction()
    for topic in ("lone", "safe"):
        producer.produce(topic, b"first", partition=0)
    producer.commit_transaction(WAIT_S)
    pair = pair_of(own_yard, "bumped")
    broker = int(own_yard.describe("lone")[0].leader)
    own_yard.cluster.stop_broker(broker, signal.SIGKILL)
    refused: list[object] = []
    producer.begin_transaction()
    producer.produce("lone", b"lost", partition=0, on_delivery=lambda error, _: refused.append(error))
    producer.produce("safe", b"lost", partition=0)
    eventually(lambda: (producer.poll(0.1), refused)[1], "the batch is given up")
    assert refused[0] is not None
    own_yard.cluster.start_broker(broker)
    eventually(lambda: producer.abort_transaction(WAIT_S) is None, "it is aborted")
    producer.begin_transaction()
    for topic in ("lone", "safe"):
        producer.produce(topic, b"second", partition=0)
    producer.commit_transaction(WAIT_S)
    assert pair_of(own_yard, "bumped") == (pair[0], pair[1] + 1)
    for topic in ("lone", "safe"):
        assert [m.value() for m in read(own_yard.bootstrap, topic)] == [b"first", b"second"]


def test_a_transaction_that_takes_too_long_is_aborted(yard: RealCluster, topic: str) -> None:
    slow = transactional(yard.bootstrap, f"id-{topic}", transaction_timeout_ms=2_000)
    slow.begin_transaction()
    produce(slow, topic, "late")
    yard.produce(topic, [(None, b"after")])
    eventually(lambda: values(yard.bootstrap, topic) == Counter([b"after"]), "what is behind it is read", 30)
    with pytest.raises(KafkaException) as failed:
        slow.commit_transaction(WAIT_S)
    assert not failed.value.args[0].retriable()
    again = transactional(yard.bootstrap, f"id-{topic}")
    again.begin_transaction()
    kept = produce(again, topic, "kept")
    again.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter([b"after", *kept])


def test_a_timeout_that_is_too_long_is_refused(yard: RealCluster, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": yard.bootstrap, "transactional.id": topic, "transaction.timeout.ms": 900_001}
    )
    with pytest.raises(KafkaException) as failed:
        producer.init_transactions(WAIT_S)
    assert failed.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_aiokafka(yard: RealCluster, topic: str) -> None:
    async def main() -> tuple[list[bytes], int | None]:
        group = f"g-{topic}"
        place = AioPlace(topic, 0)
        async with AIOKafkaProducer(bootstrap_servers=yard.bootstrap, transactional_id=f"aio-{topic}") as producer:
            async with producer.transaction():
                for number in range(10):
                    await producer.send_and_wait(topic, b"kept-%d" % number, partition=number % 3)
                await producer.send_offsets_to_transaction({place: 4}, group)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped", partition=0)
            await producer.abort_transaction()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=yard.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            committed = await consumer.committed(place)
            await consumer.seek_to_beginning()
            found = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(10)]
            return found, committed

    found, committed = asyncio.run(main())
    assert sorted(found) == sorted(b"kept-%d" % number for number in range(10))
    assert committed == 4
    assert len(values(yard.bootstrap, topic, committed=False)) == 11


def test_kafka_python(yard: RealCluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=yard.bootstrap, transactional_id=f"py-{topic}", acks="all")
    try:
        producer.init_transactions()
        for name, ends in (("kept", "commit"), ("dropped", "abort")):
            producer.begin_transaction()
            for number in range(9):
                producer.send(topic, f"{name}-{number}".encode(), partition=number % 3)
            producer.flush(30)
            offsets = {TheirPlace(topic, 0): OffsetAndMetadata(3 if name == "kept" else 6, "", -1)}
            producer.send_offsets_to_transaction(offsets, f"g-{topic}")
            getattr(producer, f"{ends}_transaction")()
    finally:
        producer.close()
    assert sorted(values(yard.bootstrap, topic)) == sorted(f"kept-{number}".encode() for number in range(9))
    with closing(Consumer({"bootstrap.servers": yard.bootstrap, "group.id": f"g-{topic}"})) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset == 3


def test_a_copy_is_exactly_once_whoever_is_killed(own_yard: RealCluster) -> None:
    copy_while_they_are_killed(own_yard, Copier(own_yard.bootstrap, "source", "target", batch=BATCH))


@pytest.mark.long
def test_a_copy_is_exactly_once_while_brokers_are_restarted(own_yard: RealCluster) -> None:
    copier = Copier(own_yard.bootstrap, "source", "target", batch=BATCH)
    copy_while_they_are_killed(own_yard, copier, partial(killed, number=signal.SIGTERM))


@pytest.mark.long
def test_a_copy_is_exactly_once_whoever_stands_still(own_yard: RealCluster) -> None:
    """Coordinator and leader wake up when others have taken their places, with requests that were on their way."""
    copy_while_they_are_killed(own_yard, Copier(own_yard.bootstrap, "source", "target", batch=BATCH), frozen)
