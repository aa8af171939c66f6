"""The administration on Apache Kafka without ZooKeeper (KRaft): all that needs none."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import EARLIEST
from logyard.admin.settings import ClusterSettings
from logyard.admin.topics.changes import IfExists, ensure_topic
from logyard.broker.model import TopicPartition
from logyard.cli import main as entry
from tests.support import kafka
from tests.support.real_cluster import eventually


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka.running_kraft(tmp_path_factory.mktemp("kraft") / "node") as address:
        yield address


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClusterClient]:
    made = KafkaClusterClient(ClusterSettings.read(bootstrap))
    yield made
    made.close()


def test_a_topics_life(client: KafkaClusterClient) -> None:
    wanted = NewTopic("life", 3, 1, {"cleanup.policy": "compact"})
    assert ensure_topic(client, wanted, IfExists.FAIL).create == wanted
    eventually(lambda: client.snapshot(["life"]).ready("life"), "every partition led")
    grown = NewTopic("life", 5, 1, {"cleanup.policy": "compact", "retention.ms": "60000"})
    ensure_topic(client, grown, IfExists.RECONCILE)
    eventually(lambda: client.snapshot(["life"]).ready("life", 5), "the new partitions led")
    eventually(lambda: ensure_topic(client, grown, IfExists.RECONCILE).is_empty, "nothing left to do")
    assert client.list_reassignments() == {}
    elected = client.elect_leaders([TopicPartition("life", 0)])
    assert [problem.code for problem in elected.values() if problem] == [ErrorCode.ELECTION_NOT_NEEDED]
    with pytest.raises(ApiError) as refusal:
        client.create_topic(NewTopic("wide", 1, 9))
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    client.delete_topic("life")
    eventually(lambda: client.snapshot(["life"]).missing == ("life",), "the topic gone")


def test_offsets_groups_records_and_sizes(bootstrap: str, client: KafkaClusterClient) -> None:
    client.create_topic(NewTopic("read", 1, 1))
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for n in range(100):
        producer.produce("read", b"x" * 100, str(n))
    assert producer.flush(30) == 0
    tp = TopicPartition("read", 0)
    assert client.offsets([tp]) == {tp: 100}
    assert [size.size > 0 for size in client.replica_sizes() if size.tp == tp] == [True]
    client.alter_group_offsets("readers", {tp: 7})
    assert client.group_offsets("readers") == {tp: 7}
    assert "readers" in {group.group_id for group in client.groups()}
    assert client.delete_records({tp: 5}) == {tp: 5}
    assert client.offsets([tp], EARLIEST) == {tp: 5}


def test_commands(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--bootstrap-server", bootstrap]
    assert (
        entry.main(["topics", "create", "--topic", "made", "--partitions", "2", "--replication-factor", "1", *to]) == 0
    )
    eventually(lambda: entry.main(["topics", "describe", "--topic", "made", *to]) == 0, "described")
    assert "Leader: 0" in capsys.readouterr().out
    assert entry.main(["configs", "alter", "--topic", "made", "--add-config", "retention.ms=5000", *to]) == 0
    assert entry.main(["configs", "describe", "--topic", "made", *to]) == 0
    assert "retention.ms=5000" in capsys.readouterr().out
    assert entry.main(["groups", "list", *to]) == 0
    assert entry.main(["topics", "delete", "--topic", "made", *to]) == 0
