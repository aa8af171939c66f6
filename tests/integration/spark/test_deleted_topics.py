"""A stream of a pattern on running brokers, of whose topics one is deleted, or made again."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.stream import LogyardStreamReader, positions
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
