"""/admin/preferred_replica_election: a request to elect the preferred replicas of partitions."""

from collections.abc import Sequence

from logyard.broker.model import TopicPartition
from logyard.broker.znodes import fields

PATH = "/admin/preferred_replica_election"


def encode(partitions: Sequence[TopicPartition]) -> bytes:
    return fields.dump({"version": 1, "partitions": fields.partitions_json(partitions)})


def decode(data: bytes, path: str = PATH) -> list[TopicPartition]:
    """Read the partitions in the order written, each once. Raises CorruptData."""
    entries = fields.Fields.parse(path, data).objects("partitions")
    return list(dict.fromkeys(entry.topic_partition() for entry in entries))
