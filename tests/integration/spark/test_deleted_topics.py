"""Topics that are deleted, or made again, on running brokers, while a stream or a batch read goes on."""

from typing import Any

import pytest
from confluent_kafka import KafkaException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logyard.spark_jobs.data_source.batch import LogyardReader
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.positions import positions
from logyard.spark_jobs.data_source.split_reader import Changed
from logyard.spark_jobs.data_source.stream import LogyardStreamReader
from tests.support.real_cluster import RealCluster, eventually

ALL = ReadAllAvailable()


def stream(cluster: RealCluster, **options: str) -> LogyardStreamReader:
    where = {"clusterFile": str(cluster.directory / "cluster.json"), "subscribePattern": "gone-.*"}
    return LogyardStreamReader(["offset"], where | options)


def delete(cluster: RealCluster, topic: str) -> None:
    admin = cluster.admin()  # librdkafka ends its work with the handle: it has to outlive the future
    admin.delete_topics([topic], operation_timeout=20)[topic].result(30)


def ends(offset: dict[str, Any]) -> dict[str, int]:
    return {str(tp): position.offset for tp, position in positions(offset).items()}


def test_a_deleted_topic_is_data_loss(cluster: RealCluster) -> None:
    for topic in ("gone-a", "gone-b"):
        cluster.create(topic, 1, 3)
        cluster.produce(topic, [(b"k", b"%d" % n) for n in range(10)])
    reader = stream(cluster)
    read = reader.latestOffset(reader.initialOffset(), ALL)
    assert ends(read) == {"gone-a-0": 10, "gone-b-0": 10}

    delete(cluster, "gone-b")

    def said() -> str:
        """What the reader says of it, once the broker that it asks knows no more of it."""
        try:
            reader.latestOffset(read, ALL)
        except BadOption as error:
            return str(error)
        return ""

    lost = eventually(said, "the stream says that it is gone")
    assert lost.startswith("gone-b-0: it was read up to offset 10, and was deleted since")
    careless = stream(cluster, failOnDataLoss="false")
    eventually(lambda: ends(careless.latestOffset(read, ALL)) == {"gone-a-0": 10}, "it is forgotten")

    cluster.create("gone-b", 1, 3)
    cluster.produce("gone-b", [(b"k", b"%d" % n) for n in range(3)])

    def anew() -> dict[str, Any] | None:
        found = reader.latestOffset(read, ALL)
        return found if ends(found) == {"gone-a-0": 10, "gone-b-0": 3} else None

    following = eventually(anew, "the new topic's records are seen")
    with pytest.raises(BadOption, match="topic gone-b was deleted and created again"):
        reader.partitions(read, following)


def test_a_tasks_second_try_does_not_read_another_topic_of_the_name(cluster: RealCluster) -> None:
    """The new topic has as many records, at the same offsets and under the same leader epoch."""

    def fill(value: bytes) -> None:
        eventually(created, "what was there before is deleted")
        cluster.produce("twice", [(b"k", value)] * 10)

    def created() -> bool:
        try:
            cluster.create("twice", 1, 3)
        except KafkaException:
            return False
        return True

    fill(b"old")
    where = {"clusterFile": str(cluster.directory / "cluster.json"), "subscribe": "twice"}
    reader = LogyardReader(["value"], where)
    (planned,) = reader.partitions()

    def values() -> list[bytes]:
        return [value for rows in reader.read(planned) for value in rows.column("value").to_pylist()]

    assert values() == [b"old"] * 10
    delete(cluster, "twice")
    fill(b"new")
    with pytest.raises(Changed, match=r"twice-0: .* the topic was deleted and created again: read again"):
        values()
