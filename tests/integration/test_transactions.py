"""Transactions of stock clients, on three real brokers: committed as a whole or not at all, whoever dies meanwhile."""

import asyncio
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

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
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import WAIT_S, AnyCopier, Copier, read, transactional, values
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

TRANSACTIONS = {
    **CONFIG,
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# `make proof` copies a million.
COPIED = 1_000_000 if os.environ.get("LOGYARD_EXPLORE") else 20_000
BATCH = max(COPIED // 100, 200)
FIND_COORDINATOR = 10
WRITTEN = ("source", "target", "__transaction_state", "__consumer_offsets")


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers that look for timed-out transactions often; tests leave them alive."""
    yield from started(tmp_path_factory.mktemp("transactions") / "cluster")


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[RealCluster]:
    """The same, to be killed at will."""
    yield from started(tmp_path / "cluster")


def started(directory: Path) -> Iterator[RealCluster]:
    cluster = LocalCluster(directory)
    try:
        cluster.start(Settings(3, None, None, TRANSACTIONS))
        yield RealCluster(cluster)
    finally:
        cluster.stop()


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
    opened = produce(producer, topic, "open")
    other = transactional(yard.bootstrap, f"other-{topic}")
    other.begin_transaction()
    behind = produce(other, topic, "behind")
    other.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter(kept)
    producer.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter([*kept, *opened, *behind])


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
            places = [TopicPartition(source, 0, offset)]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            getattr(producer, f"{ends}_transaction")(WAIT_S)
            assert consumer.committed([place], WAIT_S)[0].offset == expected
        assert len(values(yard.bootstrap, topic)) == 6


def test_a_second_producer_fences_the_first(yard: RealCluster, topic: str) -> None:
    first = transactional(yard.bootstrap, f"id-{topic}")
    first.begin_transaction()
    produce(first, topic, "lost")
    second = transactional(yard.bootstrap, f"id-{topic}")  # aborts what the first has begun
    with pytest.raises(KafkaException) as failed:
        first.commit_transaction(WAIT_S)
    assert failed.value.args[0].fatal()
    assert failed.value.args[0].name() == "_FENCED"
    second.begin_transaction()
    kept = produce(second, topic, "kept")
    second.commit_transaction(WAIT_S)
    assert values(yard.bootstrap, topic) == Counter(kept)


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


def copy_while_they_are_killed(own_yard: RealCluster, copier: AnyCopier) -> None:
    """kill -9 of a leader, of the coordinator and of the controller, in turn, while a copier copies: exactly once."""
    for name in ("source", "target"):
        own_yard.create(name, 4, 3, min_insync_replicas="2")
    sent = [(str(n).encode(), f"value-{n}".encode()) for n in range(COPIED)]
    copier.start()
    patience_s = 120 + COPIED // 2000

    def awaited(look: Callable[[], object], what: str) -> None:
        try:
            eventually(look, what, patience_s)
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {copier.log[-20:]}") from None

    try:
        written = 0
        # A part of the records for each: somebody is killed while that part is copied.
        for part, victim in enumerate((leader_of_target, coordinator, controller)):
            so_far = copier.transactions
            written += len(own_yard.produce("source", sent[part::3], **{"queue.buffering.max.messages": 2_000_000}))
            awaited(partial(has_copied_more, copier, so_far), "the copy runs")
            broker = victim(own_yard)
            own_yard.cluster.stop_broker(broker, signal.SIGKILL)
            time.sleep(2)
            own_yard.cluster.start_broker(broker)
            awaited(lambda: all(map(own_yard.isrs_full, WRITTEN)), f"{victim.__name__} {broker} is back")
            awaited(partial(has_copied, own_yard, written), f"all is copied after {victim.__name__}")
    finally:
        copier.stop()
    assert written == COPIED
    found = Counter(message.value() for message in read(own_yard.bootstrap, "target", timeout_s=patience_s))
    missing, twice = {value for _, value in sent} - set(found), {value for value, n in found.items() if n > 1}
    assert (len(missing), len(twice), len(found)) == (0, 0, COPIED), (
        sorted(missing)[:5],
        sorted(twice)[:5],
        copier.log,
    )


def has_copied_more(copier: AnyCopier, transactions: int) -> bool:
    return copier.transactions > transactions


def has_copied(yard: RealCluster, count: int) -> bool:
    """Whether the copier's committed offsets are behind so many records."""
    with closing(Consumer({"bootstrap.servers": yard.bootstrap, "group.id": "copy-source"})) as consumer:
        found = consumer.committed([TopicPartition("source", p) for p in range(4)], WAIT_S)
        return bool(sum(max(place.offset, 0) for place in found) == count)


def leader_of_target(yard: RealCluster) -> int:
    return int(yard.describe("target")[0].leader)


def controller(yard: RealCluster) -> int:
    return int(eventually(lambda: (c := yard.controller()[0]) >= 0 and [c], "a controller")[0])


def coordinator(yard: RealCluster) -> int:
    """The broker that coordinates the copier's transactions."""
    fields = {"key": "copier-source", "key_type": 1}
    address = next(iter(yard.bootstrap.split(",")))
    found = eventually(lambda: (a := ask(address, FIND_COORDINATOR, 2, fields)).error_code == 0 and a, "a coordinator")
    return int(found.node_id)
