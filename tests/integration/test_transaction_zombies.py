"""Producers that have been replaced, and producers that vanish: whatever they still send, no transaction is harmed."""

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from logyard.broker.protocol import codec
from tests.integration.test_transactions import TRANSACTIONS, started, topic  # noqa: F401  # a fixture
from tests.support.raw_transactions import ADD_PARTITIONS, RawTransactions, open_transactions
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import WAIT_S, values

pytestmark = pytest.mark.timeout(300)

EPOCH, FENCED, COORDINATOR_FENCED, CONCURRENT = 47, 90, 52, 51
VANISHED = 60


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    yield from started(tmp_path_factory.mktemp("zombies") / "cluster")


def committed(yard: RealCluster, group: str, name: str) -> int:
    with closing(Consumer({"bootstrap.servers": yard.bootstrap, "group.id": group})) as consumer:
        return int(consumer.committed([TopicPartition(name, 0)], WAIT_S)[0].offset)


def test_a_zombie_is_refused_at_every_request(yard: RealCluster, topic: str) -> None:  # noqa: F811
    """Before the next producer has begun anything, while its transaction is open, and after that was committed."""
    zombie_beside_its_successor(yard, topic)


def zombie_beside_its_successor(yard: RealCluster, topic: str, *, commits_beside: bool = True) -> None:  # noqa: F811
    """`commits_beside`: the zombie also commits an offset while its successor's is pending."""
    client, group = RawTransactions(yard, f"id-{topic}"), f"g-{topic}"
    old = client.begin_life()
    eventually(lambda: client.add(old, topic) == 0, "its coordinator knows the new topic")
    assert client.produce(old, topic, b"lost") == 0
    new = client.begin_life()
    assert new > old

    def zombie(*, commits: bool = True) -> dict[str, int]:
        return {
            "add": client.add(old, topic),
            "add v1": client.add(old, topic, 1),
            "add offsets": client.add_offsets(old, group),
            "add offsets v1": client.add_offsets(old, group, 1),
            "produce": client.produce(old, topic, b"zombie", sequence=1),
            "produce from 0": client.produce(old, topic, b"zombie"),
            "offsets": client.commit_offset(old, group, topic, 99) if commits else EPOCH,
            "commit": client.end(old, commits=True),
            "abort": client.end(old, commits=False),
            "commit v1": client.end(old, commits=True, version=1),
            "marker": client.mark(old, topic, 1_000_000),
            "marker of an older coordinator": client.mark(new, topic, -1),
        }

    refused = {
        "add": FENCED,
        "add v1": EPOCH,
        "add offsets": FENCED,
        "add offsets v1": EPOCH,
        "produce": EPOCH,
        "produce from 0": EPOCH,
        "offsets": EPOCH,
        "commit": FENCED,
        "abort": FENCED,
        "commit v1": EPOCH,
        "marker": EPOCH,
        "marker of an older coordinator": COORDINATOR_FENCED,
    }
    assert zombie() == refused
    assert client.add(new, topic) == 0
    assert client.produce(new, topic, b"kept") == 0
    assert client.add_offsets(new, group) == 0
    assert client.commit_offset(new, group, topic, 7) == 0
    assert zombie(commits=commits_beside) == refused
    assert client.end(new, commits=True) == 0
    eventually(lambda: committed(yard, group, topic) == 7, "the offset is committed")
    assert zombie() == refused
    told = [client.initialize(old, version).error_code for version in (4, 3)]
    assert told == [FENCED, EPOCH]
    assert values(yard.bootstrap, topic) == Counter([b"kept"])
    assert committed(yard, group, topic) == 7


def test_a_zombie_that_asks_for_an_epoch_ends_what_is_open_and_gets_none(
    yard: RealCluster,
    topic: str,  # noqa: F811
) -> None:
    """As in Kafka, which compares the producer id alone while a transaction is open: it may abort, and never commit."""
    client = RawTransactions(yard, f"id-{topic}")
    old = client.begin_life()
    new = client.begin_life()
    eventually(lambda: client.add(new, topic) == 0, "its coordinator knows the new topic")
    assert client.produce(new, topic, b"aborted") == 0
    assert client.initialize(old).error_code == CONCURRENT
    eventually(lambda: client.initialize(old).error_code == FENCED, "it is told so")
    assert client.end(new, commits=True) == FENCED
    last = client.begin_life()
    assert client.add(last, topic) == 0
    assert client.produce(last, topic, b"kept") == 0
    assert client.end(last, commits=True) == 0
    eventually(lambda: values(yard.bootstrap, topic) == Counter([b"kept"]), "only that is read")


def test_producers_that_vanish_half_way_through_a_request(yard: RealCluster, topic: str) -> None:  # noqa: F811
    """They send a part of AddPartitionsToTxn, or all of it, and are gone before the answer: nothing is held back."""
    clients = [RawTransactions(yard, f"gone-{number}-{topic}", timeout_ms=3_000) for number in range(VANISHED)]
    for number, client in enumerate(clients):
        pair = client.begin_life()
        fields = {f"v3_and_below_{key}": value for key, value in pair._asdict().items()} | {
            "v3_and_below_transactional_id": client.name,
            "v3_and_below_topics": [{"name": topic, "partitions": [0, 1, 2]}],
        }
        frame = codec.encode_request(ADD_PARTITIONS, 3, 1, "gone", fields)
        leave(client.coordinator, frame if number % 3 else frame[: len(frame) // 2], resets=number % 2 == 1)
        if number % 5 == 4:  # and some have written too
            eventually(lambda c=client, p=pair: c.add(p, topic) == 0, "what it has left behind is done")
            assert client.produce(pair, topic, b"gone") == 0
    yard.produce(topic, [(None, b"after")])
    eventually(lambda: not open_transactions(yard), "all of them are aborted", 30)
    assert values(yard.bootstrap, topic) == Counter([b"after"])
    client = clients[0]
    pair = client.begin_life()
    assert client.add(pair, topic) == 0
    assert client.produce(pair, topic, b"again") == 0
    assert client.end(pair, commits=True) == 0
    eventually(lambda: values(yard.bootstrap, topic) == Counter([b"after", b"again"]), "the id goes on")


def leave(address: str, said: bytes, *, resets: bool) -> None:
    """Send that, and be gone: with an end of the stream, or with a reset."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(said)
        if resets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
