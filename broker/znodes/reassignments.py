"""/admin/reassign_partitions: the reassignments that tools from before KIP-455 request (facts §6)."""

from collections.abc import Mapping, Sequence

from logyard.broker.model import TopicPartition
from logyard.broker.znodes import fields

PATH = "/admin/reassign_partitions"


def encode(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Write the target replicas of each partition."""
    return fields.dump(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                for tp, replicas in targets.items()
            ],
        }
    )


def decode(data: bytes, path: str = PATH) -> dict[TopicPartition, tuple[int, ...]]:
    """Read the targets in the order written; if a partition is named twice, the last counts. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    return {entry.topic_partition(): entry.integers("replicas") for entry in content.objects("partitions")}
